//! Handshakes in trouble, as the egress program sees them: refusals, errors about them, and
//! steered SYNs that would leave again.
//!
//! The packet that tells of the trouble becomes the SYN to the next endpoint. A client hears of it
//! only when there is no other, and then only a refusal: an error quotes the pod.

use lb_common::abi::FlowKey;
use lb_common::wire::{Be16, eth, ipv4};
use lb_common::{Reason, V4};

use super::{network, restore, reversed};
use crate::failover;
use crate::family::V4Family;
use crate::frame::{Checksum, Skb};
use crate::packet::Packet;
use crate::place::Place;
use crate::transmit::Hop;
use crate::world::{Entry, Slot, World};

/// What is wrong with a handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Cause {
    /// Its endpoint sent a RST.
    Refusal = 0,
    /// An ICMP error about it.
    Error = 1,
    /// Its SYN would leave by the uplink: the pod's route is gone.
    WithoutWay = 2,
}

impl Cause {
    /// From its number; unknown ones count as an error, which is swallowed.
    #[inline(always)]
    pub const fn from_u32(value: u32) -> Self {
        match value {
            0 => Self::Refusal,
            2 => Self::WithoutWay,
            _ => Self::Error,
        }
    }
}

/// What is to be done with a packet that [`established`](super::established) could not decide about.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// Nothing more.
    Done(Reason),
    /// A handshake is in trouble and stands in the draft: find it another endpoint, then
    /// [`answer_to`].
    Handshake {
        /// What is wrong.
        cause: Cause,
        /// The endpoint that refused; 0 for one that nobody else may be asked for.
        refused: u32,
    },
}

/// Looks into refusals, errors, and SYNs without a way.
#[inline(always)]
pub fn trouble<S: Skb, W: World<Addr = V4>>(skb: &S, world: &W) -> Trouble {
    match handshake_of(skb, world) {
        Ok((cause, reply)) => Trouble::Handshake {
            cause,
            refused: failover::draw_up(world, &reply),
        },
        Err(reason) => Trouble::Done(reason),
    }
}

/// The handshake that a packet is about, by its key.
#[inline(always)]
fn handshake_of<S: Skb, W: World<Addr = V4>>(
    skb: &S,
    world: &W,
) -> Result<(Cause, FlowKey<V4>), Reason> {
    let (ethernet, net) = network(skb).ok_or(Reason::EgressOther)?;
    if net.protocol == ipv4::ICMP {
        return super::error::about_handshake(skb, world, &net);
    }
    let packet = Packet::parse(skb, ethernet, net).map_err(|_unsound| Reason::EgressOther)?;
    let key = packet.key();
    Ok(if packet.is_syn() {
        (Cause::WithoutWay, reversed(&key))
    } else {
        (Cause::Refusal, key)
    })
}

/// Makes the packet the SYN to the handshake's next endpoint. Without one the client gets the
/// refusal, and everything else is swallowed.
#[inline(always)]
pub fn answer_to<S: Skb, W: World<Addr = V4>>(
    skb: &mut S,
    world: &W,
    cause: Cause,
    place: Place,
) -> Reason {
    match move_or_tell(skb, world, cause, place) {
        Ok(reason) | Err(reason) => reason,
    }
}

#[inline(always)]
fn move_or_tell<S: Skb, W: World<Addr = V4>>(
    skb: &mut S,
    world: &W,
    cause: Cause,
    place: Place,
) -> Result<Reason, Reason> {
    let (_, reply) = handshake_of(skb, world)?;
    if place.endpoint == 0 {
        return if cause == Cause::Refusal {
            tell(skb, world, &reply)
        } else {
            Err(Reason::SwallowedError)
        };
    }
    world.handshakes().remove(&reply);
    let hop = failover::way(world, place)?;
    if cause == Cause::WithoutWay {
        readdress(skb, world, place, hop)?;
    } else {
        failover::rebuild::<S, V4Family, W>(skb, world, place)?;
    }
    skb.write(0, failover::macs(hop, world.link().mac))
        .ok_or(Reason::HalfEdited)?;
    Ok(go(world, hop))
}

/// Hands a refusal to the client.
#[inline(always)]
fn tell<S: Skb, W: World<Addr = V4>>(
    skb: &mut S,
    world: &W,
    reply: &FlowKey<V4>,
) -> Result<Reason, Reason> {
    let (ethernet, net) = network(skb).ok_or(Reason::EgressOther)?;
    let packet = Packet::parse(skb, ethernet, net)?;
    let slot = world.handshakes().find(reply).ok_or(Reason::EgressOther)?;
    let handshake = slot.read();
    Ok(restore(
        skb,
        &packet,
        handshake.vip,
        handshake.ports.swapped(),
    ))
}

/// Sends the moved SYN on its way. A hop of interface 0 is the node's own stack.
#[inline(always)]
fn go<W: World>(world: &W, hop: Hop) -> Reason {
    if hop.ifindex == 0 {
        world.reinject();
        Reason::FailoverReinjected
    } else if hop.ifindex == world.link().ifindex {
        // Already on its way out of this interface.
        Reason::FailoverNat
    } else {
        world.redirect(hop.ifindex);
        Reason::FailoverNatRedirect
    }
}

/// Addresses a steered SYN anew, in place, for its checksum may be unfinished.
#[inline(always)]
fn readdress<S: Skb, W: World<Addr = V4>>(
    skb: &mut S,
    world: &W,
    place: Place,
    hop: Hop,
) -> Result<(), Reason> {
    let (ethernet, net) = network(skb).ok_or(Reason::EgressOther)?;
    let packet = Packet::parse(skb, ethernet, net)?;
    let endpoint = world.endpoint(place.endpoint).ok_or(Reason::NoNextHop)?;
    let source = if hop.ifindex == 0 {
        packet.net.src
    } else {
        world.config().snat
    };
    let transport = Checksum {
        offset: packet.checksum_at,
        udp: false,
    };
    let header_checksum = eth::LEN + ipv4::CHECKSUM_OFFSET;
    let src = eth::LEN + ipv4::SRC_OFFSET;
    skb.replace_address(src, header_checksum, transport, packet.net.src, source)
        .and_then(|()| {
            let dst = src + 4;
            skb.replace_address(
                dst,
                header_checksum,
                transport,
                packet.net.dst,
                endpoint.address,
            )
        })
        .and_then(|()| {
            skb.replace_port(
                packet.net.transport,
                transport,
                packet.ports.src,
                place.source_port,
            )
        })
        .and_then(|()| {
            let dst = packet.net.transport + 2;
            skb.replace_port(dst, transport, packet.ports.dst, Be16::new(endpoint.port))
        })
        .ok_or(Reason::HalfEdited)
}
