//! The packet's way through XDP, on one screen.
//!
//! [`at_once`] is the hot path: packets that are not ours, and plain packets of known flows. What
//! it leaves goes to [`established`], which knows every packet of every flow, and what that cannot
//! decide to [`first_contact`], each a function (and a stack frame) of its own in the kernel. Every stage
//! returns a [`Reason`]: as an error it ends the packet's way there, and its outcome says what
//! becomes of it. A packet that is not ours must leave untouched, one that is must never leave
//! half edited, and nothing may be sent back to where it came from twice.

use lb_common::abi::{STATE_GONE, verdict};
use lb_common::wire::Be16;
use lb_common::wire::eth::{self, Ethernet};
use lb_common::{Reason, V4};

#[cfg(doc)]
use crate::failover;
use crate::family::{Family, Network, V4Family};
use crate::frame::Frame;
use crate::packet::Packet;
use crate::refuse::{self, Why};
use crate::world::{Entry, Slot, World};
use crate::{answer, arp, closed, connect, flow, hot, promote};

/// What the hot path leaves to do. It has not touched the packet then.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Rest {
    /// It may belong to a flow, and wants a closer look: [`established`].
    Closer,
    /// No flow knows it: [`first_contact`].
    Unknown,
}

/// The hot path.
#[inline(always)]
pub fn at_once<F: Frame, W: World<Addr = V4>>(frame: &mut F, world: &W) -> Result<Reason, Rest> {
    let Some(ethertype) = frame.read::<Be16>(eth::ETHERTYPE_OFFSET) else {
        return Ok(Reason::TooShort);
    };
    if ethertype.word() == eth::IPV4.word() {
        hot::packet::<F, V4Family, W>(frame, world)
    } else if ethertype.word() == eth::ARP.word() {
        Err(Rest::Unknown)
    } else {
        Ok(Reason::OtherProtocol)
    }
}

/// Packets of established flows, whatever they are. None for all that wants a decision.
#[inline(always)]
pub fn established<F: Frame, W: World<Addr = V4>>(frame: &mut F, world: &W) -> Option<Reason> {
    let Some(ethernet) = frame.read::<Ethernet>(0) else {
        return Some(Reason::TooShort);
    };
    match ethernet.ethertype {
        eth::IPV4 => known_flow::<F, V4Family, W>(frame, world, ethernet),
        eth::ARP => None,
        _ => Some(Reason::OtherProtocol),
    }
}

#[inline(always)]
fn known_flow<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    ethernet: Ethernet,
) -> Option<Reason> {
    let Some(net) = N::parse(frame) else {
        return Some(Reason::TooShort);
    };
    if !world.in_bitmap(net.dst) {
        return Some(Reason::NotOurs);
    }
    if ethernet.dst != world.link().mac {
        return Some(Reason::OtherStation);
    }
    let packet = sound_packet(frame, ethernet, net).ok()?;
    if packet.is_syn() {
        // It opens a connection of its own, whatever flow there is.
        return None;
    }
    let slot = world.flows().find(&packet.key())?;
    flow::forward::<F, N, W>(frame, world, &packet, &slot)
}

/// What is to be done with a packet that no flow knows. Carrying it out is another function, so
/// that each has a kernel stack to itself. A struct, not an enum with data: the optimiser leaves
/// what a variant lacks undefined, and the verifier refuses to see that moved about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Decision {
    /// The step.
    pub step: Step,
    /// What it is done with: see [`Step`].
    pub with: u32,
}

/// The step that follows [`first_contact`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Step {
    /// Nothing more, for this [`Reason`].
    Done,
    /// Its flow has just begun: the hot path knows the way now.
    Forward,
    /// It opens a connection: find the endpoint for what is in the draft, then
    /// [`connect::send`]; without one, refuse. With the client's endpoint by affinity, or 0.
    Settle,
    /// It is an endpoint's answer: hand it to the client.
    Deliver,
    /// It is the refusal of this endpoint: find another one, then [`failover::from_wire`];
    /// without one, hand it to the client.
    Resettle,
    /// Say no, for this [`Why`].
    Refuse,
}

impl Decision {
    /// The hot path knows the way now.
    pub const FORWARD: Self = Self {
        step: Step::Forward,
        with: 0,
    };
    /// Hand it to the client.
    pub const DELIVER: Self = Self {
        step: Step::Deliver,
        with: 0,
    };

    /// Nothing more.
    #[inline(always)]
    pub const fn done(reason: Reason) -> Self {
        Self {
            step: Step::Done,
            with: reason as u32,
        }
    }

    /// Find an endpoint, the client's own first.
    #[inline(always)]
    pub const fn settle(sticky: u32) -> Self {
        Self {
            step: Step::Settle,
            with: sticky,
        }
    }

    /// Find another endpoint.
    #[inline(always)]
    pub const fn resettle(refused: u32) -> Self {
        Self {
            step: Step::Resettle,
            with: refused,
        }
    }

    /// Say no.
    #[inline(always)]
    pub const fn refuse(why: Why) -> Self {
        Self {
            step: Step::Refuse,
            with: why as u32,
        }
    }
}

/// Everything else: questions, new connections, answers, and what must be refused.
#[inline(always)]
pub fn first_contact<F: Frame, W: World<Addr = V4>>(frame: &mut F, world: &W) -> Decision {
    let Some(ethernet) = frame.read::<Ethernet>(0) else {
        return Decision::done(Reason::TooShort);
    };
    let decided = match ethernet.ethertype {
        eth::ARP => arp::question(frame, world, ethernet).map(Decision::done),
        _ => unknown_flow::<F, V4Family, W>(frame, world, ethernet),
    };
    decided.unwrap_or_else(Decision::done)
}

#[inline(always)]
fn unknown_flow<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    ethernet: Ethernet,
) -> Result<Decision, Reason> {
    let net = N::parse(frame).ok_or(Reason::TooShort)?;
    let packet = match sound_packet(frame, ethernet, net) {
        Ok(packet) => packet,
        Err(fault) => return odd_packet::<F, N, W>(frame, world, ethernet, net, fault),
    };
    if answer::is_for_snat(world, &packet) {
        return answer::from_wire(frame, world, &packet);
    }
    let Some(frontend) = world.frontend(&packet.frontend_key()) else {
        not_for_vip(world, net.dst)?;
        return Ok(Decision::refuse(Why::Port));
    };
    if packet.is_tcp() && !packet.is_syn() {
        let decision = promote::acknowledgement(world, &packet)?;
        let unknown = decision == Decision::refuse(Why::UnknownFlow);
        return Ok(if unknown && is_gone(world, &packet) {
            Decision::refuse(Why::Gone)
        } else {
            decision
        });
    }
    connect::check_source(world, &frontend, &packet)?;
    match frontend.verdict {
        verdict::FORWARD => connect::open(frame, world, &packet, &frontend),
        verdict::DROP => Err(Reason::NoLocalEndpoint),
        _ => Ok(Decision::refuse(Why::NoEndpoint)),
    }
}

/// Carries out what was decided about a packet that was judged sound before.
#[inline(always)]
pub fn carry_out<F: Frame, W: World<Addr = V4>>(
    frame: &mut F,
    world: &W,
    carry: impl FnOnce(&mut F, &W, &Packet<V4>) -> Result<Reason, Reason>,
) -> Reason {
    let packet = frame
        .read::<Ethernet>(0)
        .ok_or(Reason::TooShort)
        .and_then(|ethernet| {
            let net = V4Family::parse(frame).ok_or(Reason::TooShort)?;
            sound_packet(frame, ethernet, net)
        });
    match packet.and_then(|packet| carry(frame, world, &packet)) {
        Ok(reason) | Err(reason) => reason,
    }
}

/// A packet whose headers are as long as they say, and whose transport we know.
#[inline(always)]
fn sound_packet<F: Frame, A: lb_common::Address>(
    frame: &F,
    ethernet: Ethernet,
    net: Network<A>,
) -> Result<Packet<A>, Reason> {
    match net.fault {
        Some(fault) => Err(fault),
        None => Packet::parse(frame, ethernet, net),
    }
}

/// A VIP's packet that is no sound TCP or UDP: an echo request, or dropped with its reason.
/// Anybody else's goes on untouched.
#[inline(always)]
fn odd_packet<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    ethernet: Ethernet,
    net: Network<N::Addr>,
    fault: Reason,
) -> Result<Decision, Reason> {
    let control = net.protocol == N::ICMP && fault == Reason::UnsupportedProtocol;
    if control && net.dst == world.config().snat {
        return closed::from_wire::<F, N, W>(frame, world, &net).map(Decision::done);
    }
    not_for_vip(world, net.dst)?;
    if control {
        return refuse::echo::<F, N, W>(frame, world, ethernet, net).map(Decision::done);
    }
    Err(fault)
}

/// Ends the way of a packet that only shares a bit of the bitmap with us, or is for the node
/// itself.
#[inline(always)]
fn not_for_vip<W: World>(world: &W, dst: W::Addr) -> Result<(), Reason> {
    if world.vip(dst).is_none() {
        Err(Reason::NotOurs)
    } else {
        Ok(())
    }
}

/// True for a packet of a flow whose endpoint is gone.
#[inline(always)]
pub fn is_gone<W: World>(world: &W, packet: &Packet<W::Addr>) -> bool {
    world
        .flows()
        .find(&packet.key())
        .is_some_and(|slot| slot.read().state & STATE_GONE != 0)
}
