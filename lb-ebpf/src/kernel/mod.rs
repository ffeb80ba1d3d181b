//! The kernel's side of the two traits, and the programs.
//!
//! Only the files in this folder may be `unsafe`: packet memory is touched in `xdp` and `skb`,
//! map memory in `maps`, helpers are called in `world`, `emit` and `sweep`.

#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::inline_always,
    clippy::needless_pass_by_value,
    reason = "lengths are small and sums are bit patterns; what is not inlined costs a call and a stack frame; entry points take their context by value"
)]

mod emit;
mod maps;
mod skb;
mod sweep;
mod world;
mod xdp;

use aya_ebpf::Global;
use aya_ebpf::bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC, xdp_action};
use aya_ebpf::macros::{classifier, xdp};
use aya_ebpf::programs::{TcContext, XdpContext};
use lb_common::abi::{LINK_NONE, Link};
use lb_common::wire::Be16;
use lb_common::{Mac, Outcome, Reason};
use lb_ebpf::connect::Place;
use lb_ebpf::family::V4Family;
use lb_ebpf::frame::Bytes as _;
use lb_ebpf::pipeline::Decision;
use lb_ebpf::refuse::Why;
use lb_ebpf::{answer, connect, egress, pipeline, refuse};
use world::Kernel;
use xdp::XdpFrame;

/// The link this program is loaded for; the loader sets it.
#[unsafe(no_mangle)]
static LINK: Global<Link> = Global::new(Link {
    ifindex: 0,
    mac: Mac([0; 6]),
    flags: LINK_NONE,
    zero: 0,
});

/// Ingress, for drivers whose frames are one piece. On veth its presence makes the kernel switch
/// segmentation offload off at the peer, so that what we send on fits the link.
#[xdp]
fn sluice_xdp(ctx: XdpContext) -> u32 {
    ingress(&ctx, XdpFrame::new(&ctx).first_piece())
}

/// Ingress, for drivers that hand over jumbo frames in several pieces.
#[xdp(frags)]
fn sluice_xdp_frags(ctx: XdpContext) -> u32 {
    ingress(&ctx, XdpFrame::new(&ctx).len() as u32)
}

/// The hot path first; each further step is a function of its own, for the kernel's stack is 512
/// bytes over all frames of a call chain.
#[inline(always)]
fn ingress(ctx: &XdpContext, bytes: u32) -> u32 {
    let mut reason = established(ctx);
    if reason == UNDECIDED {
        let decision = first_contact(ctx);
        reason = match decision as u8 {
            DONE => (decision >> 32) as u32,
            FORWARD => established(ctx),
            OPEN => open(ctx, (decision >> 32) as u32, decision as u32),
            DELIVER => deliver(ctx),
            _ => refuse(ctx, (decision >> 32) as u32),
        };
    }
    let reason = Reason::from_u32(reason);
    maps::count(reason, bytes);
    match reason.outcome() {
        Outcome::Pass => xdp_action::XDP_PASS,
        Outcome::Transmit => xdp_action::XDP_TX,
        Outcome::Redirect => xdp_action::XDP_REDIRECT,
        Outcome::Drop => xdp_action::XDP_DROP,
    }
}

// Functions of their own pass plain integers: BTF has no word for an enum with data. A decision
// is its kind in the lowest byte and what it carries above.
const UNDECIDED: u32 = u32::MAX;
const DONE: u8 = 0;
const FORWARD: u8 = 1;
const OPEN: u8 = 2;
const DELIVER: u8 = 3;
const REFUSE: u8 = 4;
const REPEATED: u32 = 1 << 8;

#[inline(never)]
fn established(ctx: &XdpContext) -> u32 {
    pipeline::established(&mut XdpFrame::new(ctx), &Kernel)
        .map_or(UNDECIDED, |reason| reason as u32)
}

#[inline(never)]
fn first_contact(ctx: &XdpContext) -> u64 {
    let (kind, low, high) = match pipeline::first_contact(&mut XdpFrame::new(ctx), &Kernel) {
        Decision::Done(reason) => (DONE, 0, reason as u32),
        Decision::Forward => (FORWARD, 0, 0),
        Decision::Open(place) => {
            let repeated = if place.repeated { REPEATED } else { 0 };
            (
                OPEN,
                u32::from(place.source_port.word()) << 16 | repeated,
                place.endpoint,
            )
        }
        Decision::Deliver => (DELIVER, 0, 0),
        Decision::Refuse(why) => (REFUSE, 0, why as u32),
    };
    u64::from(high) << 32 | u64::from(low | u32::from(kind))
}

#[inline(never)]
fn open(ctx: &XdpContext, endpoint: u32, rest: u32) -> u32 {
    let place = Place {
        endpoint,
        source_port: Be16::from_word((rest >> 16) as u16),
        repeated: rest & REPEATED != 0,
    };
    pipeline::carry_out(&mut XdpFrame::new(ctx), &Kernel, |frame, world, packet| {
        connect::send::<_, V4Family, _>(frame, world, packet, place)
    }) as u32
}

#[inline(never)]
fn deliver(ctx: &XdpContext) -> u32 {
    pipeline::carry_out(&mut XdpFrame::new(ctx), &Kernel, |frame, world, packet| {
        answer::deliver::<_, V4Family, _>(frame, world, packet)
    }) as u32
}

#[inline(never)]
fn refuse(ctx: &XdpContext, why: u32) -> u32 {
    pipeline::carry_out(&mut XdpFrame::new(ctx), &Kernel, |frame, world, packet| {
        refuse::packet::<_, V4Family, _>(frame, world, packet, Why::from_u32(why))
    }) as u32
}

/// Egress: replies of local endpoints.
#[classifier]
fn sluice_egress(ctx: TcContext) -> i32 {
    let mut skb = skb::SkbFrame::new(&ctx);
    let bytes = ctx.len();
    let reason = egress::egress(&mut skb, &Kernel);
    maps::count(reason, bytes);
    match reason.outcome() {
        // "Unspecified" lets the next program of the chain decide too.
        Outcome::Pass | Outcome::Transmit => TC_ACT_UNSPEC,
        Outcome::Redirect => aya_ebpf::bindings::TC_ACT_REDIRECT,
        Outcome::Drop => TC_ACT_SHOT,
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
