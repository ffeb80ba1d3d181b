//! Makes the snapshot that `/state`, readiness and metrics are served from. A pure join of what
//! the loop holds; it decides nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::exits::Exits;
use super::settings::Settings;
use super::uplink::Uplink;
use crate::apply::{DrainBook, Executor};
use crate::desired::{Desired, FrontendKey, FrontendVerdict, Policy, Protocol};
use crate::model::World;
use crate::observe::health::{NotReady, Readiness};
use crate::observe::state::{
    EndpointStateEntry, FORMAT, FrontendState, IgnoredObject, InterfaceState, MapFill,
    PendingWrite, StateSnapshot,
};
use crate::plan::{LeftOut, Planner};
use crate::timer::drain::{Drains, EndpointRef, Lifecycle};

/// What the snapshot is made of.
pub(super) struct Parts<'a> {
    pub(super) settings: &'a Settings,
    pub(super) world: &'a mut World,
    pub(super) drains: &'a Drains,
    pub(super) planner: &'a Planner,
    pub(super) executor: &'a Executor,
    pub(super) uplinks: &'a BTreeMap<String, Uplink>,
    pub(super) exits: &'a Exits,
    pub(super) fills: &'a [MapFill],
    /// Entries of the flow table by endpoint id, at the last sweep.
    pub(super) usage: &'a BTreeMap<u32, u32>,
    pub(super) book: &'a DrainBook,
    pub(super) now: Duration,
}

/// The snapshot of this moment.
pub(super) fn of(parts: &mut Parts<'_>) -> StateSnapshot {
    let pending: Vec<_> = parts
        .executor
        .failures()
        .map(|(object, failure)| PendingWrite {
            write: format!("{object:?}"),
            error: failure.error.clone(),
            attempts: failure.attempts,
        })
        .chain(parts.book.unwritten().map(|(count, error)| PendingWrite {
            write: format!("{count} records of draining endpoints"),
            error: error.to_owned(),
            attempts: 1,
        }))
        .collect();
    let mut ignored: Vec<_> = parts
        .world
        .desired()
        .ignored
        .iter()
        .map(|ignored| IgnoredObject {
            object: ignored.object.clone(),
            reason: ignored.reason.clone(),
        })
        .collect();
    let left_out: Vec<_> = parts.planner.left_out().collect();
    let desired = parts.world.desired();
    ignored.extend(left_out.iter().map(|left| IgnoredObject {
        object: owner(desired, left),
        reason: left.to_string(),
    }));
    let full = full_maps(desired, &left_out);
    StateSnapshot {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: parts.settings.node_name.clone(),
        pin_dir: parts.settings.pin_dir.display().to_string(),
        taken: parts.now.as_nanos() as u64,
        readiness: readiness(parts, &pending, full),
        interfaces: parts
            .uplinks
            .iter()
            .map(|(name, uplink)| interface(name, uplink))
            .chain(parts.exits.states())
            .collect(),
        frontends: frontends(parts),
        maps: parts.fills.to_vec(),
        pending,
        ignored,
    }
}

/// The Service that something belongs to that was left out, or the address alone.
fn owner(desired: &Desired, left: &LeftOut) -> String {
    let key = |port, protocol| FrontendKey {
        address: left.address,
        port,
        protocol,
    };
    let (first, last) = match left.port {
        Some((port, protocol)) => (key(port, protocol), key(port, protocol)),
        None => (key(0, Protocol::Tcp), key(u16::MAX, Protocol::Udp)),
    };
    let frontend = desired.frontends.range(first..=last).next();
    frontend.map_or_else(
        || format!("VIP {}", left.address),
        |(_, frontend)| format!("Service/{}", frontend.service),
    )
}

/// What found no room, by map: the first of it, and how much more.
fn full_maps(desired: &Desired, left_out: &[LeftOut]) -> Vec<NotReady> {
    let mut by_map: BTreeMap<&str, (String, usize)> = BTreeMap::new();
    for left in left_out {
        if let Some(map) = left.reason.full_map() {
            let first = || (format!("{}, {left}", owner(desired, left)), 0);
            by_map
                .entry(map)
                .and_modify(|(_, more)| *more += 1)
                .or_insert_with(first);
        }
    }
    let said = by_map
        .into_iter()
        .map(|(map, (first, more))| NotReady::MapFull {
            map: map.to_owned(),
            object: if more == 0 {
                first
            } else {
                format!("{first}, and {more} more")
            },
        });
    said.collect()
}

fn readiness(parts: &Parts<'_>, pending: &[PendingWrite], full: Vec<NotReady>) -> Readiness {
    let lists = parts
        .world
        .missing()
        .into_iter()
        .map(|kind| NotReady::NotListed {
            kind: kind.to_owned(),
        });
    let denied = parts.world.denied().iter().map(|right| NotReady::Denied {
        verb: right.verb.to_owned(),
        resource: right.resource.to_owned(),
    });
    let links = parts.uplinks.iter().filter_map(|(name, uplink)| {
        let error = uplink.error.clone()?;
        Some(NotReady::NotAttached {
            interface: name.clone(),
            error,
        })
    });
    let links = links.chain(parts.exits.troubles());
    let writes = pending.first().map(|first| NotReady::FailedWrites {
        count: pending.len(),
        first: format!("{}: {}", first.write, first.error),
    });
    Readiness::of(lists.chain(denied).chain(links).chain(writes).chain(full))
}

fn interface(name: &str, uplink: &Uplink) -> InterfaceState {
    let attachment = uplink.attachment.as_ref();
    let mode = attachment.and_then(|attachment| attachment.mode);
    InterfaceState {
        name: name.to_owned(),
        ifindex: attachment.map_or(0, |attachment| attachment.link.index),
        mode: mode.map_or("none", |mode| mode.as_str()).to_owned(),
        xdp: attachment.and_then(|attachment| attachment.xdp_program),
        egress: attachment.and_then(|attachment| attachment.egress_program),
        notes: attachment
            .and_then(|attachment| attachment.note.clone())
            .into_iter()
            .chain(uplink.error.clone())
            .collect(),
    }
}

fn frontends(parts: &mut Parts<'_>) -> Vec<FrontendState> {
    let mut by_frontend: BTreeMap<FrontendKey, Vec<(EndpointRef, Lifecycle)>> = BTreeMap::new();
    for (endpoint, life) in parts.drains.iter() {
        by_frontend
            .entry(endpoint.frontend)
            .or_default()
            .push((endpoint, life));
    }
    let holds = parts.drains.holds();
    let (planner, usage) = (parts.planner, parts.usage);
    let desired = parts.world.desired();
    let keys = desired.frontends.keys().chain(holds.keys());
    let keys: std::collections::BTreeSet<_> = keys.copied().collect();
    keys.into_iter()
        .map(|key| {
            let frontend = desired.frontends.get(&key);
            let hold = holds.get(&key);
            let service = frontend
                .map(|frontend| frontend.service.to_string())
                .or_else(|| hold?.service.as_ref().map(ToString::to_string));
            let policy = match frontend.map(|frontend| frontend.policy) {
                Some(Policy::Local) => "Local",
                Some(Policy::Cluster) | None => "Cluster",
            };
            let verdict = match frontend.map(|frontend| frontend.verdict) {
                Some(FrontendVerdict::Forward) => "forward",
                Some(FrontendVerdict::Drop) => "drop",
                Some(FrontendVerdict::Reject) | None => "reject",
            };
            let endpoints = by_frontend.remove(&key).unwrap_or_default();
            FrontendState {
                service: service.unwrap_or_default(),
                port_name: frontend.map(|f| f.port_name.clone()).unwrap_or_default(),
                address: Some(key.address),
                port: key.port,
                protocol: key.protocol.to_string(),
                policy: policy.to_owned(),
                verdict: verdict.to_owned(),
                id: planner.frontend_id(&key),
                held: frontend.is_none(),
                held_until: hold
                    .filter(|_| frontend.is_none())
                    .map(|hold| hold.until.as_nanos() as u64),
                endpoints: endpoints
                    .into_iter()
                    .map(|(endpoint, life)| {
                        let listed = frontend.and_then(|frontend| {
                            frontend
                                .endpoints
                                .iter()
                                .find(|e| e.address == endpoint.address)
                        });
                        let id = match endpoint.address {
                            SocketAddr::V4(address) => {
                                planner.id_of_life(&key, address, endpoint.incarnation)
                            }
                            SocketAddr::V6(_) => None,
                        };
                        let entries = id.and_then(|id| usage.get(&id)).copied().unwrap_or(0);
                        EndpointStateEntry {
                            address: Some(endpoint.address),
                            node: listed.and_then(|listed| listed.node.clone()),
                            via: if life.local { "local" } else { "nat" }.to_owned(),
                            id,
                            state: life.state.as_str().to_owned(),
                            new_connections: life.new_connections,
                            cause: life.cause.as_str().to_owned(),
                            since: life.since.as_nanos() as u64,
                            deadline: life.deadline.map(|deadline| deadline.as_nanos() as u64),
                            // Full NAT takes two entries.
                            flows: u64::from(if life.local { entries } else { entries / 2 }),
                        }
                    })
                    .collect(),
            }
        })
        .collect()
}
