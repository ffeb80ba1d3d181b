//! The node's own watch of its pods: what the kernel says becomes what the drain timers know.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::Agent;
use crate::apply::KernelStore;
use crate::desired::{FrontendKey, Via};
use crate::netlink::{Event, Node};
use crate::timer::drain::{Effect, EndpointRef, PodSight};

impl Agent {
    /// Takes in what the kernel said of the network, as far as pods go; returns the frontends
    /// concerned.
    pub(super) fn see(&mut self, event: &Event, now: Duration) -> BTreeSet<FrontendKey> {
        let sights = self.pods.handle(event, &Node);
        let mut keys = BTreeSet::new();
        for sight in sights {
            match sight {
                PodSight::Gone(pod) => tracing::info!(%pod, "a pod of this node is gone"),
                PodSight::Alive(pod) => tracing::info!(%pod, "a pod of this node is back"),
                PodSight::Suspect(pod) => tracing::debug!(%pod, "a pod of this node may be gone"),
            }
            let effects = self.drains.sight(sight, now);
            self.shun(&effects, now);
            keys.extend(self.follow(&effects));
        }
        keys
    }

    /// Takes endpoints that get nothing new out of selection at once.
    fn shun(&mut self, effects: &[Effect], now: Duration) {
        let down = effects.iter().filter_map(|effect| match effect {
            Effect::Selection {
                endpoint:
                    EndpointRef {
                        frontend,
                        address: SocketAddr::V4(address),
                        ..
                    },
                new_connections: false,
            } => Some((frontend, *address)),
            Effect::Selection { .. }
            | Effect::State { .. }
            | Effect::MoveUdp { .. }
            | Effect::Reset { .. }
            | Effect::Probe { .. } => None,
        });
        let plan = self.planner.shun(down);
        let mut store = KernelStore::new(&mut self.datapath.maps);
        self.executor.run(&plan, &mut self.planner, &mut store, now);
    }

    /// Watches the pods that endpoints of this node are.
    pub(super) fn watch_pods(&mut self) {
        let lives = self.lives.values().flatten();
        let local: BTreeSet<Ipv4Addr> = lives
            .filter(|(_, life)| life.via == Via::Local)
            .filter_map(|(address, _)| match address.ip() {
                IpAddr::V4(pod) => Some(pod),
                IpAddr::V6(_) => None,
            })
            .collect();
        self.pods.want(&local, &Node);
    }
}
