//! A handshake becomes a flow: for TCP when the client acknowledges the endpoint's own sequence
//! number, for UDP when the endpoint has answered. Nothing that a client alone can send, or an
//! endpoint alone, pins an entry.

use lb_common::Reason;
use lb_common::abi::{
    Answered, Endpoint, Flow, FlowKey, HANDSHAKE_REFUSED, Handshake, Kind, Reverse, State,
};
use lb_common::wire::l4::{self, Ports};
use lb_common::wire::{Be32, Mac};

use crate::answer::client_key;
use crate::flow::partner;
use crate::packet::Packet;
use crate::pipeline::Decision;
use crate::refuse::Why;
use crate::rewrite::Edit;
use crate::world::{Entry, Inserted, Slot, World};

/// The middle of a TCP connection without a flow: the client's ACK that completes a handshake,
/// or nobody's packet, which is refused.
#[inline(always)]
pub fn acknowledgement<W: World>(world: &W, packet: &Packet<W::Addr>) -> Result<Decision, Reason> {
    let key = &packet.key();
    let Some(answered) = answered(world, packet) else {
        return Ok(Decision::refuse(Why::UnknownFlow));
    };
    if packet.eth.src.is_group() {
        // Replies of full NAT would go there.
        return Err(Reason::BadSource);
    }
    let endpoint = world.endpoint(answered.endpoint);
    let state = endpoint.map_or(State::Unused, |endpoint| State::from_u8(endpoint.state));
    if state == State::Gone || state == State::Unused {
        return Ok(Decision::refuse(Why::Gone));
    }
    let way = ClientWay {
        ifindex: world.link().ifindex,
        mac: packet.eth.src,
        ack: packet.ack,
        seq: packet.seq,
    };
    match install(world, key, &answered, way) {
        Ok(()) => {
            world.answered().remove(key);
            Ok(Decision::FORWARD)
        }
        Err(Reason::TableFull) => Ok(Decision::refuse(Why::TableFull)),
        Err(reason) => Err(reason),
    }
}

/// True for the ACK that completes a handshake.
#[inline(always)]
pub fn completes<W: World>(world: &W, packet: &Packet<W::Addr>) -> bool {
    answered(world, packet).is_some()
}

/// The handshake that this packet completes.
#[inline(always)]
fn answered<W: World>(world: &W, packet: &Packet<W::Addr>) -> Option<Answered> {
    let acknowledges = packet.flags & (l4::ACK | l4::RST) == l4::ACK;
    let answered = world.answered().find(&packet.key())?.read();
    (acknowledges && packet.ack == answered.ack).then_some(answered)
}

/// A UDP endpoint has answered.
#[inline(always)]
pub fn datagram<W: World>(
    world: &W,
    handshake: &Handshake<W::Addr>,
    reply: &FlowKey<W::Addr>,
) -> Result<(), Reason> {
    if handshake.flags & HANDSHAKE_REFUSED != 0 {
        // Its port was closed, and the client has gone elsewhere.
        return Err(Reason::AnswerTooLate);
    }
    let answered = Answered {
        endpoint: handshake.endpoint,
        frontend: handshake.frontend,
        ack: Be32::new(0),
        isn: Be32::new(0),
        reply_ports: reply.ports,
        seen: world.tick(),
    };
    let way = ClientWay {
        ifindex: handshake.ifindex,
        mac: handshake.mac,
        ack: Be32::new(0),
        seq: Be32::new(0),
    };
    install(
        world,
        &client_key(handshake, reply.protocol),
        &answered,
        way,
    )
}

/// How replies reach the client.
#[derive(Clone, Copy, Debug)]
struct ClientWay {
    ifindex: u32,
    mac: Mac,
    ack: Be32,
    /// What the endpoint is to acknowledge next.
    seq: Be32,
}

/// Writes both directions' entries and takes the handshake out. All or nothing. A flow that is
/// replaced takes its other direction along, which no sweep would find.
#[inline(always)]
fn install<W: World>(
    world: &W,
    key: &FlowKey<W::Addr>,
    answered: &Answered,
    way: ClientWay,
) -> Result<(), Reason> {
    let endpoint: Endpoint<W::Addr> = world.endpoint(answered.endpoint).ok_or(Reason::NoNextHop)?;
    let kind = Kind::from_u8(endpoint.via);
    let source = if kind == Kind::Local {
        key.src
    } else {
        world.config().snat
    };
    let ports = Ports {
        src: answered.reply_ports.dst,
        dst: answered.reply_ports.src,
    };
    let tick = world.tick();
    let reply_key = FlowKey::new(endpoint.address, source, answered.reply_ports, key.protocol);
    let forward = Edit::between(
        (key.src, key.dst, key.ports),
        (source, endpoint.address, ports),
    );
    let entry = |edit: &Edit<W::Addr>, kind: Kind, ack: Be32| Flow {
        src: edit.src,
        dst: edit.dst,
        ports: edit.ports,
        address_delta: edit.address_delta,
        port_delta: edit.port_delta,
        endpoint: answered.endpoint,
        frontend: answered.frontend,
        seen: tick,
        replied: tick,
        ack,
        ifindex: way.ifindex,
        mac: way.mac,
        kind: kind as u8,
        state: 0,
    };
    if kind == Kind::Local {
        let reverse = Reverse {
            vip: key.dst,
            ports: key.ports.swapped(),
            seen: tick,
        };
        match world.reverse().insert_new(&reply_key, &reverse) {
            Inserted::Yes => {}
            Inserted::Full => return Err(Reason::TableFull),
            Inserted::Exists => {
                let same = world.reverse().find(&reply_key).is_some_and(|slot| {
                    let holder = slot.read();
                    holder.vip == reverse.vip && holder.ports == reverse.ports
                });
                if !same {
                    return Err(Reason::TupleTaken);
                }
            }
        }
    } else {
        let back = Edit::between(
            (endpoint.address, source, answered.reply_ports),
            (key.dst, key.src, key.ports.swapped()),
        );
        if world
            .flows()
            .insert(&reply_key, &entry(&back, Kind::NatReply, way.seq))
            != Inserted::Yes
        {
            return Err(Reason::TableFull);
        }
    }
    let replaced = world.flows().find(key).map(|slot| {
        let old = slot.read();
        (partner(&old, key.protocol), Kind::from_u8(old.kind))
    });
    if world.flows().insert(key, &entry(&forward, kind, way.ack)) != Inserted::Yes {
        if kind == Kind::Local {
            world.reverse().remove(&reply_key);
        } else {
            world.flows().remove(&reply_key);
        }
        return Err(Reason::TableFull);
    }
    if let Some((old_key, old_kind)) = replaced
        && (old_key != reply_key || old_kind != kind)
    {
        if old_kind == Kind::Local {
            world.reverse().remove(&old_key);
        } else {
            world.flows().remove(&old_key);
        }
    }
    world.handshakes().remove(&reply_key);
    Ok(())
}
