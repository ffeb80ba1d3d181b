//! What the agent knows and the kernel's maps do not: names, reasons, causes.
//!
//! The agent's loop fills a [`StateSnapshot`] after each round; `/state` serves it and the
//! command line joins it with the maps. It is for people and scripts, and no input of
//! anything: a field may be added at any time, and readers must skip what they do not know.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::health::Readiness;

/// Version of the snapshot's form; raised when a field changes its meaning.
pub const FORMAT: u32 = 1;

/// All that the agent says of itself.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct StateSnapshot {
    /// [`FORMAT`].
    pub format: u32,
    /// The agent's version.
    pub version: String,
    /// The node's name.
    pub node: String,
    /// Where the pins are.
    pub pin_dir: String,
    /// Boot-clock nanoseconds when this was taken.
    pub taken: u64,
    /// Whether the node is ready, and why not.
    pub readiness: Readiness,
    /// Interfaces asked for.
    pub interfaces: Vec<InterfaceState>,
    /// Every VIP:port, held ones included.
    pub frontends: Vec<FrontendState>,
    /// Entries of the maps, as last counted.
    pub maps: Vec<MapFill>,
    /// Writes that failed and are retried.
    pub pending: Vec<PendingWrite>,
    /// Objects left out, and why.
    pub ignored: Vec<IgnoredObject>,
}

/// Mode of an interface that replies may leave by and nothing comes in by.
pub const EGRESS_ONLY: &str = "egress only";

/// One interface that the agent uses.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct InterfaceState {
    /// Its name.
    pub name: String,
    /// Its index; 0 while it does not exist.
    pub ifindex: u32,
    /// `native`, `generic`, [`EGRESS_ONLY`], or `none` while not attached.
    pub mode: String,
    /// The XDP program's id.
    pub xdp: Option<u32>,
    /// The egress program's id.
    pub egress: Option<u32>,
    /// What does not work in this mode, and other things to know.
    pub notes: Vec<String>,
}

/// One VIP:port.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct FrontendState {
    /// `namespace/name`; empty when unknown (held since before a restart).
    pub service: String,
    /// The Service port's name.
    pub port_name: String,
    /// The VIP.
    pub address: Option<IpAddr>,
    /// Its port.
    pub port: u16,
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// `Cluster` or `Local`.
    pub policy: String,
    /// `forward`, `drop` or `reject`.
    pub verdict: String,
    /// Id in the kernel's maps.
    pub id: Option<u32>,
    /// Nobody asks for it any more; it is answered while its endpoints drain.
    pub held: bool,
    /// When the last of them is gone at the latest, boot-clock nanoseconds; only for a held one.
    pub held_until: Option<u64>,
    /// Its endpoints, past lives included.
    pub endpoints: Vec<EndpointStateEntry>,
}

/// One life of one endpoint.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct EndpointStateEntry {
    /// Address and port.
    pub address: Option<SocketAddr>,
    /// The node that the slices name.
    pub node: Option<String>,
    /// `local` or `nat`.
    pub via: String,
    /// Id in the kernel's maps.
    pub id: Option<u32>,
    /// `active`, `unready`, `draining` or `gone`.
    pub state: String,
    /// Gets new connections.
    pub new_connections: bool,
    /// Why it is in this state.
    pub cause: String,
    /// When the state began, boot-clock nanoseconds.
    pub since: u64,
    /// When it becomes `gone`, boot-clock nanoseconds.
    pub deadline: Option<u64>,
    /// Flows it had at the last sweep.
    pub flows: u64,
}

/// How full a map is.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct MapFill {
    /// The map's name, of [`super::pins::MAPS`].
    pub map: String,
    /// Entries in use.
    pub entries: u64,
    /// Entries it has room for.
    pub capacity: u64,
}

/// A write to the kernel that failed.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct PendingWrite {
    /// What was to be written.
    pub write: String,
    /// Why it failed.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// An object (or a part of one) that was left out.
#[derive(Clone, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(default)]
pub struct IgnoredObject {
    /// `Kind/namespace/name`, or a file with a line.
    pub object: String,
    /// What is wrong with it.
    pub reason: String,
}

/// States an endpoint can have, as labels.
pub const ENDPOINT_STATES: [&str; 4] = ["active", "unready", "draining", "gone"];

impl StateSnapshot {
    /// Number of Services that are answered for.
    pub fn services(&self) -> usize {
        let named = self.frontends.iter().filter(|frontend| !frontend.held);
        named
            .map(|frontend| &frontend.service)
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// Endpoints by state; every state has an entry.
    pub fn endpoints_by_state(&self) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<_, _> = ENDPOINT_STATES.into_iter().map(|s| (s, 0)).collect();
        for endpoint in self
            .frontends
            .iter()
            .flat_map(|frontend| &frontend.endpoints)
        {
            if let Some(count) = counts.get_mut(endpoint.state.as_str()) {
                *count += 1;
            }
        }
        counts
    }

    /// Flows at the last sweep, by the state of their endpoint; every state has an entry.
    pub fn flows_by_state(&self) -> BTreeMap<&'static str, u64> {
        let mut counts: BTreeMap<_, _> = ENDPOINT_STATES.into_iter().map(|s| (s, 0)).collect();
        for endpoint in self.frontends.iter().flat_map(|f| &f.endpoints) {
            if let Some(count) = counts.get_mut(endpoint.state.as_str()) {
                *count += endpoint.flows;
            }
        }
        counts
    }

    /// A frontend by its id in the kernel's maps.
    pub fn frontend(&self, id: u32) -> Option<&FrontendState> {
        self.frontends
            .iter()
            .find(|frontend| frontend.id == Some(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_skip_what_they_do_not_know_and_do_without_what_they_miss() {
        let newer = r#"{"format": 1, "node": "n1", "moon_phase": "full",
            "frontends": [{"service": "shop/web", "endpoints": [{"state": "draining"}]}]}"#;
        let snapshot: StateSnapshot = serde_json::from_str(newer).expect("lenient");
        assert_eq!(snapshot.services(), 1);
        assert_eq!(snapshot.endpoints_by_state()["draining"], 1);
        assert_eq!(snapshot.endpoints_by_state().len(), 4);
        assert!(!snapshot.readiness.ready);
    }
}
