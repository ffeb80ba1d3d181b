//! Keys and values of the pinned maps: the contract between the data plane, the agent and
//! `bpftool map dump`. `docs/maps.md` describes each map.
//!
//! A change of a layout here is a change of [`SCHEMA`], which is part of the pin path.

mod config;
mod drain;
mod flow;
mod frontend;
pub mod pod;

pub use config::{Config, LINK_GENERIC, LINK_NONE, LINK_VIRTUAL, Link};
pub use drain::{
    DRAIN_CAPPED, DRAIN_FORGOTTEN, DRAIN_LOCAL, DRAIN_SEEN_GONE, DRAIN_SELECTED, DRAIN_SERVING,
    DRAIN_TERMINATING, DrainKey, DrainState, DrainValue,
};
pub use flow::{
    Answered, Flow, FlowKey, HANDSHAKE_ANSWERED, HANDSHAKE_ECN, HANDSHAKE_REFUSED, Handshake, Kind,
    Reverse, STATE_FIN_CLIENT, STATE_FIN_ENDPOINT, STATE_GONE, STATE_PARTIAL, STATE_REOPENED,
    STATE_RST,
};
pub use frontend::{
    Affinity, AffinityKey, Conflict, Endpoint, Frontend, FrontendKey, Health, SourceRange, State,
    TableElement, Vip, verdict,
};

/// Version of these layouts; the pins live under a folder of this number.
pub const SCHEMA: u32 = 1;

/// One per-CPU counter slot, indexed by [`crate::Reason`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Counter {
    /// Packets that met their fate for this reason.
    pub packets: u64,
    /// Their bytes, Ethernet header included, as they arrived.
    pub bytes: u64,
}

crate::plain! { Counter = 16: u64, u64; }
