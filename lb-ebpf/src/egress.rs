//! Replies of local endpoints on their way out (TCX egress): the VIP becomes their source.
//!
//! An established reply costs one lookup. Answers to handshakes are judged here, since only here
//! they can be seen: a refusal becomes the SYN to another endpoint and re-enters by the uplink's
//! ingress, so that conntrack sees a new connection. Checksums of what is passed on are edited by
//! the kernel's helpers alone: whether one is finished cannot be seen from here. Everything that
//! is no reply of ours leaves as it came.

mod error;
mod trouble;

use lb_common::abi::{FlowKey, STATE_FIN_ENDPOINT, STATE_RST};
use lb_common::wire::eth::{self, Ethernet};
use lb_common::wire::icmp::{self, Icmp};
use lb_common::wire::ipv4;
use lb_common::wire::l4::{self, Ports};
use lb_common::{Reason, V4};

use crate::answer::{self, Answer};
use crate::family::{Family, Network, V4Family};
use crate::frame::{Bytes, Checksum, Skb};
use crate::packet::Packet;
use crate::promote;
use crate::world::{Entry, Slot, World};

pub use trouble::{Cause, Trouble, answer_to, trouble};

/// Decides about a packet that leaves by the uplink. None when it may have to become another
/// packet, which [`trouble()`] tells.
#[inline(always)]
pub fn established<S: Skb, W: World<Addr = V4>>(skb: &mut S, world: &W) -> Option<Reason> {
    let Some((ethernet, net)) = network(skb) else {
        return Some(Reason::EgressOther);
    };
    if net.protocol == ipv4::ICMP {
        let message = skb.read::<Icmp>(net.transport);
        let error = message.is_some_and(|message| message.kind == icmp::UNREACHABLE);
        return if error {
            None
        } else {
            Some(Reason::EgressOther)
        };
    }
    let Ok(packet) = Packet::parse(skb, ethernet, net) else {
        return Some(Reason::EgressOther);
    };
    let key = packet.key();
    if let Some(slot) = world.reverse().find(&key) {
        // The pod's kernel has forgotten the old connection, or is not the old one any more: this
        // may be the answer to a new one that uses the client's port again.
        if packet.flags & (l4::SYN | l4::RST) != 0
            && let Some(handshake) = world.handshakes().find(&key)
        {
            match answer::judge(world, &packet, &key, &handshake) {
                Answer::TooLate => return Some(Reason::AnswerTooLate),
                Answer::Refused => return None,
                Answer::Deliver => {}
            }
        }
        let reverse = slot.read();
        let tick = world.tick();
        let ending = packet.flags & (l4::FIN | l4::RST) != 0;
        if reverse.seen != tick || ending {
            slot.update(|reverse| reverse.seen = tick);
            let client = FlowKey::new(
                packet.net.dst,
                reverse.vip,
                reverse.ports.swapped(),
                packet.net.protocol,
            );
            note_reply(world, &client, packet.flags, tick);
        }
        return Some(restore(skb, &packet, reverse.vip, reverse.ports));
    }
    let Some(slot) = world.handshakes().find(&key) else {
        // A steered SYN on its way out again: its pod's route is gone.
        let steered = packet.is_syn() && world.handshakes().find(&reversed(&key)).is_some();
        return if steered {
            None
        } else {
            Some(Reason::EgressOther)
        };
    };
    if packet.is_tcp() {
        match answer::judge(world, &packet, &key, &slot) {
            Answer::TooLate => return Some(Reason::AnswerTooLate),
            Answer::Refused => return None,
            Answer::Deliver => {}
        }
    } else if let Err(reason) = promote::datagram(world, &slot.read(), &key) {
        return Some(reason);
    }
    let handshake = slot.read();
    Some(restore(
        skb,
        &packet,
        handshake.vip,
        handshake.ports.swapped(),
    ))
}

#[inline(always)]
fn network<B: Bytes>(frame: &B) -> Option<(Ethernet, Network<V4>)> {
    let ethernet = frame.read::<Ethernet>(0)?;
    if ethernet.ethertype != eth::IPV4 {
        return None;
    }
    let net = V4Family::parse(frame)?;
    if net.fault.is_some() {
        None
    } else {
        Some((ethernet, net))
    }
}

#[inline(always)]
fn reversed<A: Copy>(key: &FlowKey<A>) -> FlowKey<A> {
    FlowKey::new(key.dst, key.src, key.ports.swapped(), key.protocol)
}

/// Stamps the client's flow and notes the endpoint's FIN or RST.
#[inline(always)]
fn note_reply<W: World>(world: &W, client: &FlowKey<W::Addr>, flags: u8, tick: u32) {
    if let Some(flow) = world.flows().find(client) {
        flow.update(|flow| {
            flow.replied = tick;
            if flags & l4::FIN != 0 {
                flow.state |= STATE_FIN_ENDPOINT;
            }
            if flags & l4::RST != 0 {
                flow.state |= STATE_RST;
            }
        });
    }
}

/// Gives the reply the VIP's address and port, and the client's own port back.
#[inline(always)]
fn restore<S: Skb>(skb: &mut S, packet: &Packet<V4>, vip: V4, ports: Ports) -> Reason {
    restored(skb, packet, vip, ports).map_or(Reason::HalfEdited, |()| Reason::ReplyLocal)
}

#[inline(always)]
fn restored<S: Skb>(skb: &mut S, packet: &Packet<V4>, vip: V4, ports: Ports) -> Option<()> {
    let transport = Checksum {
        offset: packet.checksum_at,
        udp: packet.net.protocol == ipv4::UDP,
    };
    let source = eth::LEN + ipv4::SRC_OFFSET;
    let header_checksum = eth::LEN + ipv4::CHECKSUM_OFFSET;
    skb.replace_address(source, header_checksum, transport, packet.net.src, vip)?;
    if ports.src != packet.ports.src {
        skb.replace_port(packet.net.transport, transport, packet.ports.src, ports.src)?;
    }
    if ports.dst != packet.ports.dst {
        skb.replace_port(
            packet.net.transport + 2,
            transport,
            packet.ports.dst,
            ports.dst,
        )?;
    }
    Some(())
}
