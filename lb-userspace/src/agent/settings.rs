//! What the command line decides, and what follows from it: the model's context, the data plane's
//! configuration, the file that remembers who has which VIP.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use ipnet::IpNet;
use lb_common::abi::Config;
use lb_common::{V4, limits};

use super::source::Source;
use super::uplink::Uplink;
use crate::load::XdpMode;
use crate::model::{Allocations, Context};
use crate::watch::Kept;

/// Settings of one agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the objects come from.
    pub source: Source,
    /// This node's name.
    pub node_name: String,
    /// Interfaces to attach to; the first is the uplink.
    pub interfaces: Vec<String>,
    /// How to attach.
    pub xdp_mode: XdpMode,
    /// Where pins live.
    pub pin_dir: PathBuf,
    /// Where to serve health and metrics.
    pub metrics_address: SocketAddr,
    /// The class that is ours.
    pub class: String,
    /// Services without a class are ours too.
    pub default_class: bool,
    /// Networks in which a VIP needs no pool.
    pub allow_addresses: Vec<IpNet>,
    /// Seed of selection.
    pub seed: u64,
    /// Source address of full NAT; the uplink's when unset.
    pub snat_address: Option<Ipv4Addr>,
    /// Drain timeout of vanished endpoints.
    pub drain_timeout: Duration,
    /// Where allocations are remembered.
    pub state_file: PathBuf,
    /// Whether a connection is moved when its endpoint refuses it or is silent.
    pub failover: bool,
}

impl Settings {
    /// The model's view of this node.
    pub(super) fn context(&self) -> Context {
        let mut context = Context::new(&self.node_name);
        context.class.clone_from(&self.class);
        context.default_class = self.default_class;
        context.allow_addresses.clone_from(&self.allow_addresses);
        context.allocate = self.source.allocates();
        context
    }

    /// The data plane's configuration.
    pub(super) fn config(&self, uplinks: &BTreeMap<String, Uplink>) -> Config<V4> {
        let of = |name: &String| uplinks.get(name)?.address;
        let snat = self
            .snat_address
            .or_else(|| self.interfaces.iter().find_map(of));
        Config {
            seed: self.seed,
            snat: snat.map_or(V4::default(), V4::from),
            snat_ports: [limits::SNAT_PORTS.0, limits::SNAT_PORTS.1],
            refusals: limits::REFUSALS_PER_SECOND,
            failover: u32::from(self.failover),
        }
    }

    /// The last good manifests, beside the allocations.
    pub(super) fn kept(&self) -> Kept {
        Kept::within(self.state_file.with_extension("manifests"))
    }

    /// Who had which VIP before a restart.
    pub(super) fn read_allocations(&self) -> anyhow::Result<Allocations> {
        let text = match fs::read_to_string(&self.state_file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Allocations::default()),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("reading {}", self.state_file.display()));
            }
        };
        Allocations::from_json(&text).with_context(|| {
            format!(
                "{}: expected allocations as an agent writes them",
                self.state_file.display()
            )
        })
    }

    /// Remembers who has which VIP; replaces the file as a whole, only when it differs.
    pub(super) fn write_allocations(&self, allocations: &Allocations) {
        let text = allocations.to_json();
        if fs::read_to_string(&self.state_file).is_ok_and(|old| old == text) {
            return;
        }
        let new = self.state_file.with_extension("new");
        let written = self
            .state_file
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&new, &text))
            .and_then(|()| fs::rename(&new, &self.state_file));
        if let Err(error) = written {
            tracing::warn!(path = %self.state_file.display(), %error,
                "cannot remember allocations: after a restart a Service may get another VIP");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_nat_takes_the_address_of_the_interface_that_was_named_first() {
        let settings = Settings {
            source: Source::Manifests(PathBuf::new()),
            node_name: String::new(),
            interfaces: ["out0", "none", "in0"].map(str::to_owned).to_vec(),
            xdp_mode: XdpMode::Auto,
            pin_dir: PathBuf::new(),
            metrics_address: SocketAddr::from(([127, 0, 0, 1], 0)),
            class: String::new(),
            default_class: false,
            allow_addresses: Vec::new(),
            seed: 0,
            snat_address: None,
            drain_timeout: Duration::ZERO,
            state_file: PathBuf::new(),
            failover: true,
        };
        let address = |last| Some(Ipv4Addr::new(192, 0, 2, last));
        let mut uplinks: BTreeMap<String, Uplink> = settings
            .interfaces
            .iter()
            .map(|name| (name.clone(), Uplink::default()))
            .collect();
        for (name, last) in [("in0", 1), ("out0", 2)] {
            uplinks.get_mut(name).expect("there").address = address(last);
        }
        assert_eq!(settings.config(&uplinks).snat, V4([192, 0, 2, 2]));
        uplinks.remove("out0");
        assert_eq!(settings.config(&uplinks).snat, V4([192, 0, 2, 1]));
        let settings = Settings {
            snat_address: address(3),
            ..settings
        };
        assert_eq!(settings.config(&uplinks).snat, V4([192, 0, 2, 3]));
    }
}
