//! `sluice services`: every VIP:port, what happens to its new connections, and its endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use clap::Args;
use lb_common::V4;
use lb_common::abi::{self, Endpoint, FrontendKey, State};
use serde::Serialize;

use super::output::{
    AgentLine, Names, ReadArgs, ReadError, Sources, Tabular, age, columns, dash, frontend_name,
    protocol, render,
};
use crate::observe::state::StateSnapshot;

/// Arguments of `sluice services`.
#[derive(Args, Clone, Debug)]
pub struct ServicesArgs {
    /// Where to read, how to print.
    #[command(flatten)]
    pub read: ReadArgs,
}

/// What `sluice services` shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServicesView {
    /// Whether the agent could be asked.
    pub agent: AgentLine,
    /// One per VIP:port.
    pub frontends: Vec<ServiceRow>,
}

/// One VIP:port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServiceRow {
    /// `namespace/name`, when the agent says so.
    pub service: Option<String>,
    /// The port's name.
    pub port_name: Option<String>,
    /// The VIP.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// `Cluster` or `Local`.
    pub policy: Option<String>,
    /// `forward`, `drop` or `reject`, as the data plane does it.
    pub verdict: String,
    /// Id in the maps; none when the kernel does not have it.
    pub id: Option<u32>,
    /// Kept only while its endpoints drain.
    pub held: bool,
    /// Seconds until they are all gone at the latest; only for a held one.
    pub held_for: Option<u64>,
    /// Endpoints in the maps: may get new connections.
    pub active: usize,
    /// Endpoints in the maps: keep what they have.
    pub draining: usize,
    /// Endpoints in the maps: being reset.
    pub gone: usize,
}

/// Frontends as the kernel has them, by id.
pub type KernelFrontends = BTreeMap<u32, (FrontendKey<V4>, abi::Frontend)>;
/// Endpoints as the kernel has them, by id.
pub type KernelEndpoints = BTreeMap<u32, Endpoint<V4>>;

/// Reads and prints.
pub fn run(args: &ServicesArgs) -> Result<String, ReadError> {
    let sources = Sources::open(&args.read)?;
    let (frontends, endpoints) = (sources.maps.frontends()?, sources.maps.endpoints()?);
    let view = view(
        &frontends,
        &endpoints,
        sources.state.as_ref(),
        sources.agent,
        sources.clocks.boot,
    );
    render(&view, args.read.output)
}

fn view(
    frontends: &KernelFrontends,
    endpoints: &KernelEndpoints,
    state: Option<&StateSnapshot>,
    agent: AgentLine,
    now: Duration,
) -> ServicesView {
    let left = |until: Option<u64>| {
        let until = Duration::from_nanos(until?);
        Some(until.saturating_sub(now).as_secs())
    };
    let names = Names::of(state);
    let mut counts: BTreeMap<(u32, u8), usize> = BTreeMap::new();
    for endpoint in endpoints.values() {
        *counts
            .entry((endpoint.frontend, endpoint.state))
            .or_default() += 1;
    }
    let mut rows: Vec<_> = frontends
        .iter()
        .map(|(id, (key, frontend))| {
            let known = names.find(key);
            let count = |state: State| counts.get(&(*id, state as u8)).copied().unwrap_or(0);
            ServiceRow {
                service: known.map(|f| f.service.clone()),
                port_name: known.map(|f| f.port_name.clone()),
                address: IpAddr::V4(Ipv4Addr::from(key.address)),
                port: key.port,
                protocol: protocol(key.protocol).to_owned(),
                policy: known.map(|f| f.policy.clone()),
                verdict: verdict(frontend.verdict).to_owned(),
                id: Some(*id),
                held: known.is_some_and(|f| f.held),
                held_for: known.and_then(|f| left(f.held_until)),
                active: count(State::Active),
                draining: count(State::Draining),
                gone: count(State::Gone),
            }
        })
        .collect();
    let present: BTreeSet<_> = frontends
        .values()
        .map(|(key, _)| frontend_name(key))
        .collect();
    for missing in state.iter().flat_map(|state| &state.frontends) {
        let Some(address) = missing.address else {
            continue;
        };
        let name = format!("{address}:{}/{}", missing.port, missing.protocol);
        if !present.contains(&name) {
            rows.push(ServiceRow {
                service: Some(missing.service.clone()),
                port_name: Some(missing.port_name.clone()),
                address,
                port: missing.port,
                protocol: missing.protocol.clone(),
                policy: Some(missing.policy.clone()),
                verdict: "not in the kernel".to_owned(),
                id: None,
                held: missing.held,
                held_for: left(missing.held_until),
                active: 0,
                draining: 0,
                gone: 0,
            });
        }
    }
    rows.sort_by(|a, b| (&a.service, a.address, a.port).cmp(&(&b.service, b.address, b.port)));
    ServicesView {
        agent,
        frontends: rows,
    }
}

fn verdict(value: u8) -> &'static str {
    match value {
        abi::verdict::FORWARD => "forward",
        abi::verdict::DROP => "drop",
        abi::verdict::REJECT => "reject",
        _ => "?",
    }
}

impl Tabular for ServicesView {
    fn table(&self) -> String {
        let rows = self.frontends.iter().map(|row| {
            [
                dash(row.service.as_deref().unwrap_or_default()),
                format!("{}:{}/{}", row.address, row.port, row.protocol),
                dash(row.policy.as_deref().unwrap_or_default()),
                match row.held_for {
                    Some(left) if row.held => format!("{} (held {})", row.verdict, age(left)),
                    None if row.held => format!("{} (held)", row.verdict),
                    Some(_) | None => row.verdict.clone(),
                },
                row.active.to_string(),
                row.draining.to_string(),
                row.gone.to_string(),
            ]
        });
        let header = [
            "SERVICE", "FRONTEND", "POLICY", "NEW", "ACTIVE", "DRAINING", "GONE",
        ];
        self.agent.warning() + &columns(header, rows.collect())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::observe::state::FrontendState;

    pub(in crate::cli) fn kernel() -> (KernelFrontends, KernelEndpoints) {
        let key = |port| FrontendKey {
            address: V4([192, 0, 2, 10]),
            port,
            protocol: 6,
            zero: 0,
        };
        let frontend = |id, verdict| abi::Frontend {
            id,
            verdict,
            ..Default::default()
        };
        let frontends = BTreeMap::from([
            (1, (key(80), frontend(1, abi::verdict::FORWARD))),
            (2, (key(443), frontend(2, abi::verdict::REJECT))),
        ]);
        let endpoint = |last, frontend, state: State| Endpoint {
            address: V4([10, 0, 0, last]),
            port: 8080,
            state: state as u8,
            frontend,
            ..Default::default()
        };
        let endpoints = BTreeMap::from([
            (11, endpoint(1, 1, State::Active)),
            (12, endpoint(2, 1, State::Draining)),
            (13, endpoint(3, 1, State::Gone)),
        ]);
        (frontends, endpoints)
    }

    pub(in crate::cli) fn agent(running: bool) -> AgentLine {
        AgentLine {
            address: "127.0.0.1:9095".parse().expect("address"),
            running,
            error: (!running).then(|| "connection refused".into()),
        }
    }

    const NOW: Duration = Duration::from_secs(100);

    fn frontend(port: u16) -> FrontendState {
        FrontendState {
            service: "shop/web".into(),
            policy: "Cluster".into(),
            address: Some([192, 0, 2, 10].into()),
            port,
            protocol: "TCP".into(),
            ..Default::default()
        }
    }

    #[test]
    fn without_an_agent_addresses_are_shown_and_the_agent_is_missed() {
        let (frontends, endpoints) = kernel();
        let table = view(&frontends, &endpoints, None, agent(false), NOW).table();
        assert!(
            table.starts_with("agent not running: connection refused\n"),
            "{table}"
        );
        let rows: Vec<Vec<_>> = table
            .lines()
            .skip(4)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows[0],
            ["-", "192.0.2.10:80/TCP", "-", "forward", "1", "1", "1"]
        );
        assert_eq!(
            rows[1],
            ["-", "192.0.2.10:443/TCP", "-", "reject", "0", "0", "0"]
        );
    }

    #[test]
    fn with_an_agent_names_are_joined_and_what_the_kernel_lacks_is_said() {
        let (frontends, endpoints) = kernel();
        let mut held = frontend(443);
        held.held = true;
        held.held_until = Some(142_000_000_000);
        let state = StateSnapshot {
            frontends: vec![frontend(80), held, frontend(8443)],
            ..Default::default()
        };
        let view = view(&frontends, &endpoints, Some(&state), agent(true), NOW);
        let table = view.table();
        assert!(table.starts_with("SERVICE"), "{table}");
        assert!(table.contains("shop/web  192.0.2.10:80/TCP"), "{table}");
        assert!(table.contains("not in the kernel"), "{table}");
        assert!(table.contains("reject (held 42s)"), "{table}");
        let json = render(&view, super::super::output::Format::Json).expect("json");
        let back: serde_json::Value = serde_json::from_str(&json).expect("own output");
        assert_eq!(back["frontends"][1]["verdict"], "reject", "{json}");
    }
}
