//! Replies of local endpoints on their way out (TCX egress): the VIP becomes their source.
//!
//! An established reply costs one lookup. Answers to handshakes are judged here, since only here
//! they can be seen. Checksums are edited by the kernel's helpers alone: whether one is finished
//! cannot be seen from here. Everything that is no reply of ours leaves as it came.

use lb_common::abi::{FlowKey, STATE_FIN_ENDPOINT, STATE_RST};
use lb_common::wire::eth::{self, Ethernet};
use lb_common::wire::ipv4;
use lb_common::wire::l4::{self, Ports};
use lb_common::{Reason, V4};

use crate::answer::{self, Answer};
use crate::family::{Family, V4Family};
use crate::frame::{Checksum, Skb};
use crate::packet::Packet;
use crate::promote;
use crate::world::{Entry, Slot, World};

/// Decides about a packet that leaves by the uplink.
#[inline(always)]
pub fn egress<S: Skb, W: World<Addr = V4>>(skb: &mut S, world: &W) -> Reason {
    match reply(skb, world) {
        Ok(reason) | Err(reason) => reason,
    }
}

#[inline(always)]
fn reply<S: Skb, W: World<Addr = V4>>(skb: &mut S, world: &W) -> Result<Reason, Reason> {
    let ethernet = skb.read::<Ethernet>(0).ok_or(Reason::EgressOther)?;
    if ethernet.ethertype != eth::IPV4 {
        return Err(Reason::EgressOther);
    }
    let net = V4Family::parse(skb).ok_or(Reason::EgressOther)?;
    if net.fault.is_some() {
        return Err(Reason::EgressOther);
    }
    let packet = Packet::parse(skb, ethernet, net).map_err(|_reason| Reason::EgressOther)?;
    let key = packet.key();

    if let Some(slot) = world.reverse().find(&key) {
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
        return restore(skb, &packet, reverse.vip, reverse.ports);
    }

    let slot = world.handshakes().find(&key).ok_or(Reason::EgressOther)?;
    if packet.is_tcp() {
        match answer::judge(world, &packet, &key, &slot) {
            Answer::TooLate => return Err(Reason::AnswerTooLate),
            Answer::Deliver | Answer::Refused => {}
        }
    }
    let handshake = slot.read();
    if !packet.is_tcp() {
        promote::datagram(world, &handshake, &key)?;
    }
    restore(skb, &packet, handshake.vip, handshake.ports.swapped())
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
fn restore<S: Skb>(
    skb: &mut S,
    packet: &Packet<V4>,
    vip: V4,
    ports: Ports,
) -> Result<Reason, Reason> {
    let transport = Checksum {
        offset: packet.checksum_at,
        udp: packet.net.protocol == ipv4::UDP,
    };
    let source = eth::LEN + ipv4::SRC_OFFSET;
    let header_checksum = eth::LEN + ipv4::CHECKSUM_OFFSET;
    skb.replace_address(source, header_checksum, transport, packet.net.src, vip)
        .ok_or(Reason::HalfEdited)?;
    if ports.src != packet.ports.src {
        skb.replace_port(packet.net.transport, transport, packet.ports.src, ports.src)
            .ok_or(Reason::HalfEdited)?;
    }
    if ports.dst != packet.ports.dst {
        skb.replace_port(
            packet.net.transport + 2,
            transport,
            packet.ports.dst,
            ports.dst,
        )
        .ok_or(Reason::HalfEdited)?;
    }
    Ok(Reason::ReplyLocal)
}
