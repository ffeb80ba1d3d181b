//! What the drain timers know beyond the slices, as the planner wants it.

use super::Agent;
use crate::desired::{EndpointState, Via};
use crate::plan::{Life, Lives};
use crate::timer::drain::Flows;

impl Agent {
    /// Lives beyond what the slices say.
    pub(super) fn lives(&mut self) -> Lives {
        let mut lives = Lives::new();
        let desired = self.world.desired();
        for (endpoint, life) in self.drains.iter() {
            let listed = desired
                .frontends
                .get(&endpoint.frontend)
                .and_then(|frontend| {
                    frontend
                        .endpoints
                        .iter()
                        .find(|listed| listed.address == endpoint.address)
                });
            if let Some(listed) = listed {
                self.vias.insert(endpoint, listed.via);
                if life.new_connections == listed.new_connections {
                    continue;
                }
            }
            let via = self.vias.get(&endpoint).copied().unwrap_or(Via::Local);
            let state = if life.flows == Flows::Stay {
                life.state
            } else {
                EndpointState::Gone
            };
            lives
                .entry(endpoint.frontend)
                .or_default()
                .insert(endpoint.address, Life { state, via });
        }
        lives
    }
}

/// Says which endpoints have no next hop.
pub(super) fn report<E: std::fmt::Display>(failures: Vec<(std::net::Ipv4Addr, E)>) {
    for (address, error) in failures {
        tracing::warn!(%address, %error, "no next hop towards this endpoint");
    }
}
