//! A connection attempt that its endpoint cannot take is moved to another one, before the client
//! notices: the refusal itself is turned into the client's SYN, addressed anew.
//!
//! Causes: a RST to the SYN, an ICMP error about it, and the steered SYN on its way out again
//! because the pod's route is gone. At most three endpoints, then the client gets the refusal.
//! Established flows are never touched, nor a handshake that has been answered.

use lb_common::abi::{
    FlowKey, Frontend, FrontendKey, HANDSHAKE_ANSWERED, HANDSHAKE_ECN, Handshake, Kind, verdict,
};
use lb_common::wire::eth;
use lb_common::wire::l4::{self, Ports, Tcp};
use lb_common::wire::{Be16, Be32, Mac, ipv4};
use lb_common::{Reason, checksum, limits};

use crate::answer::client_key;
use crate::family::{Family, Fresh};
use crate::flow::next_hop;
use crate::frame::{Frame, Rebuild};
use crate::packet::Packet;
use crate::place::{self, Place};
use crate::refuse::tcp_sum;
use crate::transmit::Hop;
use crate::world::{Entry, Slot, World};

/// Draws up a refused handshake for its next endpoint. The endpoint that refused, or 0 when the
/// client must be told the truth. `reply` is the key under which the refusal came.
#[inline(always)]
pub fn draw_up<W: World>(world: &W, reply: &FlowKey<W::Addr>) -> u32 {
    let Some(slot) = world.handshakes().find(reply) else {
        return 0;
    };
    let handshake = slot.read();
    let answered = handshake.flags & HANDSHAKE_ANSWERED != 0;
    if answered || world.config().failover == 0 || reply.protocol != ipv4::TCP {
        return 0;
    }
    let client = client_key(&handshake, reply.protocol);
    let Some(frontend) = frontend_of(world, &client) else {
        return 0;
    };
    let last = place::count(handshake.tried) + 1 >= limits::MAX_CANDIDATES;
    world
        .with_draft(|draft| {
            draft.handshake = slot.read();
            draft.frontend = frontend;
            draft.protocol = u32::from(reply.protocol);
            draft.handshake.started = world.millis();
            if last {
                // Nobody is asked any more, but the refusal counts.
                draft.frontend.verdict = verdict::REJECT;
            }
            draft.handshake.tried = [handshake.endpoint, handshake.tried[0]];
            handshake.endpoint
        })
        .unwrap_or(0)
}

/// The frontend that a client's tuple asks for.
#[inline(always)]
pub fn frontend_of<W: World>(world: &W, client: &FlowKey<W::Addr>) -> Option<Frontend> {
    world.frontend(&FrontendKey {
        address: client.dst,
        port: client.ports.dst.get(),
        protocol: client.protocol,
        zero: 0,
    })
}

/// The way to a place: the next hop, or, for an endpoint on this node, interface 0.
#[inline(always)]
pub fn way<W: World>(world: &W, place: Place) -> Result<Hop, Reason> {
    let endpoint = world.endpoint(place.endpoint).ok_or(Reason::NoNextHop)?;
    if Kind::from_u8(endpoint.via) == Kind::Local {
        return Ok(Hop {
            ifindex: 0,
            next: Mac([0; 6]),
            own: Mac([0; 6]),
        });
    }
    next_hop(world, place.endpoint)
}

/// Hardware addresses to leave with. A frame for the stack must be addressed to this station
/// (`own`), or it is taken for another's.
#[inline(always)]
pub fn macs(hop: Hop, own: Mac) -> [Mac; 2] {
    if hop.ifindex == 0 {
        [own, own]
    } else {
        [hop.next, hop.own]
    }
}

/// Turns the frame into the SYN of the handshake that `next` has just drawn up, to its endpoint.
#[inline(always)]
pub fn rebuild<F: Rebuild, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    place: Place,
) -> Result<(), Reason> {
    let endpoint = world.endpoint(place.endpoint).ok_or(Reason::NoNextHop)?;
    let local = Kind::from_u8(endpoint.via) == Kind::Local;
    let ports = Ports {
        src: Be16::new(endpoint.port),
        dst: place.source_port,
    };
    let done = world.with_draft(|draft| {
        let handshake = &draft.handshake;
        let source = if local {
            handshake.client
        } else {
            world.config().snat
        };
        let reply = FlowKey::new(endpoint.address, source, ports, ipv4::TCP);
        // By full NAT this is the hop; towards a pod the stack counts it.
        let ttl = handshake.ttl.wrapping_sub(u8::from(!local));
        syn::<F, N>(frame, handshake, &reply, ttl).is_some()
    });
    if done == Some(true) {
        Ok(())
    } else {
        Err(Reason::CannotResize)
    }
}

/// Carries out [`crate::pipeline::Step::Resettle`] on a refusal that came from the wire.
#[inline(always)]
pub fn from_wire<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    packet: &Packet<N::Addr>,
    place: Place,
) -> Result<Reason, Reason> {
    world.handshakes().remove(&packet.key());
    let link = world.link();
    let hop = way(world, place)?;
    rebuild::<F, N, W>(frame, world, place)?;
    frame
        .write(0, macs(hop, link.mac))
        .ok_or(Reason::HalfEdited)?;
    if hop.ifindex == 0 {
        return Ok(Reason::FailoverLocal);
    }
    if hop.ifindex == link.ifindex {
        return Ok(Reason::FailoverNat);
    }
    world.redirect(hop.ifindex);
    Ok(Reason::FailoverNatRedirect)
}

const MOST_OPTIONS: usize = 40;

/// Writes the SYN as the client sent it, to the endpoint that `reply` starts with.
#[inline(always)]
fn syn<F: Rebuild, N: Family>(
    frame: &mut F,
    handshake: &Handshake<N::Addr>,
    reply: &FlowKey<N::Addr>,
    ttl: u8,
) -> Option<()> {
    let words = u32::from(handshake.option_words).min(10);
    let len = l4::TCP_LEN + words as usize * 4;
    let at = eth::LEN + N::HEADER_LEN;
    let mut tcp = Tcp {
        ports: reply.ports.swapped(),
        seq: handshake.isn,
        ack: Be32::new(0),
        data_offset: (5 + words as u8) << 4,
        flags: l4::SYN | (handshake.flags & HANDSHAKE_ECN),
        window: handshake.window,
        checksum: Be16::new(0),
        urgent: Be16::new(0),
    };
    let mut options = 0u64;
    for (index, word) in handshake.options.iter().enumerate() {
        if index >= words as usize {
            break;
        }
        options += u64::from(*word);
    }
    let pseudo = checksum::pseudo(reply.dst, reply.src, ipv4::TCP, len as u16);
    let sum = checksum::add(
        checksum::fold64(options),
        checksum::fold(u32::from(pseudo) + tcp_sum(&tcp)),
    );
    tcp.checksum = Be16::from_word(!sum);
    // All ten words are written, then the frame is cut to those that count.
    frame.renew(at + l4::TCP_LEN + MOST_OPTIONS)?;
    let fresh = Fresh {
        src: reply.dst,
        dst: reply.src,
        protocol: ipv4::TCP,
        ttl,
        tos: handshake.tos,
        payload: len,
    };
    frame
        .write(at + l4::TCP_LEN, handshake.options)
        .and_then(|()| frame.write(at, tcp))
        .and_then(|()| N::emit(frame, &fresh))
        .and_then(|()| frame.write(eth::LEN - 2, N::ETHERTYPE))
        .and_then(|()| frame.resize(at + len))
}
