//! Which flows have ended: the rule of the sweep that runs every few seconds, inside the kernel.
//!
//! A flow is idle as long as neither direction has moved; how long it may be depends on what was
//! seen of its end. A flow of an endpoint that is gone is marked, so that its next packet draws a
//! reset, and forgotten soon after.

use lb_common::abi::{
    Endpoint, Flow, FlowKey, Kind, STATE_FIN_CLIENT, STATE_FIN_ENDPOINT, STATE_GONE, STATE_RST,
    State,
};
use lb_common::wire::ipv4;
use lb_common::{Address, limits};

/// What to do with a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// Nothing.
    Keep,
    /// Its endpoint is gone: mark it.
    MarkGone,
    /// Forget it and the other direction.
    Forget,
}

/// Judges one flow. `other_seen` is the other direction's last stamp, for a `Nat` flow.
#[inline(always)]
pub fn judge<A: Address>(
    key: &FlowKey<A>,
    flow: &Flow<A>,
    other_seen: Option<u32>,
    endpoint: Option<Endpoint<A>>,
    tick: u32,
) -> Fate {
    let tcp = key.protocol == ipv4::TCP;
    let gone = endpoint.is_none_or(|endpoint| State::from_u8(endpoint.state) == State::Gone);
    if gone && !tcp {
        return Fate::Forget;
    }
    if gone && flow.state & STATE_GONE == 0 {
        return Fate::MarkGone;
    }
    if idle(flow, other_seen, tick, tcp) > allowed(flow.state, tcp) {
        Fate::Forget
    } else {
        Fate::Keep
    }
}

/// Marks a flow of a gone endpoint. That counts as a sign of life: an idle flow must stay until
/// its client has been told, and has answered.
#[inline(always)]
pub fn mark<A>(flow: &mut Flow<A>, tick: u32) {
    flow.state |= STATE_GONE;
    flow.replied = tick;
}

/// Ticks since either direction moved. An answered UDP exchange lives by its answers: one-way
/// traffic holds nothing.
#[inline(always)]
fn idle<A: Copy>(flow: &Flow<A>, other_seen: Option<u32>, tick: u32, tcp: bool) -> u32 {
    let own = tick.wrapping_sub(flow.seen);
    let replied = tick.wrapping_sub(flow.replied);
    let other = other_seen.map_or(u32::MAX, |seen| tick.wrapping_sub(seen));
    if tcp {
        own.min(replied).min(other)
    } else if flow.kind == Kind::NatReply as u8 {
        own
    } else {
        replied
    }
}

#[inline(always)]
fn allowed(state: u8, tcp: bool) -> u32 {
    const BOTH: u8 = STATE_FIN_CLIENT | STATE_FIN_ENDPOINT;
    if !tcp {
        limits::UDP_ANSWERED
    } else if state & (STATE_RST | STATE_GONE) != 0 {
        limits::TCP_RESET
    } else if state & BOTH == BOTH {
        limits::TCP_CLOSING
    } else if state & BOTH != 0 {
        limits::TCP_HALF_CLOSED
    } else {
        limits::TCP_ESTABLISHED
    }
}
