//! A UDP endpoint's port is closed, as its own ICMP error says: its flow is forgotten, and the
//! client's next datagram goes to another endpoint.
//!
//! The table would choose the same endpoint again, so the exchange's handshake stays behind, marked:
//! the endpoint is passed over for this client, for a while, as long as there is another. The
//! error itself is swallowed: it quotes the endpoint, which the client must never hear of.

use lb_common::abi::{FlowKey, HANDSHAKE_REFUSED, Kind};
use lb_common::wire::{Be32, icmp, ipv4};
use lb_common::{Address, Mac, Reason};

use crate::answer::client_key;
use crate::failover;
use crate::family::{Family, Network, Quoted};
use crate::flow::partner;
use crate::frame::Bytes;
use crate::health::Failure;
use crate::world::{Entry, Slot, World};

/// An ICMP error that came for the SNAT address. It must be the endpoint's own.
#[inline(always)]
pub fn from_wire<B: Bytes, N: Family, W: World<Addr = N::Addr>>(
    frame: &B,
    world: &W,
    net: &Network<N::Addr>,
) -> Result<Reason, Reason> {
    let quoted = N::quoted(frame, net).ok_or(Reason::NotOurs)?;
    let about_udp = quoted.sent.protocol == ipv4::UDP && quoted.code == icmp::PORT;
    if about_udp && net.src == quoted.sent.dst && note(world, &quoted) {
        Err(Reason::SwallowedError)
    } else {
        Err(Reason::NotOurs)
    }
}

/// Takes note of an error about a datagram; false when the datagram was none of ours.
#[inline(always)]
pub fn note<W: World>(world: &W, quoted: &Quoted<W::Addr>) -> bool {
    let sent = &quoted.sent;
    let reply = &FlowKey::new(sent.dst, sent.src, sent.ports.swapped(), sent.protocol);
    let Some((client, endpoint)) = exchange(world, reply) else {
        return false;
    };
    if quoted.code == icmp::PORT {
        world.flows().remove(&client);
        world.flows().remove(reply);
        world.reverse().remove(reply);
        leave_mark(world, reply, &client, endpoint);
        if let Some(frontend) = failover::frontend_of(world, &client) {
            world.with_draft(|draft| draft.frontend = frontend);
            world.failed(endpoint, client.src.fold(), Failure::Refused);
        }
    }
    true
}

/// The client's tuple and the endpoint of an exchange, by its reply tuple.
#[inline(always)]
fn exchange<W: World>(world: &W, reply: &FlowKey<W::Addr>) -> Option<(FlowKey<W::Addr>, u32)> {
    if let Some(slot) = world.reverse().find(reply) {
        let reverse = slot.read();
        let ports = reverse.ports.swapped();
        let client = FlowKey::new(reply.dst, reverse.vip, ports, reply.protocol);
        return Some((client, world.flows().find(&client)?.read().endpoint));
    }
    if let Some(slot) = world.flows().find(reply) {
        let flow = slot.read();
        let ours = flow.kind == Kind::NatReply as u8;
        return ours.then(|| (partner(&flow, reply.protocol), flow.endpoint));
    }
    let handshake = world.handshakes().find(reply)?.read();
    Some((client_key(&handshake, reply.protocol), handshake.endpoint))
}

#[inline(always)]
fn leave_mark<W: World>(
    world: &W,
    reply: &FlowKey<W::Addr>,
    client: &FlowKey<W::Addr>,
    endpoint: u32,
) {
    world.with_draft(|draft| {
        let mark = &mut draft.handshake;
        mark.vip = client.dst;
        mark.client = client.src;
        mark.ports = client.ports;
        mark.isn = Be32::new(0);
        mark.ack = Be32::new(0);
        mark.started = world.millis();
        mark.endpoint = endpoint;
        mark.frontend = 0;
        mark.ifindex = 0;
        mark.tried = [0; 2];
        mark.mac = Mac([0; 6]);
        mark.flags = HANDSHAKE_REFUSED;
        mark.option_words = 0;
        world.handshakes().insert(reply, mark);
    });
}
