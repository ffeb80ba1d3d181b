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
use aya_ebpf::bindings::{TC_ACT_REDIRECT, TC_ACT_SHOT, TC_ACT_UNSPEC, xdp_action};
use aya_ebpf::macros::{classifier, xdp};
use aya_ebpf::programs::{TcContext, XdpContext};
use lb_common::abi::{LINK_NONE, Link};
use lb_common::{Mac, Outcome, Reason};
use lb_ebpf::egress::{Cause, Trouble};
use lb_ebpf::family::V4Family;
use lb_ebpf::frame::Bytes as _;
use lb_ebpf::health::Failure;
use lb_ebpf::pipeline::{Rest, Step};
use lb_ebpf::place::{self, Place, Terms};
use lb_ebpf::refuse::Why;
use lb_ebpf::{answer, connect, egress, failover, health, pipeline, refuse};
use skb::SkbFrame;
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

/// Word `index` of the link. A loader's constant has to be read as it stands, and all of it, byte
/// by byte, takes long.
#[inline(always)]
fn link_word(index: usize) -> u32 {
    const WORDS: usize = size_of::<Link>() / 4;
    let words = (&raw const LINK).cast::<[u32; WORDS]>();
    // SAFETY: a link is so many aligned words, `index` is masked to them, and it is never written.
    unsafe { core::ptr::read_volatile(words.cast::<u32>().add(index % WORDS)) }
}

#[inline(always)]
fn link_mac() -> Mac {
    let (start, end) = (link_word(1).to_ne_bytes(), link_word(2).to_ne_bytes());
    Mac([start[0], start[1], start[2], start[3], end[0], end[1]])
}

#[inline(always)]
fn link() -> Link {
    let [_, _, flags, zero] = link_word(2).to_ne_bytes();
    Link {
        ifindex: link_word(0),
        mac: link_mac(),
        flags,
        zero,
    }
}

/// Ingress, for drivers whose frames are one piece. On veth its presence makes the kernel switch
/// segmentation offload off at the peer, so that what we send on fits the link.
#[xdp]
fn sluice_xdp(ctx: XdpContext) -> u32 {
    let mut frame = XdpFrame::new(&ctx);
    let bytes = frame.at_hand();
    ingress(&ctx, &mut frame, bytes)
}

/// Ingress, for drivers that hand over jumbo frames in several pieces.
#[xdp(frags)]
fn sluice_xdp_frags(ctx: XdpContext) -> u32 {
    let mut frame = XdpFrame::new(&ctx);
    let bytes = frame.len();
    ingress(&ctx, &mut frame, bytes)
}

/// The hot path, in one piece: on many machines a return costs as much as a lookup.
#[inline(always)]
fn ingress(ctx: &XdpContext, frame: &mut XdpFrame<'_>, bytes: usize) -> u32 {
    let verdict = match pipeline::at_once(frame, &Kernel) {
        Ok(reason) => verdict(reason),
        Err(rest) => further(ctx, rest as u32),
    };
    maps::count(verdict & 0xff, bytes as u64);
    verdict >> 8
}

/// A reason, and above it XDP's action. For a reason that is a constant, both are.
#[inline(always)]
const fn verdict(reason: Reason) -> u32 {
    let action = match reason.outcome() {
        Outcome::Pass => xdp_action::XDP_PASS,
        Outcome::Transmit => xdp_action::XDP_TX,
        Outcome::Redirect => xdp_action::XDP_REDIRECT,
        Outcome::Drop => xdp_action::XDP_DROP,
    };
    action << 8 | reason as u32
}

// Functions of their own pass plain integers: BTF has no word for an enum with data. A decision
// is its kind in the lowest byte and what it carries above.
const CLOSER: u32 = Rest::Closer as u32;
const UNDECIDED: u32 = u32::MAX;
const DONE: u8 = Step::Done as u8;
const FORWARD: u8 = Step::Forward as u8;
const SETTLE: u8 = Step::Settle as u8;
const RESETTLE: u8 = Step::Resettle as u8;
const DELIVER: u8 = Step::Deliver as u8;

/// The verdict on what the hot path leaves. Each step is a function of its own, for the kernel's stack is 512
/// bytes over all frames of a call chain.
#[inline(never)]
fn further(ctx: &XdpContext, rest: u32) -> u32 {
    if rest == CLOSER {
        let reason = established(ctx);
        if reason != UNDECIDED {
            return verdict(Reason::from_u32(reason));
        }
    }
    let decision = first_contact(ctx);
    let reason = match decision as u8 {
        DONE => (decision >> 32) as u32,
        FORWARD => established(ctx),
        SETTLE => settle_and_open(ctx, (decision >> 32) as u32),
        RESETTLE => resettle(ctx, (decision >> 32) as u32),
        DELIVER => deliver(ctx),
        _ => refuse(ctx, (decision >> 32) as u32),
    };
    verdict(Reason::from_u32(reason))
}

#[inline(never)]
fn established(ctx: &XdpContext) -> u32 {
    pipeline::established(&mut XdpFrame::new(ctx), &Kernel)
        .map_or(UNDECIDED, |reason| reason as u32)
}

#[inline(never)]
fn first_contact(ctx: &XdpContext) -> u64 {
    let decision = pipeline::first_contact(&mut XdpFrame::new(ctx), &Kernel);
    u64::from(decision.with) << 32 | u64::from(decision.step as u8)
}

/// A global function: the verifier walks it once, with any arguments. Walked anew for every state
/// of its callers, its rounds and tries took the programs past the limit of a million
/// instructions. What it works on is in the draft.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn sluice_settle(sticky: u32, refused: u32) -> u64 {
    place::settle(&Kernel, sticky, refused).pack()
}

/// Global for the same reason: one offer of each settling.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn sluice_offer(id: u32, hash: u32, terms: u32) -> u64 {
    place::offer(&Kernel, id, hash, Terms::from_u32(terms)).pack()
}

/// Global for the same reason: a failure that may eject an endpoint.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn sluice_failed(id: u32, client: u32, refused: u32) -> u32 {
    let failure = if refused == 0 {
        Failure::Silent
    } else {
        Failure::Refused
    };
    health::failed(&Kernel, id, client, failure);
    0
}

#[inline(always)]
fn settle_and_open(ctx: &XdpContext, sticky: u32) -> u32 {
    let settled = sluice_settle(sticky, 0);
    let place = Place::unpack(settled);
    if place.endpoint != 0 {
        open(ctx, settled)
    } else if place.reason as u32 == Reason::RefusedNoEndpoint as u32 {
        refuse(ctx, Why::NoEndpoint as u32)
    } else {
        place.reason as u32
    }
}

#[inline(always)]
fn resettle(ctx: &XdpContext, refused: u32) -> u32 {
    let settled = sluice_settle(0, refused);
    if Place::unpack(settled).endpoint == 0 {
        deliver(ctx)
    } else {
        failover(ctx, settled)
    }
}

#[inline(never)]
fn open(ctx: &XdpContext, settled: u64) -> u32 {
    pipeline::carry_out(&mut XdpFrame::new(ctx), &Kernel, |frame, world, packet| {
        connect::send::<_, V4Family, _>(frame, world, packet, Place::unpack(settled))
    }) as u32
}

#[inline(never)]
fn failover(ctx: &XdpContext, settled: u64) -> u32 {
    pipeline::carry_out(&mut XdpFrame::new(ctx), &Kernel, |frame, world, packet| {
        failover::from_wire::<_, V4Family, _>(frame, world, packet, Place::unpack(settled))
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
    let bytes = ctx.len();
    let mut reason = reply(&ctx);
    if reason == UNDECIDED {
        reason = reply_in_trouble(&ctx);
    }
    let reason = Reason::from_u32(reason);
    maps::count(reason as u32, bytes.into());
    match reason.outcome() {
        // "Unspecified" lets the next program of the chain decide too.
        Outcome::Pass | Outcome::Transmit => TC_ACT_UNSPEC,
        Outcome::Redirect => TC_ACT_REDIRECT,
        Outcome::Drop => TC_ACT_SHOT,
    }
}

#[inline(never)]
fn reply(ctx: &TcContext) -> u32 {
    egress::established(&mut SkbFrame::new(ctx), &Kernel).map_or(UNDECIDED, |reason| reason as u32)
}

#[inline(always)]
fn reply_in_trouble(ctx: &TcContext) -> u32 {
    let decision = trouble(ctx);
    if decision as u8 == DONE {
        return (decision >> 32) as u32;
    }
    let refused = (decision >> 32) as u32;
    let settled = if refused == 0 {
        0
    } else {
        sluice_settle(0, refused)
    };
    answer_to(ctx, decision as u32 >> 8, settled)
}

#[inline(never)]
fn trouble(ctx: &TcContext) -> u64 {
    match egress::trouble(&SkbFrame::new(ctx), &Kernel) {
        Trouble::Done(reason) => u64::from(reason as u32) << 32 | u64::from(DONE),
        Trouble::Handshake { cause, refused } => {
            u64::from(refused) << 32 | u64::from((cause as u32) << 8) | u64::from(RESETTLE)
        }
    }
}

#[inline(never)]
fn answer_to(ctx: &TcContext, cause: u32, settled: u64) -> u32 {
    let cause = Cause::from_u32(cause);
    egress::answer_to(
        &mut SkbFrame::new(ctx),
        &Kernel,
        cause,
        Place::unpack(settled),
    ) as u32
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
