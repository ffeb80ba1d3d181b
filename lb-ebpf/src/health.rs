//! Passive ejection: endpoints that refuse connections, or are silent while others answer, are
//! left out of selection for a while. The table stays as it is.
//!
//! Three distinct clients refused within two seconds eject an endpoint for 10 s, twice as long
//! each time it goes on, up to 60 s; on the way back one connection tries it first. Silence
//! counts only for an endpoint that answers nobody while another one of the frontend answers (a
//! NetworkPolicy or a full queue looks like silence). Never more than half of a frontend's
//! endpoints are out, and what is out is still used when nothing else is left.

use lb_common::abi::{Frontend, Health};
use lb_common::limits;
use lb_common::select::Layout;

use crate::candidates;
use crate::world::{Slot, Turn, World};

/// Distinct clients that must have been refused.
const CLIENTS: usize = 3;
/// Within this time, in units of 2^20 ns.
const WINDOW: u32 = 2_000;
/// First ejection.
const FIRST: u32 = limits::ticks(10);
/// Longest ejection.
const LONGEST: u32 = limits::ticks(60);
/// Time that one trial connection has before the next one may try.
const TRIAL: u32 = limits::ticks(2);
/// Members looked at to tell how many are out: of larger frontends the first ones stand for all.
const SAMPLE: u32 = 32;

/// Whether an endpoint may be offered a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// It may.
    Good,
    /// It is ejected: only when nothing else is left.
    Ejected,
}

/// An endpoint's standing. The first caller after an ejection gets it on trial.
#[inline(always)]
pub fn standing<W: World>(world: &W, id: u32) -> Standing {
    let Some(slot) = world.health(id) else {
        return Standing::Good;
    };
    let until = slot.read().ejected_until;
    if until == 0 {
        return Standing::Good;
    }
    let tick = world.tick();
    if is_out(until, tick) {
        return Standing::Ejected;
    }
    slot.update(|health| health.ejected_until = later(tick, TRIAL));
    Standing::Good
}

/// Notes that an endpoint has answered a handshake.
#[inline(always)]
pub fn answered<W: World>(world: &W, id: u32) {
    let now = world.millis() | 1;
    if let Some(slot) = world.health(id) {
        slot.update(|health| {
            health.answered = now;
            health.ejected_until = 0;
            health.streak = 0;
        });
    }
}

/// What an endpoint did to a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Failure {
    /// It refused.
    Refused,
    /// It has not answered.
    Silent,
}

/// Notes a failure towards a client of the draft's frontend, and ejects the endpoint when it is
/// one too many.
#[inline(always)]
pub fn failed<W: World>(world: &W, id: u32, client: u32, failure: Failure) {
    let (Some(slot), Some(frontend)) = (world.health(id), world.with_draft(|draft| draft.frontend))
    else {
        return;
    };
    let now = world.millis();
    let tick = world.tick();
    let client = client | 1;
    let enough = slot.update(|health| note(health, client, now));
    if !enough || slot.read().ejected_until != 0 && is_out(slot.read().ejected_until, tick) {
        return;
    }
    let others = survey(world, &frontend, id, now, tick);
    let counts = match failure {
        Failure::Refused => true,
        Failure::Silent => others.answering != 0 && !recent(slot.read().answered, now),
    };
    if counts && (others.out + 1) * 2 <= u32::from(frontend.members).min(SAMPLE) {
        slot.update(|health| {
            let time = (FIRST << health.streak.min(3)).min(LONGEST);
            health.streak += 1;
            health.refused = [0; CLIENTS];
            health.ejected_until = later(tick, time);
        });
    }
}

/// Adds a client to the window's; true when they are enough.
#[inline(always)]
fn note(health: &mut Health, client: u32, now: u32) -> bool {
    if now.wrapping_sub(health.window) > WINDOW {
        health.window = now;
        health.refused = [client, 0, 0];
        return false;
    }
    let [a, b, c] = health.refused;
    if client == a || client == b || client == c {
        return c != 0;
    }
    if b == 0 {
        health.refused = [a, client, 0];
        return false;
    }
    health.refused = [a, b, client];
    true
}

/// A look at the other endpoints of a frontend.
struct Survey {
    layout: Layout,
    region: u32,
    id: u32,
    now: u32,
    tick: u32,
    out: u32,
    answering: u32,
}

#[inline(always)]
fn survey<W: World>(world: &W, frontend: &Frontend, id: u32, now: u32, tick: u32) -> Survey {
    let mut survey = Survey {
        layout: Layout::new(frontend.members, frontend.rows_log2),
        region: frontend.region,
        id,
        now,
        tick,
        out: 0,
        answering: 0,
    };
    world.repeat(u32::from(frontend.members).min(SAMPLE), &mut survey);
    survey
}

impl<W: World> Turn<W> for Survey {
    #[inline(always)]
    fn turn(&mut self, world: &W, index: u32) -> bool {
        let member = candidates::word(world, self.layout.member_at(self.region, index));
        if member == self.id {
            return true;
        }
        if let Some(slot) = world.health(member) {
            let health = slot.read();
            self.out += u32::from(is_out(health.ejected_until, self.tick));
            self.answering += u32::from(recent(health.answered, self.now));
        }
        true
    }
}

#[inline(always)]
fn recent(stamp: u32, now: u32) -> bool {
    stamp != 0 && now.wrapping_sub(stamp) <= WINDOW
}

#[inline(always)]
fn is_out(until: u32, tick: u32) -> bool {
    until > tick
}

/// A stamp `ticks` from now. Ticks do not wrap within a century.
#[inline(always)]
fn later(tick: u32, ticks: u32) -> u32 {
    tick.saturating_add(ticks)
}
