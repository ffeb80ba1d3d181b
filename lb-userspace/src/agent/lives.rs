//! What the drain timers know beyond the slices, as the planner wants it: kept, and renewed where
//! something changed, because an endpoint's change must not cost a look at all of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::desired::{EndpointState, FrontendKey, Via};
use crate::plan::{Life, Lives};
use crate::timer::drain::{Drains, Flows};

/// Brings one frontend's lives up to date.
pub(super) fn renew(lives: &mut Lives, drains: &Drains, key: FrontendKey) {
    let now = of(drains, &key);
    if now.is_empty() {
        lives.remove(&key);
    } else {
        lives.insert(key, now);
    }
}

fn of(drains: &Drains, key: &FrontendKey) -> BTreeMap<SocketAddr, Life> {
    drains
        .all_of(key)
        .map(|(endpoint, life)| {
            let life = Life {
                incarnation: endpoint.incarnation,
                state: if life.flows == Flows::Stay {
                    life.state
                } else {
                    EndpointState::Gone
                },
                new_connections: life.new_connections,
                via: if life.local { Via::Local } else { Via::Nat },
            };
            (endpoint.address, life)
        })
        .collect()
}

/// Says which endpoints have no next hop.
pub(super) fn report<E: std::fmt::Display>(failures: Vec<(std::net::Ipv4Addr, E)>) {
    for (address, error) in failures {
        tracing::warn!(%address, %error, "no next hop towards this endpoint");
    }
}
