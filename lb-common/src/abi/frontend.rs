//! What the agent writes: VIPs, frontends, endpoints and selection tables. Ports in these are
//! host order, so that a dump reads like a table.

use crate::{Mac, V4, plain};

/// VIP, port and protocol.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(C)]
pub struct FrontendKey<A> {
    /// The VIP.
    pub address: A,
    /// Port, host order.
    pub port: u16,
    /// 6 or 17.
    pub protocol: u8,
    /// Zero.
    pub zero: u8,
}

/// Values of [`Frontend::verdict`].
pub mod verdict {
    /// New connections are spread over the table.
    pub const FORWARD: u8 = 0;
    /// Usable endpoints exist, none of them here: silence.
    pub const DROP: u8 = 1;
    /// No usable endpoint: refusal.
    pub const REJECT: u8 = 2;
}

/// What to do with a new connection to a frontend.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Frontend {
    /// Id, stable while the frontend lives.
    pub id: u32,
    /// First element of its region in `tables`.
    pub region: u32,
    /// Affinity time-out in coarse ticks, 0 for none.
    pub affinity: u32,
    /// Endpoint ids at the start of the region; 0 without endpoints.
    pub members: u16,
    /// Binary logarithm of the rows behind them.
    pub rows_log2: u8,
    /// A constant of [`verdict`].
    pub verdict: u8,
    /// 1 when `source_ranges` must allow the client.
    pub source_ranges: u8,
    /// Zero.
    pub zero: [u8; 3],
}

/// An address answered for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Vip {
    /// Boot-clock nanoseconds until which this node answers; all ones for ever.
    pub answer_until: u64,
    /// Ownership epoch.
    pub epoch: u32,
    /// Zero.
    pub zero: u32,
}

/// Life of an endpoint, as the data plane sees it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum State {
    /// No endpoint here.
    #[default]
    Unused = 0,
    /// May get new connections.
    Active = 1,
    /// Keeps what it has.
    Draining = 2,
    /// Dead: its flows are reset.
    Gone = 3,
}

impl State {
    /// From the map's byte; unknown values count as unused.
    #[inline(always)]
    pub const fn from_u8(value: u8) -> Self {
        match value {
            1 => Self::Active,
            2 => Self::Draining,
            3 => Self::Gone,
            _ => Self::Unused,
        }
    }
}

/// One endpoint of one frontend.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Endpoint<A> {
    /// Its address.
    pub address: A,
    /// Its port, host order.
    pub port: u16,
    /// A [`super::Kind`]: `Local` or `Nat`.
    pub via: u8,
    /// A [`State`].
    pub state: u8,
    /// `Nat`: interface towards it; 0 while its next hop is unresolved.
    pub ifindex: u32,
    /// `Nat`: hardware address of the next hop.
    pub next_hop: Mac,
    /// `Nat`: hardware address of that interface.
    pub own_mac: Mac,
    /// The frontend it belongs to.
    pub frontend: u32,
    /// Which life at this address; the agent's number, as in map `drains`.
    pub incarnation: u32,
}

/// Refusals and silence of an endpoint, kept by the data plane alone.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Health {
    /// Coarse tick until which it is left out; 0 for not.
    pub ejected_until: u32,
    /// Start of the counting window, in units of 2^20 ns.
    pub window: u32,
    /// Client hashes that were refused in the window.
    pub refused: [u32; 3],
    /// Ejections in a row.
    pub streak: u32,
    /// Last SYN-ACK, in units of 2^20 ns.
    pub answered: u32,
    /// Connections begun since the last SYN-ACK.
    pub unanswered: u32,
}

/// One element of the selection array: a cache line of words.
pub type TableElement = [u32; 16];

/// Key of session affinity.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(C)]
pub struct AffinityKey<A> {
    /// Frontend id.
    pub frontend: u32,
    /// Client address.
    pub client: A,
}

/// Where a client's next connection goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Affinity {
    /// Endpoint id.
    pub endpoint: u32,
    /// Coarse tick of the last connection.
    pub seen: u32,
}

/// What follows the prefix length in a key of `source_ranges`. The frontend counts 32 bits of
/// the prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct SourceRange<A> {
    /// Frontend id.
    pub frontend: u32,
    /// Client network.
    pub client: A,
}

/// Somebody else's claim to a VIP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Conflict {
    /// Claims heard.
    pub count: u32,
    /// Coarse tick of the last.
    pub seen: u32,
    /// Who claimed it.
    pub mac: Mac,
    /// Zero.
    pub zero: u16,
}

plain! {
    FrontendKey<V4> = 8: V4, u16, u8, u8;
    Frontend = 20: u32, u32, u32, u16, u8, u8, u8, [u8; 3];
    Vip = 16: u64, u32, u32;
    Endpoint<V4> = 32: V4, u16, u8, u8, u32, Mac, Mac, u32, u32;
    Health = 32: u32, u32, [u32; 3], u32, u32, u32;
    AffinityKey<V4> = 8: u32, V4;
    Affinity = 8: u32, u32;
    SourceRange<V4> = 8: u32, V4;
    Conflict = 16: u32, u32, Mac, u16;
}
