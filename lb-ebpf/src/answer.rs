//! An endpoint's answer to a handshake.
//!
//! Pure decisions, shared by both ways an answer comes: from the wire (`Nat`) and through the
//! egress program (`Local`). The first SYN-ACK that passes wins the connection; a second
//! endpoint's is dropped, for the client could follow only one.

use lb_common::abi::{
    Answered, FlowKey, HANDSHAKE_ANSWERED, Handshake, LINK_VIRTUAL, Link, STATE_REOPENED,
};
use lb_common::wire::Be32;
use lb_common::wire::l4;
use lb_common::{Address, Reason, checksum};

use crate::failover;
use crate::family::Family;
use crate::flow::{NAT_REPLY, send_out};
use crate::frame::Frame;
use crate::health;
use crate::packet::Packet;
use crate::pipeline::{self, Decision};
use crate::promote;
use crate::refuse::Why;
use crate::rewrite::{self, Edit};
use crate::transmit;
use crate::world::{Entry, Inserted, Slot, World};

/// True for a packet to the SNAT address and one of its ports.
#[inline(always)]
pub fn is_for_snat<W: World>(world: &W, packet: &Packet<W::Addr>) -> bool {
    let config = world.config();
    let port = packet.ports.dst.get();
    packet.net.dst == config.snat && port >= config.snat_ports[0] && port <= config.snat_ports[1]
}

/// More data than any SYN carries: one segment of the largest MTU.
const MOST_SYN_DATA: u32 = 0xffff;

/// What the answer means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// Hand it to the client.
    Deliver,
    /// The endpoint refused the connection.
    Refused,
    /// Another endpoint has answered before.
    TooLate,
}

/// Judges an answer and records what it tells.
#[inline(always)]
pub fn judge<W: World>(
    world: &W,
    packet: &Packet<W::Addr>,
    reply: &FlowKey<W::Addr>,
    slot: &impl Slot<Handshake<W::Addr>>,
) -> Answer {
    let handshake = slot.read();
    // A SYN may carry data (RFC 7413), and the answer acknowledges as much of it as it likes.
    let beyond_syn = packet
        .ack
        .get()
        .wrapping_sub(handshake.isn.get())
        .wrapping_sub(1);
    if packet.flags & l4::ACK == 0 || beyond_syn > MOST_SYN_DATA {
        return Answer::Deliver;
    }
    if packet.flags & l4::RST != 0 {
        let answered = handshake.flags & HANDSHAKE_ANSWERED != 0;
        return if answered || beyond_syn != 0 {
            Answer::Deliver
        } else {
            Answer::Refused
        };
    }
    if packet.flags & l4::SYN == 0 {
        return Answer::Deliver;
    }
    let ack = Be32::new(packet.seq.get().wrapping_add(1));
    let answered = Answered {
        endpoint: handshake.endpoint,
        frontend: handshake.frontend,
        ack,
        isn: handshake.isn,
        reply_ports: reply.ports,
        seen: world.tick(),
    };
    let key = client_key(&handshake, packet.net.protocol);
    if world.answered().insert_new(&key, &answered) == Inserted::Exists {
        if let Some(first) = world.answered().find(&key) {
            let first = first.read();
            let other = first.endpoint != handshake.endpoint || first.reply_ports != reply.ports;
            if other && first.isn == handshake.isn {
                return Answer::TooLate;
            }
        }
        world.answered().insert(&key, &answered);
    }
    // An old flow of the same client port stays until the handshake completes, and must watch out
    // for that from now on. Here, not with the SYN: a flood of those would pay for the look-up.
    if let Some(old) = world.flows().find(&key) {
        old.update(|old| old.state |= STATE_REOPENED);
    }
    health::answered(world, handshake.endpoint);
    slot.update(|handshake| {
        handshake.ack = ack;
        handshake.flags |= HANDSHAKE_ANSWERED;
    });
    Answer::Deliver
}

/// The client's tuple of a handshake.
#[inline(always)]
pub fn client_key<A: Address>(handshake: &Handshake<A>, protocol: u8) -> FlowKey<A> {
    FlowKey::new(handshake.client, handshake.vip, handshake.ports, protocol)
}

/// A packet from the wire to the SNAT address that belongs to no flow.
#[inline(always)]
pub fn from_wire<F: Frame, W: World>(
    frame: &F,
    world: &W,
    packet: &Packet<W::Addr>,
) -> Result<Decision, Reason> {
    let key = packet.key();
    let Some(slot) = world.handshakes().find(&key) else {
        return if pipeline::is_gone(world, packet) {
            Ok(Decision::refuse(Why::Gone))
        } else {
            Err(Reason::NotOurs)
        };
    };
    if packet.is_tcp() {
        return match judge(world, packet, &key, &slot) {
            Answer::TooLate => Err(Reason::AnswerTooLate),
            Answer::Deliver => Ok(Decision::DELIVER),
            Answer::Refused if !sound(frame, world.link(), packet) => Err(Reason::BadChecksum),
            Answer::Refused => Ok(match failover::draw_up(world, &key) {
                0 => Decision::DELIVER,
                refused => Decision::resettle(refused),
            }),
        };
    }
    promote::datagram(world, &slot.read(), &key)?;
    Ok(Decision::FORWARD)
}

/// True when a refusal's checksum holds: a forged or broken one must not move a connection.
#[inline(always)]
fn sound<F: Frame, A: Address>(frame: &F, link: Link, packet: &Packet<A>) -> bool {
    let net = &packet.net;
    let pseudo = checksum::pseudo(net.src, net.dst, net.protocol, net.payload_len as u16);
    link.flags & LINK_VIRTUAL != 0 && packet.checksum.word() == pseudo
        || frame
            .sum(net.transport, net.payload_len)
            .is_some_and(|sum| checksum::add(sum, pseudo) == 0xffff)
}

/// Carries out [`Step::Deliver`](crate::pipeline::Step::Deliver): hands an endpoint's answer to the client.
#[inline(always)]
pub fn deliver<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    packet: &Packet<N::Addr>,
) -> Result<Reason, Reason> {
    let slot = world
        .handshakes()
        .find(&packet.key())
        .ok_or(Reason::NotOurs)?;
    let handshake = slot.read();
    let hop = transmit::Hop {
        ifindex: handshake.ifindex,
        next: handshake.mac,
        own: world.link().mac,
    };
    let edit = Edit::between(
        (packet.net.src, packet.net.dst, packet.ports),
        (handshake.vip, handshake.client, handshake.ports.swapped()),
    );
    let kind = rewrite::kind_of(frame, world.link(), packet, false);
    send_out::<F, N, W>(frame, world, packet, &edit, kind, hop, NAT_REPLY)
}
