//! Offers a connection to its candidates until one of them has it: writes the handshake's entry.
//!
//! Used for the first SYN and for each failover alike. A reply tuple that another connection
//! holds is never shared: the next endpoint takes the connection, and when the tuple is taken
//! everywhere the client's port is rewritten. A first packet that was seen before goes where it
//! went; elsewhere only when it drew no SYN-ACK for a while, at most three endpoints in all.

use lb_common::abi::{
    Endpoint, FlowKey, Frontend, HANDSHAKE_ANSWERED, Handshake, Kind,
};
use lb_common::wire::l4::Ports;
use lb_common::wire::{Be16, ipv4};
use lb_common::{Address, Reason, limits};

use crate::candidates::{self, Candidates};
use crate::health::{self, Failure, Standing};
use crate::nat;
use crate::world::{Entry, Inserted, Slot, World};

/// Where a connection goes. Not an `Option`: the optimiser leaves the parts of an absent value
/// undefined, which the verifier refuses to see moved about.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Endpoint id; 0 for nowhere.
    pub endpoint: u32,
    /// The source port that the endpoint sees.
    pub source_port: Be16,
    /// True when the packet was seen before.
    pub repeated: bool,
    /// Why it goes nowhere.
    pub reason: Reason,
}

impl Place {
    /// Nowhere, for want of an endpoint.
    pub const NOWHERE: Self = Self {
        endpoint: 0,
        source_port: Be16::new(0),
        repeated: false,
        reason: Reason::RefusedNoEndpoint,
    };
}

/// What became of one candidate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Offer {
    /// A new attempt, under this source port.
    New(Be16),
    /// The attempt stands already, under this source port.
    Repeated(Be16),
    /// The attempt stands and draws no answer: try the next one.
    Silent,
    /// Try the next one; if there is none, for this reason.
    Next(Reason),
}

/// Most endpoints that one connection is offered to.
const MOST: u32 = limits::MAX_CANDIDATES;

/// Places a connection. `client` is its tuple, `draft` the handshake to write; what `draft` says
/// was tried is not tried again.
#[inline(always)]
pub fn place<W: World>(
    world: &W,
    frontend: &Frontend,
    client: &FlowKey<W::Addr>,
    candidates: &Candidates,
    draft: &mut Handshake<W::Addr>,
) -> Place {
    let mut found = Place::NOWHERE;
    let mut tries = tried(draft);
    let mut spare = 0;
    let mut last = 0;
    let mut silent = 0;
    for round in Round::ALL {
        let id = match round {
            Round::Candidate(index) => candidates.id(index),
            // What is ejected is better than nothing.
            Round::Ejected if tries == 0 => spare,
            Round::OtherPort if found.reason == Reason::TupleTaken => last,
            Round::Ejected | Round::OtherPort => 0,
        };
        let again = id == draft.tried[0] || id == draft.tried[1];
        if round != Round::OtherPort && (again || tries >= MOST) {
            continue;
        }
        let Some(endpoint) = candidates::usable(world, frontend, id) else { continue };
        if matches!(round, Round::Candidate(_))
            && health::standing(world, id) == Standing::Ejected
        {
            spare = if spare == 0 { id } else { spare };
            continue;
        }
        draft.endpoint = id;
        last = id;
        let ports = if round == Round::OtherPort { Port::Ours } else { Port::Client };
        let offer = offer(world, frontend, client, &endpoint, candidates.hash, draft, ports);
        match offer {
            Offer::New(source_port) => {
                found = Place { endpoint: id, source_port, ..found };
                break;
            }
            Offer::Repeated(source_port) => {
                found = Place { endpoint: id, source_port, repeated: true, ..found };
                break;
            }
            Offer::Silent => silent = id,
            Offer::Next(why) => found.reason = why,
        }
        draft.tried = [id, draft.tried[0]];
        tries += 1;
    }
    if silent != 0 {
        health::failed(world, frontend, silent, client.src.fold(), Failure::Silent);
    }
    found
}

/// One round of offers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Round {
    Candidate(u32),
    Ejected,
    OtherPort,
}

impl Round {
    const ALL: [Self; 6] = [
        Self::Candidate(0),
        Self::Candidate(1),
        Self::Candidate(2),
        Self::Candidate(3),
        Self::Ejected,
        Self::OtherPort,
    ];
}

/// Endpoints that a handshake was offered to before its present one.
#[inline(always)]
pub fn tried<A: Copy>(handshake: &Handshake<A>) -> u32 {
    u32::from(handshake.tried[0] != 0) + u32::from(handshake.tried[1] != 0)
}

/// Which source port the endpoint sees.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Port {
    /// The client's own (`Local`), or one of ours (`Nat`).
    Client,
    /// One of ours, also for `Local`.
    Ours,
}

/// Offers the connection to one endpoint: writes the handshake, or finds it there.
#[inline(always)]
fn offer<W: World>(
    world: &W,
    frontend: &Frontend,
    client: &FlowKey<W::Addr>,
    endpoint: &Endpoint<W::Addr>,
    hash: u32,
    draft: &Handshake<W::Addr>,
    port: Port,
) -> Offer {
    let local = Kind::from_u8(endpoint.via) == Kind::Local;
    if !local && endpoint.ifindex == 0 {
        return Offer::Next(Reason::NoNextHop);
    }
    let config = world.config();
    let source = if local { client.src } else { config.snat };
    let own_port = local && port == Port::Client;
    let tries = if own_port { 1 } else { limits::SNAT_TRIES };
    let handshakes = world.handshakes();
    for attempt in 0..tries {
        let source_port = if own_port {
            client.ports.src
        } else {
            nat::port(config.snat_ports, hash, attempt)
        };
        let reply_ports = Ports { src: Be16::new(endpoint.port), dst: source_port };
        let key = FlowKey::new(endpoint.address, source, reply_ports, client.protocol);
        if nat::taken(world, &key, local, client) {
            continue;
        }
        match handshakes.insert_new(&key, draft) {
            Inserted::Yes => return Offer::New(source_port),
            Inserted::Full => return Offer::Next(Reason::HandshakeTable),
            Inserted::Exists => {}
        }
        let Some(slot) = handshakes.find(&key) else { continue };
        let old = slot.read();
        let same = old.vip == client.dst && old.client == client.src && old.ports == client.ports;
        if same && old.isn == draft.isn {
            return repeated(world, frontend, &old, client, draft, source_port);
        }
        let age = world.millis().wrapping_sub(old.started);
        if same || age > MILLIS_OF_A_HANDSHAKE {
            // The client has begun anew, or the entry's connection is long dead.
            handshakes.insert(&key, draft);
            return Offer::New(source_port);
        }
    }
    Offer::Next(if own_port { Reason::TupleTaken } else { Reason::SnatExhausted })
}

const MILLIS_OF_A_HANDSHAKE: u32 = limits::HANDSHAKE << (limits::TICK_SHIFT - 20);

/// A first packet that was seen before stays with its endpoint, unless that one is silent and
/// there is another one to ask.
#[inline(always)]
fn repeated<W: World>(
    world: &W,
    frontend: &Frontend,
    old: &Handshake<W::Addr>,
    client: &FlowKey<W::Addr>,
    draft: &Handshake<W::Addr>,
    source_port: Be16,
) -> Offer {
    let silent = old.flags & HANDSHAKE_ANSWERED == 0
        && client.protocol == ipv4::TCP
        && world.config().failover != 0
        && world.millis().wrapping_sub(old.started) > limits::SYN_PATIENCE_MS;
    if !silent {
        return Offer::Repeated(source_port);
    }
    if tried(draft) + 1 >= MOST || frontend.members < 2 {
        return Offer::Repeated(source_port);
    }
    Offer::Silent
}
