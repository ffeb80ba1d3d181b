//! The kernel's side of the two traits, and the programs.
//!
//! Only the files in this folder may be `unsafe`: packet memory is touched in `xdp` and `skb`,
//! map memory in `maps`, helpers are called in `world`, `emit` and `sweep`.

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
use lb_common::{Mac, Outcome, Reason};
use lb_ebpf::{egress, pipeline};

/// The link this program is loaded for; the loader sets it.
#[unsafe(no_mangle)]
static LINK: Global<Link> =
    Global::new(Link { ifindex: 0, mac: Mac([0; 6]), flags: LINK_NONE, zero: 0 });

/// Ingress, for drivers whose frames are one piece. On veth its presence makes the kernel switch
/// segmentation offload off at the peer, so that what we send on fits the link.
#[xdp]
fn sluice_xdp(ctx: XdpContext) -> u32 {
    ingress(&ctx)
}

/// Ingress, for drivers that hand over jumbo frames in several pieces.
#[xdp(frags)]
fn sluice_xdp_frags(ctx: XdpContext) -> u32 {
    ingress(&ctx)
}

#[inline(always)]
fn ingress(ctx: &XdpContext) -> u32 {
    let mut frame = xdp::XdpFrame::new(ctx);
    let bytes = frame.arrived();
    let reason = match pipeline::established(&mut frame, &world::Kernel) {
        Some(reason) => reason,
        None => first_contact(ctx),
    };
    maps::count(reason, bytes);
    match reason.outcome() {
        Outcome::Pass => xdp_action::XDP_PASS,
        Outcome::Transmit => xdp_action::XDP_TX,
        Outcome::Redirect => xdp_action::XDP_REDIRECT,
        Outcome::Drop => xdp_action::XDP_DROP,
    }
}

/// A function of its own: its stack frame and its many registers stay off the hot path.
#[inline(never)]
fn first_contact(ctx: &XdpContext) -> Reason {
    pipeline::first_contact(&mut xdp::XdpFrame::new(ctx), &world::Kernel)
}

/// Egress: replies of local endpoints.
#[classifier]
fn sluice_egress(ctx: TcContext) -> i32 {
    let mut skb = skb::SkbFrame::new(&ctx);
    let bytes = ctx.len();
    let reason = egress::egress(&mut skb, &world::Kernel);
    maps::count(reason, bytes);
    match reason.outcome() {
        // "Unspecified" lets the next program of the chain decide too.
        Outcome::Pass | Outcome::Transmit => TC_ACT_UNSPEC,
        Outcome::Redirect => aya_ebpf::bindings::TC_ACT_REDIRECT as i32,
        Outcome::Drop => TC_ACT_SHOT as i32,
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
