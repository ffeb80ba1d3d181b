//! The first packet of a connection: choose an endpoint, remember the attempt, send it on.
//!
//! One entry is written, keyed by the reply that is waited for. A SYN that was seen before goes
//! where it went; elsewhere only when it drew no SYN-ACK for a while, at most three endpoints in
//! all. A reply tuple that another connection holds is never shared: the next endpoint takes it,
//! and when all are taken the client's port is rewritten.

use lb_common::Reason;
use lb_common::abi::{
    Affinity, AffinityKey, Frontend, HANDSHAKE_ECN, Handshake, Kind, SourceRange,
};
use lb_common::wire::l4::{self, Ports};
use lb_common::wire::{Be16, Be32};

use crate::family::{Family, Hop};
use crate::flow::{next_hop, send_out};
use crate::frame::{Bytes, Frame};
use crate::packet::Packet;
use crate::pipeline::Decision;
use crate::place::Place;
use crate::refuse::check_source as check_possible;
use crate::rewrite::{self, Edit, Way};
use crate::transmit::Names;
use crate::world::{Entry, Slot, World};

const NEW: Names = Names {
    transmit: Reason::NewNat,
    redirect: Reason::NewNatRedirect,
};
const REPEATED: Names = Names {
    transmit: Reason::RepeatedSynNat,
    redirect: Reason::RepeatedSynNatRedirect,
};

/// Drops a client outside the frontend's source ranges.
#[inline(always)]
pub fn check_source<W: World>(
    world: &W,
    frontend: &Frontend,
    packet: &Packet<W::Addr>,
) -> Result<(), Reason> {
    check_possible(world, packet.eth, &packet.net)?;
    let range = SourceRange {
        frontend: frontend.id.to_be(),
        client: packet.net.src,
    };
    if frontend.source_ranges != 0 && !world.source_allowed(range) {
        return Err(Reason::SourceRange);
    }
    Ok(())
}

/// Draws the connection up for its endpoint to be found.
#[inline(always)]
pub fn open<B: Bytes, W: World>(
    frame: &B,
    world: &W,
    packet: &Packet<W::Addr>,
    frontend: &Frontend,
) -> Result<Decision, Reason> {
    world
        .with_draft(|draft| {
            draw_up(&mut draft.handshake, frame, world, packet, frontend);
            draft.frontend = *frontend;
            draft.protocol = u32::from(packet.net.protocol);
        })
        .ok_or(Reason::HandshakeTable)?;
    Ok(Decision::settle(sticky_endpoint(world, frontend, packet)))
}

/// Carries out [`Step::Settle`](crate::pipeline::Step::Settle): rewrites the packet for its endpoint and sends it.
#[inline(always)]
pub fn send<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    packet: &Packet<N::Addr>,
    place: Place,
) -> Result<Reason, Reason> {
    let id = place.endpoint;
    let affinity = world
        .with_draft(|draft| draft.frontend.affinity)
        .unwrap_or(0);
    let endpoint = world.endpoint(id).ok_or(Reason::NoNextHop)?;
    if affinity != 0 {
        let key = AffinityKey {
            frontend: endpoint.frontend,
            client: packet.net.src,
        };
        world.affinity().insert(
            &key,
            &Affinity {
                endpoint: id,
                seen: world.tick(),
            },
        );
    }
    let local = Kind::from_u8(endpoint.via) == Kind::Local;
    let source = if local {
        packet.net.src
    } else {
        world.config().snat
    };
    let ports = Ports {
        src: place.source_port,
        dst: Be16::new(endpoint.port),
    };
    let edit = Edit::between(
        (packet.net.src, packet.net.dst, packet.ports),
        (source, endpoint.address, ports),
    );
    let kind = rewrite::kind_of(frame, world.link(), packet, false);
    if local {
        let sum = rewrite::checksum_after(frame, world.link(), packet, &edit, kind, Way::Pass)?;
        rewrite::apply::<F, N>(frame, packet, &edit, sum, Hop::Left)?;
        return Ok(if place.repeated {
            Reason::RepeatedSyn
        } else {
            Reason::NewLocal
        });
    }
    let names = if place.repeated { REPEATED } else { NEW };
    let hop = next_hop(world, id)?;
    send_out::<F, N, W>(frame, world, packet, &edit, kind, hop, names)
}

/// The endpoint a client with affinity went to last, while that counts.
#[inline(always)]
fn sticky_endpoint<W: World>(world: &W, frontend: &Frontend, packet: &Packet<W::Addr>) -> u32 {
    if frontend.affinity == 0 {
        return 0;
    }
    let key = AffinityKey {
        frontend: frontend.id,
        client: packet.net.src,
    };
    let Some(slot) = world.affinity().find(&key) else {
        return 0;
    };
    let sticky = slot.read();
    if world.tick().wrapping_sub(sticky.seen) > frontend.affinity {
        0
    } else {
        sticky.endpoint
    }
}

/// Notes what a failover needs to repeat this packet elsewhere.
#[inline(always)]
fn draw_up<B: Bytes, W: World>(
    draft: &mut Handshake<W::Addr>,
    frame: &B,
    world: &W,
    packet: &Packet<W::Addr>,
    frontend: &Frontend,
) {
    draft.vip = packet.net.dst;
    draft.client = packet.net.src;
    draft.ports = packet.ports;
    draft.isn = packet.seq;
    draft.ack = Be32::new(0);
    draft.started = world.millis();
    draft.endpoint = 0;
    draft.frontend = frontend.id;
    draft.ifindex = world.link().ifindex;
    draft.tried = [0; 2];
    draft.mac = packet.eth.src;
    draft.window = packet.window;
    draft.tos = packet.net.tos;
    draft.ttl = packet.net.ttl;
    draft.flags = packet.flags & HANDSHAKE_ECN;
    draft.option_words = 0;
    if !packet.is_tcp() {
        return;
    }
    // Options beyond `option_words` are left from another packet; nobody reads them.
    let words = packet.header_len.saturating_sub(l4::TCP_LEN) / 4;
    let at = packet.net.transport + l4::TCP_LEN;
    draft.option_words = words as u8;
    for (index, option) in draft.options.iter_mut().enumerate() {
        if index >= words {
            break;
        }
        let Some(four) = frame.read::<u32>(at + index * 4) else {
            break;
        };
        *option = four;
    }
}
