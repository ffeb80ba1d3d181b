//! One offer: an endpoint is asked to take the connection in the draft.
//!
//! Its handshake is written, or found there. A reply tuple that another connection holds is never
//! shared: the offer fails then.

use lb_common::abi::{Endpoint, FlowKey, HANDSHAKE_ANSWERED, HANDSHAKE_REFUSED, Handshake, Kind};
use lb_common::wire::l4::Ports;
use lb_common::wire::{Be16, ipv4};
use lb_common::{Reason, limits};

use crate::answer::client_key;
use crate::candidates;
use crate::health::{self, Standing};
use crate::nat;
use crate::world::{Draft, Entry, Inserted, Slot, World};

/// What became of one candidate. A struct for the reason that [`Place`] is one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Offer {
    /// Whether it took the connection.
    pub outcome: Took,
    /// The source port that the endpoint sees, when it did.
    pub source_port: Be16,
    /// Why not, when it did not.
    pub reason: Reason,
}

/// Whether a candidate took the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Took {
    /// A new attempt.
    New,
    /// The attempt stands already.
    Repeated,
    /// The same, but the endpoint has been silent for long: another one, if there is any.
    Silent,
    /// No, for the offer's reason.
    No,
    /// It takes no new connections: as if it had not been asked.
    Closed,
    /// It is ejected: only when nothing else is left.
    Ejected,
}

impl Offer {
    /// In one integer, for functions that can pass no more.
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        (self.source_port.word() as u64) << 16
            | (self.reason as u64 & 0xff) << 8
            | self.outcome as u64
    }

    /// The other way.
    #[inline(always)]
    pub fn unpack(packed: u64) -> Self {
        Self {
            outcome: match packed & 0xff {
                0 => Took::New,
                1 => Took::Repeated,
                2 => Took::Silent,
                3 => Took::No,
                4 => Took::Closed,
                _ => Took::Ejected,
            },
            source_port: Be16::from_word((packed >> 16) as u16),
            reason: Reason::from_u32(packed as u32 >> 8 & 0xff),
        }
    }

    #[inline(always)]
    const fn taken(outcome: Took, source_port: Be16) -> Self {
        Self {
            outcome,
            source_port,
            reason: Reason::RefusedNoEndpoint,
        }
    }

    #[inline(always)]
    const fn because(reason: Reason) -> Self {
        Self {
            outcome: Took::No,
            source_port: Be16::new(0),
            reason,
        }
    }

    #[inline(always)]
    const fn no(outcome: Took) -> Self {
        Self {
            outcome,
            source_port: Be16::new(0),
            reason: Reason::RefusedNoEndpoint,
        }
    }
}

/// How an endpoint is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Terms {
    /// If it is not ejected; the endpoint sees the client's own port (`Local`), or one of ours
    /// (`Nat`).
    Usual,
    /// The same, ejected or not.
    Spare,
    /// Under one of our ports, also for `Local`.
    OtherPort,
}

impl Terms {
    /// From the number of a variant.
    #[inline(always)]
    pub const fn from_u32(number: u32) -> Self {
        match number {
            0 => Self::Usual,
            1 => Self::Spare,
            _ => Self::OtherPort,
        }
    }
}

/// Offers the connection in the draft to one endpoint: writes the handshake, or finds it there.
#[inline(always)]
pub fn offer<W: World>(world: &W, id: u32, hash: u32, terms: Terms) -> Offer {
    world
        .with_draft(|draft| {
            let Some(endpoint) = candidates::usable(world, &draft.frontend, id) else {
                return Offer::no(Took::Closed);
            };
            let usual = terms as u8 == Terms::Usual as u8;
            if usual && health::standing(world, id) == Standing::Ejected {
                return Offer::no(Took::Ejected);
            }
            draft.handshake.endpoint = id;
            ask(world, draft, &endpoint, hash, terms)
        })
        .unwrap_or(Offer::no(Took::Closed))
}

#[inline(always)]
fn ask<W: World>(
    world: &W,
    draft: &Draft<W::Addr>,
    endpoint: &Endpoint<W::Addr>,
    hash: u32,
    terms: Terms,
) -> Offer {
    let client = client_key(&draft.handshake, draft.protocol as u8);
    let draft = &draft.handshake;
    let local = Kind::from_u8(endpoint.via) == Kind::Local;
    if !local && endpoint.ifindex == 0 {
        return Offer::because(Reason::NoNextHop);
    }
    let config = world.config();
    let source = if local { client.src } else { config.snat };
    let own_port = local && terms as u8 != Terms::OtherPort as u8;
    let tries = if own_port { 1 } else { limits::SNAT_TRIES };
    let handshakes = world.handshakes();
    for attempt in 0..tries {
        let source_port = if own_port {
            client.ports.src
        } else {
            nat::port(config.snat_ports, hash, attempt)
        };
        let reply_ports = Ports {
            src: Be16::new(endpoint.port),
            dst: source_port,
        };
        let key = FlowKey::new(endpoint.address, source, reply_ports, client.protocol);
        if nat::taken(world, &key, local, &client) {
            continue;
        }
        match handshakes.insert_new(&key, draft) {
            Inserted::Yes => return Offer::taken(Took::New, source_port),
            Inserted::Full => return Offer::because(Reason::HandshakeTable),
            Inserted::Exists => {}
        }
        let Some(slot) = handshakes.find(&key) else {
            continue;
        };
        let old = slot.read();
        let same = old.vip == client.dst && old.client == client.src && old.ports == client.ports;
        let refused = old.flags & HANDSHAKE_REFUSED != 0;
        if same && refused && is_recent(world, &old) && terms as u8 == Terms::Usual as u8 {
            return Offer::no(Took::Ejected);
        }
        if same && old.isn == draft.isn && !refused {
            return Offer::taken(repeated(world, &old, client.protocol), source_port);
        }
        let age = world.millis().wrapping_sub(old.started);
        if same || age > MILLIS_OF_A_HANDSHAKE {
            // The client has begun anew, or the entry's connection is long dead.
            handshakes.insert(&key, draft);
            return Offer::taken(Took::New, source_port);
        }
    }
    Offer::because(if own_port {
        Reason::TupleTaken
    } else {
        Reason::SnatExhausted
    })
}

const MILLIS_OF_A_HANDSHAKE: u32 = limits::HANDSHAKE << (limits::TICK_SHIFT - 20);

const MILLIS_OF_A_REFUSAL: u32 = limits::UDP_ONE_WAY << (limits::TICK_SHIFT - 20);

/// True while the endpoint's refusal counts.
#[inline(always)]
fn is_recent<W: World>(world: &W, refusal: &Handshake<W::Addr>) -> bool {
    world.millis().wrapping_sub(refusal.started) <= MILLIS_OF_A_REFUSAL
}

/// A first packet that was seen before stays with its endpoint, unless that one is silent.
#[inline(always)]
fn repeated<W: World>(world: &W, old: &Handshake<W::Addr>, protocol: u8) -> Took {
    let silent = old.flags & HANDSHAKE_ANSWERED == 0
        && protocol == ipv4::TCP
        && world.config().failover != 0
        && world.millis().wrapping_sub(old.started) > limits::SYN_PATIENCE_MS;
    if silent { Took::Silent } else { Took::Repeated }
}
