//! Offers a connection to its candidates until one of them has it: writes the handshake's entry.
//!
//! Used for the first SYN and for each failover alike. A reply tuple that another connection
//! holds is never shared: the next endpoint takes the connection, and when the tuple is taken
//! everywhere the client's port is rewritten. A first packet that was seen before goes where it
//! went; elsewhere only when it drew no SYN-ACK for a while, at most three endpoints in all.

mod offer;

use lb_common::wire::Be16;
use lb_common::{Address, Reason, limits};

use crate::answer::client_key;
use crate::candidates::{self, Candidates};
use crate::health::Failure;
use crate::world::{Turn, World};

pub use offer::{Offer, Terms, Took, offer};

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

    /// In one integer, for functions that can pass no more.
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        (self.endpoint as u64) << 32
            | (self.source_port.word() as u64) << 16
            | (self.repeated as u64) << 8
            | self.reason as u64 & 0xff
    }

    /// The other way.
    #[inline(always)]
    pub fn unpack(packed: u64) -> Self {
        Self {
            endpoint: (packed >> 32) as u32,
            source_port: Be16::from_word((packed >> 16) as u16),
            repeated: packed >> 8 & 1 != 0,
            reason: Reason::from_u32(packed as u32 & 0xff),
        }
    }
}

/// Most endpoints that one connection is offered to.
const MOST: u32 = limits::MAX_CANDIDATES;

/// Finds the endpoint for the connection in the draft and writes its handshake. `sticky` is the
/// client's endpoint by affinity, `refused` one that has just refused it; 0 for none. What the
/// draft says was tried is not tried again.
#[inline(always)]
pub fn settle<W: World>(world: &W, sticky: u32, refused: u32) -> Place {
    let Some((client, frontend, tried)) = world.with_draft(|draft| {
        let client = client_key(&draft.handshake, draft.protocol as u8);
        (client, draft.frontend, draft.handshake.tried)
    }) else {
        return Place::NOWHERE;
    };
    let candidates = candidates::of(world, &frontend, &client, sticky);
    world.with_draft(|draft| {
        draft.search = Search {
            candidates,
            asked: tried,
            tries: count(tried),
            spare: 0,
            taken: 0,
            silent: 0,
            found: Place::NOWHERE.pack(),
        };
    });
    world.repeat(ROUNDS, &mut Rounds(0));
    let Some(search) = world.with_draft(|draft| draft.search) else {
        return Place::NOWHERE;
    };
    let (failed, failure) = if refused == 0 {
        (search.silent, Failure::Silent)
    } else {
        (refused, Failure::Refused)
    };
    if failed != 0 {
        world.failed(failed, client.src.fold(), failure);
    }
    Place::unpack(search.found)
}

/// The search for a place, between its rounds. It stands in the draft: what a program keeps in a
/// map, the verifier does not tell apart, while it would walk a round anew for each count on the
/// stack.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Search {
    candidates: Candidates,
    /// The last two that were asked, and how many were in all.
    asked: [u32; 2],
    tries: u32,
    /// The first that is ejected, whose tuple was taken, that is silent; 0 for none.
    spare: u32,
    taken: u32,
    silent: u32,
    /// The best so far: a [`Place`].
    found: u64,
}

impl Search {
    /// One that has not begun.
    pub const NONE: Self = Self {
        candidates: Candidates::NONE,
        asked: [0; 2],
        tries: 0,
        spare: 0,
        taken: 0,
        silent: 0,
        found: 0,
    };
}

/// The rounds of the search.
struct Rounds(#[expect(dead_code, reason = "the kernel wants something to point to")] u32);

impl<W: World> Turn<W> for Rounds {
    #[inline(always)]
    fn turn(&mut self, world: &W, round: u32) -> bool {
        let Some(mut search) = world.with_draft(|draft| draft.search) else {
            return false;
        };
        let go_on = search.round(world, round);
        world.with_draft(|draft| {
            draft.handshake.tried = search.asked;
            draft.search = search;
        });
        go_on
    }
}

impl Search {
    /// Asks one endpoint, if the round has one; false when it took the connection.
    #[inline(always)]
    fn round<W: World>(&mut self, world: &W, round: u32) -> bool {
        let id = match round {
            // What is ejected is better than nothing.
            EJECTED if self.silent == 0 => self.spare,
            OTHER_PORT if self.silent == 0 => self.taken,
            EJECTED | OTHER_PORT => 0,
            index => self.candidates.id(world, index),
        };
        let again = id == self.asked[0] || id == self.asked[1];
        if id == 0 || round != OTHER_PORT && (again || self.tries >= MOST) {
            return true;
        }
        let terms = match round {
            EJECTED => Terms::Spare,
            OTHER_PORT => Terms::OtherPort,
            _ => Terms::Usual,
        };
        let offer = world.offer(id, self.candidates.hash, terms);
        let place = |repeated| {
            Place {
                endpoint: id,
                source_port: offer.source_port,
                repeated,
                reason: Reason::RefusedNoEndpoint,
            }
            .pack()
        };
        match offer.outcome {
            Took::New | Took::Repeated => {
                let repeated = offer.outcome as u8 == Took::Repeated as u8;
                self.found = place(repeated);
                return false;
            }
            Took::Silent => {
                // Silence is no refusal: a SYN may be lost, or the endpoint's queue be full for
                // a moment. With nobody else to ask, it is asked again.
                self.found = place(true);
                if self.silent == 0 {
                    self.silent = id;
                }
            }
            Took::Closed => return true,
            Took::Ejected => {
                if self.spare == 0 {
                    self.spare = id;
                }
                return true;
            }
            Took::No => {
                if self.taken == 0 && offer.reason as u32 == Reason::TupleTaken as u32 {
                    self.taken = id;
                }
                if self.silent == 0 {
                    self.found = Place {
                        reason: offer.reason,
                        ..Place::NOWHERE
                    }
                    .pack();
                }
            }
        }
        self.asked = [id, self.asked[0]];
        self.tries += 1;
        true
    }
}

/// Rounds: the candidates, then the best of those that are ejected, then one whose tuple was
/// taken, under a port of ours.
const ROUNDS: u32 = OTHER_PORT + 1;
const EJECTED: u32 = 3 + candidates::WALK;
const OTHER_PORT: u32 = EJECTED + 1;

/// Endpoints that a handshake was offered to before its present one.
#[inline(always)]
pub fn count(tried: [u32; 2]) -> u32 {
    u32::from(tried[0] != 0) + u32::from(tried[1] != 0)
}
