//! Packets of flows that are known: rewritten from the flow's entry alone.
//!
//! The hot path. One look at a clock, one compare to skip the stamp, no second hash lookup; only
//! a FIN, a RST or a flow in a special state takes the long way. It must not decide anything a
//! new connection decides: an established flow never moves.

use lb_common::Reason;
use lb_common::abi::{
    Flow, FlowKey, Kind, STATE_FIN_CLIENT, STATE_FIN_ENDPOINT, STATE_GONE, STATE_PARTIAL,
    STATE_REOPENED, STATE_RST,
};
use lb_common::wire::l4;

use crate::family::{Family, Hop};
use crate::frame::Frame;
use crate::packet::Packet;
use crate::promote;
use crate::rewrite::{self, ChecksumKind, Edit, Way};
use crate::transmit::{self, Names};
use crate::world::{Entry, Slot, World};

/// Names of what happens to packets of established flows.
pub const NAT: Names = Names {
    transmit: Reason::FlowNat,
    redirect: Reason::FlowNatRedirect,
};
/// The same for replies.
pub const NAT_REPLY: Names = Names {
    transmit: Reason::ReplyNat,
    redirect: Reason::ReplyNatRedirect,
};

/// Forwards a packet of a known flow. None for the ACK that completes another handshake (the flow
/// stays until then), and for a flow whose endpoint is gone.
#[inline(always)]
pub fn forward<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    packet: &Packet<N::Addr>,
    slot: &impl Slot<Flow<N::Addr>>,
) -> Option<Reason> {
    let flow = slot.read();
    if flow.state & !STATE_PARTIAL != 0 || packet.flags & (l4::SYN | l4::FIN | l4::RST) != 0 {
        let reopened = flow.state & STATE_REOPENED != 0;
        // A RST is the end of it: handed on, it is one that the other side accepts.
        let gone = flow.state & STATE_GONE != 0 && packet.flags & l4::RST == 0;
        if gone || reopened && promote::completes(world, packet) {
            return None;
        }
        follow_state::<N, W>(world, packet, slot, &flow);
    }
    let tick = world.tick();
    if flow.seen != tick {
        slot.update(|flow| {
            flow.seen = tick;
            flow.ack = packet.ack;
        });
        if flow.kind == Kind::NatReply as u8
            && !packet.is_tcp()
            && let Some(partner) = world.flows().find(&partner(&flow, packet.net.protocol))
        {
            partner.update(|partner| partner.replied = tick);
        }
    }
    match send::<F, N, W>(frame, world, packet, slot, &flow) {
        Ok(reason) | Err(reason) => Some(reason),
    }
}

/// Rewrites and sends a packet by a flow's entry.
#[inline(always)]
pub fn send<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    packet: &Packet<N::Addr>,
    slot: &impl Slot<Flow<N::Addr>>,
    flow: &Flow<N::Addr>,
) -> Result<Reason, Reason> {
    let edit = Edit {
        src: flow.src,
        dst: flow.dst,
        ports: flow.ports,
        address_delta: flow.address_delta,
        port_delta: flow.port_delta,
    };
    let link = world.link();
    let known_partial = flow.state & STATE_PARTIAL != 0;
    let kind = rewrite::kind_of(frame, link, packet, known_partial);
    if (kind == ChecksumKind::Partial) != known_partial {
        slot.update(|flow| flow.state ^= STATE_PARTIAL);
    }
    match Kind::from_u8(flow.kind) {
        Kind::Local => {
            let sum = rewrite::checksum_after(frame, link, packet, &edit, kind, Way::Pass)?;
            rewrite::apply::<F, N>(frame, packet, &edit, sum, Hop::Left)?;
            Ok(Reason::FlowLocal)
        }
        Kind::Nat => {
            let hop = next_hop(world, flow.endpoint)?;
            send_out::<F, N, W>(frame, world, packet, &edit, kind, hop, NAT)
        }
        Kind::NatReply => {
            let hop = transmit::Hop {
                ifindex: flow.ifindex,
                next: flow.mac,
                own: link.mac,
            };
            send_out::<F, N, W>(frame, world, packet, &edit, kind, hop, NAT_REPLY)
        }
    }
}

/// The resolved next hop towards a `Nat` endpoint.
#[inline(always)]
pub fn next_hop<W: World>(world: &W, endpoint: u32) -> Result<transmit::Hop, Reason> {
    let endpoint = world.endpoint(endpoint).ok_or(Reason::NoNextHop)?;
    if endpoint.ifindex == 0 {
        return Err(Reason::NoNextHop);
    }
    Ok(transmit::Hop {
        ifindex: endpoint.ifindex,
        next: endpoint.next_hop,
        own: endpoint.own_mac,
    })
}

/// Rewrites a packet and sends it as a router does: one hop less to live.
#[inline(always)]
pub fn send_out<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    packet: &Packet<N::Addr>,
    edit: &Edit<N::Addr>,
    kind: ChecksumKind,
    hop: transmit::Hop,
    names: Names,
) -> Result<Reason, Reason> {
    if packet.net.ttl <= 1 {
        return Err(Reason::TtlExceeded);
    }
    let link = world.link();
    let sum = rewrite::checksum_after(frame, link, packet, edit, kind, Way::Send)?;
    rewrite::apply::<F, N>(frame, packet, edit, sum, Hop::Counted)?;
    transmit::send(frame, world, link, hop, names)
}

/// Key of the other direction's entry.
#[inline(always)]
pub fn partner<A: Copy>(flow: &Flow<A>, protocol: u8) -> FlowKey<A> {
    FlowKey::new(flow.dst, flow.src, flow.ports.swapped(), protocol)
}

/// What one direction's entry alone knows.
const OF_ONE_WAY: u8 = STATE_PARTIAL | STATE_REOPENED;

/// Notes FIN and RST in both directions' entries; a later packet takes a RST back, for the
/// receiver may have ignored it.
#[inline(always)]
fn follow_state<N: Family, W: World<Addr = N::Addr>>(
    world: &W,
    packet: &Packet<N::Addr>,
    slot: &impl Slot<Flow<N::Addr>>,
    flow: &Flow<N::Addr>,
) {
    let from_endpoint = flow.kind == Kind::NatReply as u8;
    let fin = if from_endpoint {
        STATE_FIN_ENDPOINT
    } else {
        STATE_FIN_CLIENT
    };
    let mut state = flow.state & !STATE_RST;
    if packet.flags & l4::RST != 0 {
        state |= STATE_RST;
    }
    if packet.flags & l4::FIN != 0 {
        state |= fin;
    }
    if state == flow.state {
        return;
    }
    slot.update(|flow| flow.state = state);
    if flow.kind != Kind::Local as u8
        && let Some(other) = world.flows().find(&partner(flow, packet.net.protocol))
    {
        other.update(|other| {
            other.state = (other.state & OF_ONE_WAY) | (state & !OF_ONE_WAY);
        });
    }
}
