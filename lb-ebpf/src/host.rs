//! The two traits on plain collections: the same pipeline, run on the host by tests.
//!
//! A [`HostWorld`] is one node's tables with clocks that a test sets; [`run_ingress`] and
//! [`run_egress`] do what the kernel's programs do, step for step. No packet may be handled here
//! otherwise than there: what differs between the two is a fault of one of them.

mod frame;
mod skb;
mod table;
mod world;

use lb_common::Reason;

pub use frame::HostFrame;
pub use skb::HostSkb;
pub use table::HostTable;
pub use world::{HostWorld, Redirect};

use crate::egress::Trouble;
use crate::family::V4Family;
use crate::pipeline::{self, Rest, Step};
use crate::place::{self, Place};
use crate::refuse::Why;
use crate::{answer, connect, egress, failover, refuse};

/// What `sluice_xdp` does with a frame, but for counting it.
pub fn run_ingress(frame: &mut HostFrame, world: &HostWorld) -> Reason {
    match pipeline::at_once(frame, world) {
        Ok(reason) => return reason,
        Err(Rest::Closer) => {
            if let Some(reason) = pipeline::established(frame, world) {
                return reason;
            }
        }
        Err(Rest::Unknown) => {}
    }
    let decision = pipeline::first_contact(frame, world);
    match decision.step {
        Step::Done => Reason::from_u32(decision.with),
        // The kernel's program counts a flow that vanishes between the two as half edited.
        Step::Forward => pipeline::established(frame, world).unwrap_or(Reason::HalfEdited),
        Step::Settle => {
            let place = place::settle(world, decision.with, 0);
            match (place.endpoint, place.reason) {
                (0, Reason::RefusedNoEndpoint) => refuse(frame, world, Why::NoEndpoint),
                (0, reason) => reason,
                _ => pipeline::carry_out(frame, world, |frame, world, packet| {
                    connect::send::<_, V4Family, _>(frame, world, packet, place)
                }),
            }
        }
        Step::Resettle => {
            let place = place::settle(world, 0, decision.with);
            if place.endpoint == 0 {
                return deliver(frame, world);
            }
            pipeline::carry_out(frame, world, |frame, world, packet| {
                failover::from_wire::<_, V4Family, _>(frame, world, packet, place)
            })
        }
        Step::Deliver => deliver(frame, world),
        Step::Refuse => refuse(frame, world, Why::from_u32(decision.with)),
    }
}

fn deliver(frame: &mut HostFrame, world: &HostWorld) -> Reason {
    pipeline::carry_out(frame, world, |frame, world, packet| {
        answer::deliver::<_, V4Family, _>(frame, world, packet)
    })
}

fn refuse(frame: &mut HostFrame, world: &HostWorld, why: Why) -> Reason {
    pipeline::carry_out(frame, world, |frame, world, packet| {
        refuse::packet::<_, V4Family, _>(frame, world, packet, why)
    })
}

/// What `sluice_egress` does with a frame, but for counting it.
pub fn run_egress(skb: &mut HostSkb, world: &HostWorld) -> Reason {
    if let Some(reason) = egress::established(skb, world) {
        return reason;
    }
    match egress::trouble(skb, world) {
        Trouble::Done(reason) => reason,
        Trouble::Handshake { cause, refused } => {
            let place = if refused == 0 {
                Place::NOWHERE
            } else {
                place::settle(world, 0, refused)
            };
            egress::answer_to(skb, world, cause, place)
        }
    }
}
