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

use crate::family::V4Family;
use crate::pipeline::{self, Decision};
use crate::{answer, connect, egress, refuse};

/// What `sluice_xdp` does with a frame, but for counting it.
pub fn run_ingress(frame: &mut HostFrame, world: &HostWorld) -> Reason {
    if let Some(reason) = pipeline::established(frame, world) {
        return reason;
    }
    match pipeline::first_contact(frame, world) {
        Decision::Done(reason) => reason,
        // The kernel's program counts a flow that vanishes between the two as half edited.
        Decision::Forward => pipeline::established(frame, world).unwrap_or(Reason::HalfEdited),
        Decision::Open(place) => pipeline::carry_out(frame, world, |frame, world, packet| {
            connect::send::<_, V4Family, _>(frame, world, packet, place)
        }),
        Decision::Deliver => pipeline::carry_out(frame, world, |frame, world, packet| {
            answer::deliver::<_, V4Family, _>(frame, world, packet)
        }),
        Decision::Refuse(why) => pipeline::carry_out(frame, world, |frame, world, packet| {
            refuse::packet::<_, V4Family, _>(frame, world, packet, why)
        }),
    }
}

/// What `sluice_egress` does with a frame, but for counting it.
pub fn run_egress(skb: &mut HostSkb, world: &HostWorld) -> Reason {
    egress::egress(skb, world)
}
