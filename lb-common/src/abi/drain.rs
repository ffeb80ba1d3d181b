//! What the agent must still know of draining endpoints after a restart; userspace only, no
//! program reads it. It lives in a pinned map because a deadline on the boot clock is worth
//! exactly as long as the boot, which is how long a pin lives.

use super::FrontendKey;
use crate::{V4, plain};

/// One life of one endpoint of one frontend. An address reused by another pod begins another
/// life while the flows of the one before are being reset, hence the last field.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(C)]
pub struct DrainKey<A> {
    /// The frontend.
    pub frontend: FrontendKey<A>,
    /// The endpoint.
    pub address: A,
    /// Its port, host order.
    pub port: u16,
    /// Zero.
    pub zero: u16,
    /// Which life; never 0.
    pub incarnation: u32,
}

/// The slices said `terminating` when they last listed it.
pub const DRAIN_TERMINATING: u8 = 1;
/// The slices said `serving`.
pub const DRAIN_SERVING: u8 = 2;
/// It is on this node.
pub const DRAIN_LOCAL: u8 = 4;
/// It was in the set for new connections.
pub const DRAIN_SELECTED: u8 = 8;
/// This node has seen its pod's link or route go.
pub const DRAIN_SEEN_GONE: u8 = 16;
/// `cap_ms` counts.
pub const DRAIN_CAPPED: u8 = 32;
/// Its flows are settled and its id is free again; kept so that it is not revived.
pub const DRAIN_FORGOTTEN: u8 = 64;

/// State of an endpoint in [`DrainValue::state`]. The first four numbers are those of
/// [`super::State`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum DrainState {
    /// Nothing known.
    Unknown = 0,
    /// Ready.
    Active = 1,
    /// Terminating or vanished.
    Draining = 2,
    /// Dead: its flows are reset.
    Gone = 3,
    /// Listed, not ready, not terminating.
    Unready = 4,
}

impl DrainState {
    /// From the map's byte.
    pub const fn from_u8(value: u8) -> Self {
        match value {
            1 => Self::Active,
            2 => Self::Draining,
            3 => Self::Gone,
            4 => Self::Unready,
            _ => Self::Unknown,
        }
    }
}

/// How an endpoint's life stands. Times are boot-clock nanoseconds, 0 for none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct DrainValue {
    /// When it was first seen terminating or vanished; else when the state began.
    pub since: u64,
    /// When it becomes `Gone`; when it did, once it is.
    pub deadline: u64,
    /// When it vanished from the slices.
    pub vanished: u64,
    /// 64-bit hash of the pod's uid, 0 when unknown.
    pub uid: u64,
    /// 64-bit hash of the Service's name, 0 when unknown.
    pub service: u64,
    /// The Service's drain timeout as last seen, milliseconds.
    pub cap_ms: u32,
    /// A [`DrainState`].
    pub state: u8,
    /// Bits `DRAIN_*`.
    pub flags: u8,
    /// Zero.
    pub zero: u16,
}

plain! {
    DrainKey<V4> = 20: FrontendKey<V4>, V4, u16, u16, u32;
    DrainValue = 48: u64, u64, u64, u64, u64, u32, u8, u8, u16;
}
