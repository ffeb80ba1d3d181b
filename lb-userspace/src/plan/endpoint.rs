//! The endpoints of one frontend: what to write for each, and which of them leave.
//!
//! What makes an endpoint worse is written last: until the frontend has switched, new connections
//! still come its way.

use std::net::{SocketAddr, SocketAddrV4};

use lb_common::V4;
use lb_common::abi::{self, Kind, State};
use lb_common::select::Identity;

use super::order::{MapOp, Phase, Plan};
use super::slots::Slot;
use super::target::{Target, Wanted, WantedEndpoint};
use super::{AppliedFrontend, Planner};
use crate::desired::{FrontendKey, Via};

impl Planner {
    /// Endpoints of this frontend that have an id and are not listed: kept while that may be for
    /// want of information, else sent off.
    pub(super) fn unlisted(
        &mut self,
        frontend: u32,
        wanted: &Wanted,
        keep: Option<&AppliedFrontend>,
        members: &mut Vec<(Identity, u32)>,
    ) {
        let Some(slots) = self.slots.get(&frontend) else {
            return;
        };
        let unlisted: Vec<_> = slots
            .iter()
            .filter(|(address, _)| !wanted.endpoints.contains_key(*address))
            .map(|(address, slot)| (*address, *slot))
            .collect();
        for (address, slot) in unlisted {
            match keep {
                Some(known) if known.members.contains(&slot.id) => {
                    members.push((Identity::new(SocketAddr::V4(address)), slot.id));
                }
                Some(_) => {}
                None => self.leave(frontend, &slot, State::Draining),
            }
        }
    }

    /// Operations that tell the data plane what became of endpoints that left.
    pub(super) fn leaving_endpoints(&self, frontend: u32, down: &mut Vec<MapOp>) {
        for (id, state) in self.leaving_of(frontend) {
            let Some(value) = self.applied.endpoints.get(&id) else {
                continue;
            };
            let is = State::from_u8(value.state);
            if is == State::Active || (state == State::Gone && is != State::Gone) {
                let value = abi::Endpoint {
                    state: state as u8,
                    ..*value
                };
                let phase = Phase::EndpointsDown;
                down.push(MapOp::PutEndpoint {
                    id,
                    value,
                    fresh: false,
                    phase,
                });
            }
        }
    }

    /// Takes dead endpoints out of selection before their tables are made anew, which for a pod of
    /// many Services takes a while: one write each, and the data plane passes them over.
    pub fn shun<'a>(
        &self,
        endpoints: impl Iterator<Item = (&'a FrontendKey, SocketAddrV4)>,
    ) -> Plan {
        let down = endpoints.filter_map(|(key, address)| {
            let id = self.endpoint_id(key, address)?;
            let value = self.applied.endpoints.get(&id)?;
            (value.state == State::Active as u8).then_some(MapOp::PutEndpoint {
                id,
                value: abi::Endpoint {
                    state: State::Draining as u8,
                    ..*value
                },
                fresh: false,
                phase: Phase::EndpointsDown,
            })
        });
        Plan {
            ops: down.collect(),
            left_out: Vec::new(),
            deferred: Vec::new(),
        }
    }

    pub(super) fn put_endpoint(
        &self,
        id: u32,
        value: abi::Endpoint<V4>,
        plan: &mut Plan,
        down: &mut Vec<MapOp>,
    ) {
        let current = self.applied.endpoints.get(&id);
        if current == Some(&value) {
            return;
        }
        let active = State::Active as u8;
        let worse = current.is_some_and(|is| is.state == active) && value.state != active;
        let fresh = current.is_none();
        if worse {
            down.push(MapOp::PutEndpoint {
                id,
                value,
                fresh,
                phase: Phase::EndpointsDown,
            });
        } else {
            plan.ops.push(MapOp::PutEndpoint {
                id,
                value,
                fresh,
                phase: Phase::EndpointsUp,
            });
        }
    }
}

/// The slot's contents.
pub(super) fn endpoint_value(
    slot: &Slot,
    address: SocketAddrV4,
    endpoint: WantedEndpoint,
    target: &Target<'_>,
) -> abi::Endpoint<V4> {
    let mut value = abi::Endpoint {
        address: V4::from(*address.ip()),
        port: address.port(),
        via: Kind::Local as u8,
        state: endpoint.state as u8,
        frontend: slot.key.frontend,
        incarnation: slot.incarnation,
        ..abi::Endpoint::default()
    };
    if endpoint.via == Via::Nat {
        value.via = Kind::Nat as u8;
        if let Some(hop) = target.next_hops.get(address.ip()) {
            value.ifindex = hop.ifindex;
            value.next_hop = lb_common::Mac(hop.mac);
            value.own_mac = lb_common::Mac(hop.own_mac);
        }
    }
    value
}
