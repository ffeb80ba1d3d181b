//! The first packet of a connection: choose an endpoint, remember the attempt, send it on.
//!
//! One entry is written, keyed by the reply that is waited for. A SYN that was seen before goes
//! where it went; elsewhere only when it drew no SYN-ACK for a while, at most three endpoints in
//! all. A reply tuple that another connection holds is never shared: the next endpoint takes it,
//! and when all are taken the client's port is rewritten.

use lb_common::abi::{
    Affinity, AffinityKey, Endpoint, FlowKey, Frontend, HANDSHAKE_ANSWERED, Handshake, Kind,
    SourceRange,
};
use lb_common::wire::l4::{self, Ports};
use lb_common::wire::{Be16, Be32};
use lb_common::{Address, Reason, limits};

use crate::candidates;
use crate::family::{Family, Hop};
use crate::flow::{next_hop, send_out};
use crate::frame::{Bytes, Frame};
use crate::nat;
use crate::packet::Packet;
use crate::pipeline::Decision;
use crate::refuse::Why;
use crate::rewrite::{self, Edit, Way};
use crate::transmit::Names;
use crate::world::{Entry, Inserted, Slot, World};

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
    if !packet.net.src.is_unicast() || packet.net.src == packet.net.dst {
        return Err(Reason::BadSource);
    }
    let range = SourceRange {
        frontend: frontend.id.to_be(),
        client: packet.net.src,
    };
    if frontend.source_ranges != 0 && !world.source_allowed(range) {
        return Err(Reason::SourceRange);
    }
    Ok(())
}

/// What became of one candidate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Offer {
    /// A new attempt, under this source port.
    New(Be16),
    /// The attempt stands already, under this source port.
    Repeated(Be16),
    /// Try the next one; if there is none, for this reason.
    Next(Reason),
}

/// Finds the endpoint for the first packet of a connection, and remembers the attempt.
#[inline(always)]
pub fn open<B: Bytes, W: World>(
    frame: &B,
    world: &W,
    packet: &Packet<W::Addr>,
    frontend: &Frontend,
) -> Result<Decision, Reason> {
    let placed = world
        .with_draft(|draft| place(frame, world, packet, frontend, draft))
        .unwrap_or(Err(Reason::HandshakeTable));
    let place = match placed {
        Ok(place) => place,
        Err(Reason::RefusedNoEndpoint) => return Ok(Decision::Refuse(Why::NoEndpoint)),
        Err(reason) => return Err(reason),
    };
    if frontend.affinity != 0 {
        let key = AffinityKey {
            frontend: frontend.id,
            client: packet.net.src,
        };
        world.affinity().insert(
            &key,
            &Affinity {
                endpoint: place.endpoint,
                seen: world.tick(),
            },
        );
    }
    Ok(Decision::Open(place))
}

/// Where a connection goes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Endpoint id.
    pub endpoint: u32,
    /// The source port that the endpoint sees.
    pub source_port: Be16,
    /// True when the packet was seen before.
    pub repeated: bool,
}

/// Offers the connection to its candidates, in order, until one has it. The last round is for
/// a tuple that is taken everywhere: the first endpoint again, under a port of ours.
#[inline(always)]
fn place<B: Bytes, W: World>(
    frame: &B,
    world: &W,
    packet: &Packet<W::Addr>,
    frontend: &Frontend,
    draft: &mut Handshake<W::Addr>,
) -> Result<Place, Reason> {
    let sticky = sticky_endpoint(world, frontend, packet);
    let candidates = candidates::of(world, frontend, packet, sticky);
    draw_up(draft, frame, world, packet, frontend);
    let mut reason = Reason::RefusedNoEndpoint;
    let mut tries = 0;
    for round in 0..=ROUNDS {
        let port = if round == ROUNDS {
            Port::Rewritten
        } else {
            Port::Own
        };
        let id = match port {
            Port::Own => candidates.id(round),
            Port::Rewritten if reason == Reason::TupleTaken => draft.endpoint,
            Port::Rewritten => break,
        };
        if port == Port::Own && (tries >= limits::MAX_CANDIDATES || id == sticky && round != 0) {
            continue;
        }
        let Some(endpoint) = candidates::usable(world, frontend, id) else {
            continue;
        };
        draft.endpoint = id;
        match offer(world, packet, &endpoint, candidates.hash, draft, port) {
            Offer::New(source_port) => {
                return Ok(Place {
                    endpoint: id,
                    source_port,
                    repeated: false,
                });
            }
            Offer::Repeated(source_port) => {
                return Ok(Place {
                    endpoint: id,
                    source_port,
                    repeated: true,
                });
            }
            Offer::Next(why) => reason = why,
        }
        draft.tried = [id, draft.tried[0]];
        tries += 1;
    }
    Err(reason)
}

/// Rounds with candidates of the table and of affinity.
const ROUNDS: u32 = 4;

/// Which source port the endpoint sees.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Port {
    /// The client's own (`Local`), or one of ours (`Nat`).
    Own,
    /// One of ours, also for `Local`.
    Rewritten,
}

/// Offers the connection to one endpoint: writes the handshake, or finds it there.
#[inline(always)]
fn offer<W: World>(
    world: &W,
    packet: &Packet<W::Addr>,
    endpoint: &Endpoint<W::Addr>,
    hash: u32,
    handshake: &Handshake<W::Addr>,
    port: Port,
) -> Offer {
    let local = Kind::from_u8(endpoint.via) == Kind::Local;
    if !local && endpoint.ifindex == 0 {
        return Offer::Next(Reason::NoNextHop);
    }
    let config = world.config();
    let source = if local { packet.net.src } else { config.snat };
    let own_port = local && port == Port::Own;
    let tries = if own_port { 1 } else { limits::SNAT_TRIES };
    let handshakes = world.handshakes();
    for attempt in 0..tries {
        let source_port = if own_port {
            packet.ports.src
        } else {
            nat::port(config.snat_ports, hash, attempt)
        };
        let reply_ports = Ports {
            src: Be16::new(endpoint.port),
            dst: source_port,
        };
        let key = FlowKey::new(endpoint.address, source, reply_ports, packet.net.protocol);
        if nat::taken(world, &key, local, packet) {
            continue;
        }
        match handshakes.insert_new(&key, handshake) {
            Inserted::Yes => return Offer::New(source_port),
            Inserted::Full => return Offer::Next(Reason::HandshakeTable),
            Inserted::Exists => {}
        }
        let Some(slot) = handshakes.find(&key) else {
            continue;
        };
        let old = slot.read();
        let same =
            old.vip == packet.net.dst && old.client == packet.net.src && old.ports == packet.ports;
        if same && old.isn == packet.seq {
            return repeated(world, &old, source_port);
        }
        let age = world.millis().wrapping_sub(old.started);
        if same || age > MILLIS_OF_A_HANDSHAKE {
            // The client has begun anew, or the entry's connection is long dead.
            handshakes.insert(&key, handshake);
            return Offer::New(source_port);
        }
    }
    Offer::Next(if own_port {
        Reason::TupleTaken
    } else {
        Reason::SnatExhausted
    })
}

const MILLIS_OF_A_HANDSHAKE: u32 = limits::HANDSHAKE << (limits::TICK_SHIFT - 20);

/// A first packet that was seen before stays with its endpoint, unless that one is silent.
#[inline(always)]
fn repeated<W: World>(world: &W, old: &Handshake<W::Addr>, source_port: Be16) -> Offer {
    let silent = old.flags & HANDSHAKE_ANSWERED == 0
        && old.isn != Be32::new(0)
        && world.config().failover != 0
        && world.millis().wrapping_sub(old.started) > limits::SYN_PATIENCE_MS;
    if silent {
        Offer::Next(Reason::RefusedNoEndpoint)
    } else {
        Offer::Repeated(source_port)
    }
}

/// Carries out [`Decision::Open`]: rewrites the packet for its endpoint and sends it.
#[inline(always)]
pub fn send<F: Frame, N: Family, W: World<Addr = N::Addr>>(
    frame: &mut F,
    world: &W,
    packet: &Packet<N::Addr>,
    place: Place,
) -> Result<Reason, Reason> {
    let id = place.endpoint;
    let endpoint = world.endpoint(id).ok_or(Reason::NoNextHop)?;
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
    draft.flags = 0;
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
        let Some(word) = frame.read::<u32>(at + index * 4) else {
            break;
        };
        *option = word;
    }
}
