//! Replies of local endpoints on their way out (TCX egress): the VIP becomes their source.
//!
//! An established reply costs one lookup. Answers to handshakes are judged here, since only here
//! they can be seen: a refusal becomes the SYN to another endpoint and re-enters by the uplink's
//! ingress, so that conntrack sees a new connection. Checksums of what is passed on are edited by
//! the kernel's helpers alone: whether one is finished cannot be seen from here. Everything that
//! is no reply of ours leaves as it came.

use lb_common::abi::{FlowKey, HANDSHAKE_ANSWERED, STATE_FIN_ENDPOINT, STATE_RST};
use lb_common::wire::eth::{self, Ethernet};
use lb_common::wire::icmp::{self, Icmp};
use lb_common::wire::ipv4::{self, Ipv4};
use lb_common::wire::l4::{self, Ports};
use lb_common::wire::Be16;
use lb_common::{Address, Reason, V4};

use crate::answer::{self, Answer, client_key};
use crate::failover;
use crate::family::{Family, Network, V4Family};
use crate::frame::{Bytes, Checksum, Skb};
use crate::health::{self, Failure};
use crate::packet::Packet;
use crate::place::Place;
use crate::promote;
use crate::transmit::Hop;
use crate::world::{Entry, Slot, World};

/// Decides about a packet that leaves by the uplink. None when it may have to become another
/// packet, which [`failover`] does.
#[inline(always)]
pub fn established<S: Skb, W: World<Addr = V4>>(skb: &mut S, world: &W) -> Option<Reason> {
    let Some((ethernet, net)) = network(skb) else { return Some(Reason::EgressOther) };
    if net.protocol == ipv4::ICMP {
        let error = skb.read::<u8>(net.transport) == Some(icmp::UNREACHABLE);
        return if error { None } else { Some(Reason::EgressOther) };
    }
    let Ok(packet) = Packet::parse(skb, ethernet, net) else {
        return Some(Reason::EgressOther);
    };
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
        return Some(restore(skb, &packet, reverse.vip, reverse.ports));
    }
    let Some(slot) = world.handshakes().find(&key) else {
        // A steered SYN on its way out again: its pod's route is gone.
        let steered = packet.is_syn() && world.handshakes().find(&reversed(&key)).is_some();
        return if steered { None } else { Some(Reason::EgressOther) };
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
    Some(restore(skb, &packet, handshake.vip, handshake.ports.swapped()))
}

/// Carries on where [`established`] could not: refusals, errors, and SYNs without a way.
#[inline(always)]
pub fn failover<S: Skb, W: World<Addr = V4>>(skb: &mut S, world: &W) -> Reason {
    match trouble(skb, world).and_then(|trouble| answer_to(skb, world, &trouble)) {
        Ok(reason) | Err(reason) => reason,
    }
}

/// Why a handshake is in trouble.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cause {
    /// Its endpoint sent a RST.
    Refusal,
    /// An ICMP error about it.
    Error,
    /// Its SYN would leave by the uplink: the pod's route is gone.
    WithoutWay,
}

/// A handshake in trouble.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    cause: Cause,
    /// Its key.
    reply: FlowKey<V4>,
}

#[inline(always)]
fn trouble<S: Skb, W: World<Addr = V4>>(skb: &S, world: &W) -> Result<Trouble, Reason> {
    let (ethernet, net) = network(skb).ok_or(Reason::EgressOther)?;
    if net.protocol == ipv4::ICMP {
        return error(skb, world, &net);
    }
    let packet =
        Packet::parse(skb, ethernet, net).map_err(|_unsound| Reason::EgressOther)?;
    let key = packet.key();
    Ok(if packet.is_syn() {
        Trouble { cause: Cause::WithoutWay, reply: reversed(&key) }
    } else {
        Trouble { cause: Cause::Refusal, reply: key }
    })
}

/// Moves the handshake to the next endpoint; after the last one the client gets the truth.
#[inline(always)]
fn answer_to<S: Skb, W: World<Addr = V4>>(
    skb: &mut S,
    world: &W,
    trouble: &Trouble,
) -> Result<Reason, Reason> {
    let place = failover::next(world, &trouble.reply);
    match (trouble.cause, place.endpoint != 0) {
        (Cause::Refusal | Cause::Error, true) => {
            let hop = failover::way(world, place)?;
            failover::rebuild::<S, V4Family, W>(skb, world, place)?;
            let macs = failover::macs(hop, world.link().mac);
            skb.write(0, macs).ok_or(Reason::HalfEdited)?;
            Ok(go(world, hop))
        }
        (Cause::WithoutWay, true) => without_way(skb, world, place),
        (Cause::Refusal, false) => {
            let (ethernet, net) = network(skb).ok_or(Reason::EgressOther)?;
            let packet = Packet::parse(skb, ethernet, net)?;
            let slot = world.handshakes().find(&trouble.reply).ok_or(Reason::EgressOther)?;
            let handshake = slot.read();
            Ok(restore(skb, &packet, handshake.vip, handshake.ports.swapped()))
        }
        (Cause::Error | Cause::WithoutWay, false) => Err(Reason::SwallowedError),
    }
}

#[inline(always)]
fn network<B: Bytes>(frame: &B) -> Option<(Ethernet, Network<V4>)> {
    let ethernet = frame.read::<Ethernet>(0)?;
    if ethernet.ethertype != eth::IPV4 {
        return None;
    }
    let net = V4Family::parse(frame)?;
    if net.fault.is_some() { None } else { Some((ethernet, net)) }
}

#[inline(always)]
fn reversed<A: Copy>(key: &FlowKey<A>) -> FlowKey<A> {
    FlowKey::new(key.dst, key.src, key.ports.swapped(), key.protocol)
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

/// An ICMP error about a packet that we steered, from the pod or from the node's own stack. It
/// quotes the pod, which the client has never heard of; translated, it would end the connect.
#[inline(always)]
fn error<S: Skb, W: World<Addr = V4>>(
    skb: &S,
    world: &W,
    net: &Network<V4>,
) -> Result<Trouble, Reason> {
    let message = skb.read::<Icmp>(net.transport).ok_or(Reason::EgressOther)?;
    let at = net.transport + icmp::LEN;
    let quoted = skb.read::<Ipv4>(at).ok_or(Reason::EgressOther)?;
    if quoted.src != net.dst || quoted.header_len() != ipv4::MIN_LEN {
        return Err(Reason::EgressOther);
    }
    let ports = skb.read::<Ports>(at + ipv4::MIN_LEN).ok_or(Reason::EgressOther)?;
    let reply = FlowKey::new(quoted.dst, quoted.src, ports.swapped(), quoted.protocol);
    if quoted.protocol == ipv4::UDP {
        return Err(datagram_error(world, &reply, message.code));
    }
    let Some(slot) = world.handshakes().find(&reply) else { return Err(Reason::EgressOther) };
    if slot.read().flags & HANDSHAKE_ANSWERED != 0 {
        return Err(Reason::SwallowedError);
    }
    Ok(Trouble { cause: Cause::Error, reply })
}

/// A UDP endpoint's port is closed: its flow is forgotten, so that the next datagram chooses
/// anew, and the refusal counts.
#[inline(always)]
fn datagram_error<W: World<Addr = V4>>(
    world: &W,
    reply: &FlowKey<V4>,
    code: u8,
) -> Reason {
    let (client, endpoint) = if let Some(slot) = world.reverse().find(reply) {
        let reverse = slot.read();
        let client =
            FlowKey::new(reply.dst, reverse.vip, reverse.ports.swapped(), reply.protocol);
        let Some(flow) = world.flows().find(&client) else { return Reason::EgressOther };
        (client, flow.read().endpoint)
    } else {
        let Some(slot) = world.handshakes().find(reply) else { return Reason::EgressOther };
        let handshake = slot.read();
        (client_key(&handshake, reply.protocol), handshake.endpoint)
    };
    if code == icmp::PORT {
        world.flows().remove(&client);
        world.reverse().remove(reply);
        world.handshakes().remove(reply);
        if let Some(frontend) = failover::frontend_of(world, &client) {
            health::failed(world, &frontend, endpoint, client.src.fold(), Failure::Refused);
        }
    }
    Reason::SwallowedError
}

/// A steered SYN that would leave by the uplink: addressed anew, in place, for its checksum may
/// be unfinished.
#[inline(always)]
fn without_way<S: Skb, W: World<Addr = V4>>(
    skb: &mut S,
    world: &W,
    place: Place,
) -> Result<Reason, Reason> {
    let (ethernet, net) = network(skb).ok_or(Reason::EgressOther)?;
    let packet = Packet::parse(skb, ethernet, net)?;
    let hop = failover::way(world, place)?;
    let endpoint = world.endpoint(place.endpoint).ok_or(Reason::NoNextHop)?;
    let source = if hop.ifindex == 0 { packet.net.src } else { world.config().snat };
    let transport = Checksum { offset: packet.checksum_at, udp: false };
    let header_checksum = eth::LEN + ipv4::CHECKSUM_OFFSET;
    let src = eth::LEN + ipv4::SRC_OFFSET;
    skb.replace_address(src, header_checksum, transport, packet.net.src, source)
        .and_then(|()| {
            let dst = src + 4;
            skb.replace_address(dst, header_checksum, transport, packet.net.dst, endpoint.address)
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
        .and_then(|()| skb.write(0, failover::macs(hop, world.link().mac)))
        .ok_or(Reason::HalfEdited)?;
    Ok(go(world, hop))
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
) -> Reason {
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
