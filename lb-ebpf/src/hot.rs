//! The hot path: packets that are not ours, and plain packets of established flows.
//!
//! It does what [`crate::flow`] does, for packets of which nothing special can be seen: no IP
//! options, no SYN, FIN or RST, a flow in its usual state, a checksum that need not be summed. Any
//! other it leaves untouched to the stages behind it, so it may decide nothing that they would
//! decide otherwise. Every value is read where it is used, from the packet or the flow's entry,
//! even twice: on a machine of ten registers, what is kept across a lookup goes to the stack.

use lb_common::abi::{Flow, FlowKey, Kind, LINK_GENERIC, LINK_VIRTUAL, STATE_PARTIAL};
use lb_common::wire::l4::{self, Ports, Tcp, Udp};
use lb_common::wire::{Be16, eth, ipv4};
use lb_common::{Address, Reason, checksum};

use crate::family::{Family, Hop, Network};
use crate::flow::{NAT, NAT_REPLY};
use crate::frame::Frame;
use crate::pipeline::Rest;
use crate::transmit::Names;
use crate::world::{Entry, Slot, World};

/// A packet of the family.
#[inline(always)]
pub fn packet<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
) -> Result<Reason, Rest> {
    let Some(dst) = N::destination(frame) else {
        return Ok(Reason::TooShort);
    };
    if !world.in_bitmap(dst) {
        return Ok(Reason::NotOurs);
    }
    let (Some(start), Some(end)) = (frame.read::<u32>(0), frame.read::<u16>(4)) else {
        return Ok(Reason::TooShort);
    };
    if (start, end) != world.link_mac().pieces() {
        return Ok(Reason::OtherStation);
    }
    let net = N::plain(frame).ok_or(Rest::Closer)?;
    match net.protocol {
        ipv4::TCP => segment::<F, N, W>(frame, world, &net),
        ipv4::UDP => datagram::<F, N, W>(frame, world, &net),
        _ => Err(Rest::Closer),
    }
}

#[inline(always)]
fn segment<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    net: &Network<N::Addr>,
) -> Result<Reason, Rest> {
    let tcp = frame.read::<Tcp>(net.transport).ok_or(Rest::Closer)?;
    let header_len = tcp.header_len();
    if header_len < l4::TCP_LEN || header_len > net.payload_len {
        return Err(Rest::Closer);
    }
    if tcp.flags & (l4::SYN | l4::ACK | l4::RST) == l4::SYN {
        // It opens a connection of its own, whatever flow there is.
        return Err(Rest::Unknown);
    }
    let partial = is_partial::<N, W>(world, net, tcp.checksum);
    let slot = world
        .flows()
        .find(&key(net, tcp.ports))
        .ok_or(Rest::Unknown)?;
    let tcp = frame.read::<Tcp>(net.transport).ok_or(Rest::Closer)?;
    if tcp.flags & (l4::SYN | l4::FIN | l4::RST) != 0 || is_special(&slot, partial) {
        return Err(Rest::Closer);
    }
    let tick = world.tick();
    if slot.get(|flow| flow.seen) != tick {
        slot.update(|flow| {
            flow.seen = tick;
            flow.ack = tcp.ack;
        });
    }
    let checksum_at = net.transport + l4::TCP_CHECKSUM;
    Ok(forward::<F, N, W>(
        frame,
        world,
        checksum_at,
        partial,
        &slot,
    ))
}

#[inline(always)]
fn datagram<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    net: &Network<N::Addr>,
) -> Result<Reason, Rest> {
    let udp = frame.read::<Udp>(net.transport).ok_or(Rest::Closer)?;
    if net.payload_len < l4::UDP_LEN || udp.checksum.word() == 0 {
        return Err(Rest::Closer);
    }
    let partial = is_partial::<N, W>(world, net, udp.checksum);
    let slot = world
        .flows()
        .find(&key(net, udp.ports))
        .ok_or(Rest::Unknown)?;
    let stale = slot.get(|flow| flow.seen) != world.tick();
    if stale || is_special(&slot, partial) {
        return Err(Rest::Closer);
    }
    let checksum_at = net.transport + l4::UDP_CHECKSUM;
    Ok(forward::<F, N, W>(
        frame,
        world,
        checksum_at,
        partial,
        &slot,
    ))
}

#[inline(always)]
fn key<A: Address>(net: &Network<A>, ports: Ports) -> FlowKey<A> {
    FlowKey::new(net.src, net.dst, ports, net.protocol)
}

/// True for a checksum that may be the pseudo-header's sum only, on a link that has such.
#[inline(always)]
fn is_partial<N: Family, W: World<Addr = N::Addr>>(
    world: &W,
    net: &Network<N::Addr>,
    field: Be16,
) -> bool {
    world.link_flags() & (LINK_VIRTUAL | LINK_GENERIC) != 0
        && field.word() == checksum::pseudo(net.src, net.dst, net.protocol, net.payload_len as u16)
}

/// True unless the flow is in the state that nearly all are in. A checksum that may be partial
/// must be known to be, and then the node's stack must be the one to finish it.
#[inline(always)]
fn is_special<A: Copy>(slot: &impl Slot<Flow<A>>, partial: bool) -> bool {
    let (state, kind) = slot.get(|flow| (flow.state, flow.kind));
    if partial {
        state != STATE_PARTIAL || kind != Kind::Local as u8
    } else {
        state != 0
    }
}

#[inline(always)]
fn forward<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    checksum_at: usize,
    partial: bool,
    slot: &impl Slot<Flow<N::Addr>>,
) -> Reason {
    let reason = match Kind::from_u8(slot.get(|flow| flow.kind)) {
        Kind::Local => rewrite::<F, N>(frame, checksum_at, partial, slot, Hop::Left)
            .map(|()| Reason::FlowLocal),
        Kind::Nat => match world.endpoint_slot(slot.get(|flow| flow.endpoint)) {
            None => Err(Reason::NoNextHop),
            Some(endpoint) => {
                let ifindex = endpoint.get(|endpoint| endpoint.ifindex);
                let macs = || endpoint.get(|to| (to.next_hop.pieces(), to.own_mac.pieces()));
                send::<F, N, W>(frame, world, checksum_at, slot, (ifindex, macs), NAT)
            }
        },
        Kind::NatReply => {
            let ifindex = slot.get(|flow| flow.ifindex);
            let macs = || {
                (
                    slot.get(|flow| flow.mac.pieces()),
                    world.link_mac().pieces(),
                )
            };
            send::<F, N, W>(frame, world, checksum_at, slot, (ifindex, macs), NAT_REPLY)
        }
    };
    match reason {
        Ok(reason) | Err(reason) => reason,
    }
}

/// A hardware address in pieces.
type Pieces = (u32, u16);

#[inline(always)]
fn send<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    checksum_at: usize,
    slot: &impl Slot<Flow<N::Addr>>,
    (ifindex, macs): (u32, impl FnOnce() -> (Pieces, Pieces)),
    names: Names,
) -> Result<Reason, Reason> {
    let net = N::fixed(frame).ok_or(Reason::TooShort)?;
    if ifindex == 0 {
        return Err(Reason::NoNextHop);
    }
    if net.ttl <= 1 {
        return Err(Reason::TtlExceeded);
    }
    let ((to, to_end), (from, from_end)) = macs();
    frame
        .write(0, to)
        .and_then(|()| frame.write(4, to_end))
        .and_then(|()| frame.write(eth::SRC_OFFSET, from))
        .and_then(|()| frame.write(eth::SRC_OFFSET + 4, from_end))
        .ok_or(Reason::HalfEdited)?;
    rewrite::<F, N>(frame, checksum_at, false, slot, Hop::Counted)?;
    if ifindex == world.link_index() {
        return Ok(names.transmit);
    }
    world.redirect(ifindex);
    Ok(names.redirect)
}

/// Gives the packet its new tuple.
#[inline(always)]
fn rewrite<F: Frame, N: Family>(
    frame: &mut F,
    checksum_at: usize,
    partial: bool,
    slot: &impl Slot<Flow<N::Addr>>,
    hop: Hop,
) -> Result<(), Reason> {
    let transport = eth::LEN + N::HEADER_LEN;
    let address_delta = slot.get(|flow| flow.address_delta);
    let old = frame
        .read::<Be16>(checksum_at)
        .ok_or(Reason::HalfEdited)?
        .word();
    let sum = if partial {
        checksum::update_partial(old, address_delta)
    } else {
        checksum::update_twice(old, address_delta, slot.get(|flow| flow.port_delta))
    };
    // Zero means "none" in UDP: its other representation is sent (RFC 768).
    let udp = checksum_at == transport + l4::UDP_CHECKSUM;
    let sum = if udp && sum == 0 { 0xffff } else { sum };
    frame
        .write(checksum_at, Be16::from_word(sum))
        .and_then(|()| frame.write(transport, slot.get(|flow| flow.ports)))
        .and_then(|()| {
            let net = N::fixed(frame)?;
            let (src, dst) = slot.get(|flow| (flow.src, flow.dst));
            N::rewrite(frame, &net, src, dst, address_delta, hop)
        })
        .ok_or(Reason::HalfEdited)
}
