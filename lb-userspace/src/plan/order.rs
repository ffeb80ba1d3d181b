//! The steps from one state of the maps to another, and the order that makes every prefix of
//! them safe.
//!
//! Something is written before anything names it and unnamed before it goes: endpoints, then the
//! region that names them, then the frontend that names the region, then the VIP, then its bit;
//! deletions the other way round. An operation that takes something away from new connections
//! (an endpoint that drains) comes after the switch that stopped using it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ipnet::Ipv4Net;
use lb_common::V4;
use lb_common::abi::{self, Config, TableElement};
use thiserror::Error;

use super::ids::IdError;
use super::region::RegionError;
use super::table::TableError;
use crate::desired::FrontendKey;
use crate::desired::Protocol;

/// One write to one map.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MapOp {
    /// Sets the only slot of `config`.
    PutConfig(Config<V4>),
    /// Writes 64 bits of `dest_bitmap`.
    PutBits {
        /// Element.
        element: u32,
        /// Its new value.
        value: u64,
        /// When in the list it is due.
        phase: Phase,
    },
    /// Writes an endpoint's slot; a fresh one's `health` is cleared first.
    PutEndpoint {
        /// Its id.
        id: u32,
        /// Its new value.
        value: abi::Endpoint<V4>,
        /// True when the slot held nothing before.
        fresh: bool,
        /// When in the list it is due.
        phase: Phase,
    },
    /// Writes a region of `tables` that no frontend uses yet.
    PutTable {
        /// The frontend that is going to use it.
        frontend: u32,
        /// First element.
        first: u32,
        /// The elements.
        elements: Arc<[TableElement]>,
    },
    /// Writes a frontend, which is what switches it to another region.
    PutFrontend {
        /// Its key.
        key: abi::FrontendKey<V4>,
        /// Its new value.
        value: abi::Frontend,
        /// Endpoint ids at the start of its region.
        members: Arc<[u32]>,
        /// Seed of its table.
        seed: u64,
    },
    /// Removes a frontend.
    DeleteFrontend {
        /// Its key.
        key: abi::FrontendKey<V4>,
        /// Its id.
        id: u32,
    },
    /// Lets a client network in.
    PutRange {
        /// Frontend id.
        frontend: u32,
        /// The network.
        range: Ipv4Net,
    },
    /// Removes a client network.
    DeleteRange {
        /// Frontend id.
        frontend: u32,
        /// The network.
        range: Ipv4Net,
    },
    /// Writes an address answered for.
    PutVip {
        /// The address.
        address: V4,
        /// Until when.
        value: abi::Vip,
    },
    /// Removes an address answered for.
    DeleteVip {
        /// The address.
        address: V4,
    },
}

/// When an operation is due; the order of the variants is the order of a plan.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Phase {
    /// Bits of SNAT addresses: replies must be ours before the first packet goes out.
    SnatBits,
    /// Settings.
    Config,
    /// Endpoints that come or get better.
    EndpointsUp,
    /// Regions.
    Tables,
    /// Networks that are let in.
    RangesUp,
    /// Frontends that come or change.
    Frontends,
    /// Addresses that come.
    VipsUp,
    /// Their bits.
    BitsUp,
    /// Bits of addresses that go.
    BitsDown,
    /// Addresses that go.
    VipsDown,
    /// Frontends that go.
    FrontendsDown,
    /// Networks that are no longer let in.
    RangesDown,
    /// Endpoints that go or get worse.
    EndpointsDown,
}

/// What an operation is for: the unit that fails and is tried again as a whole.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Object {
    /// Settings.
    Config,
    /// The destination bitmap.
    Bitmap,
    /// An address.
    Vip(V4),
    /// A frontend, its endpoints, table and ranges, by id.
    Frontend(u32),
}

impl MapOp {
    /// When it is due.
    pub fn phase(&self) -> Phase {
        match self {
            Self::PutConfig(_) => Phase::Config,
            Self::PutBits { phase, .. } | Self::PutEndpoint { phase, .. } => *phase,
            Self::PutTable { .. } => Phase::Tables,
            Self::PutFrontend { .. } => Phase::Frontends,
            Self::DeleteFrontend { .. } => Phase::FrontendsDown,
            Self::PutRange { .. } => Phase::RangesUp,
            Self::DeleteRange { .. } => Phase::RangesDown,
            Self::PutVip { .. } => Phase::VipsUp,
            Self::DeleteVip { .. } => Phase::VipsDown,
        }
    }

    /// What it is for.
    pub fn object(&self) -> Object {
        match self {
            Self::PutConfig(_) => Object::Config,
            Self::PutBits { .. } => Object::Bitmap,
            Self::PutEndpoint { value, .. } => Object::Frontend(value.frontend),
            Self::PutTable { frontend, .. }
            | Self::PutRange { frontend, .. }
            | Self::DeleteRange { frontend, .. } => Object::Frontend(*frontend),
            Self::PutFrontend { value, .. } => Object::Frontend(value.id),
            Self::DeleteFrontend { id, .. } => Object::Frontend(*id),
            Self::PutVip { address, .. } | Self::DeleteVip { address } => Object::Vip(*address),
        }
    }
}

/// What to write, in order, and what could not be planned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The writes; stopping after any of them leaves a working data plane.
    pub ops: Vec<MapOp>,
    /// What does not fit; the rest goes on.
    pub left_out: Vec<LeftOut>,
    /// Frontends that were left for the next plan, when this one has been carried out: the tables
    /// of all at once would be more memory than the agent needs for everything else.
    pub deferred: Vec<FrontendKey>,
}

impl Plan {
    /// Brings the operations into order; those of one phase keep theirs.
    pub(super) fn sort(&mut self) {
        self.ops.sort_by_key(MapOp::phase);
    }
}

/// An object that the kernel cannot hold.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub struct LeftOut {
    /// The VIP.
    pub address: IpAddr,
    /// The frontend's port; none for the VIP itself.
    pub port: Option<(u16, Protocol)>,
    /// Why.
    pub reason: LeftOutReason,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some((port, protocol)) => {
                write!(f, "{}/{protocol}: ", SocketAddr::new(self.address, port))?;
            }
            None => write!(f, "{}: ", self.address)?,
        }
        write!(f, "{}", self.reason)
    }
}

/// Why something was left out.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum LeftOutReason {
    /// The data plane speaks IPv4 only.
    #[error("IPv6 is not forwarded by this version")]
    Ipv6,
    /// An IPv6 endpoint behind an IPv4 address.
    #[error("endpoint {address} is IPv6, which this version does not forward to")]
    Ipv6Endpoint {
        /// The endpoint.
        address: SocketAddr,
    },
    /// No id for the frontend.
    #[error("too many frontends: {0}")]
    FrontendIds(IdError),
    /// No id for an endpoint.
    #[error("no room for endpoint {address}: {error}")]
    EndpointIds {
        /// The endpoint.
        address: SocketAddr,
        /// Why.
        error: IdError,
    },
    /// No room for its table.
    #[error("keeps its old table: {0}")]
    Region(RegionError),
    /// Its table cannot be built.
    #[error("keeps its old table: {0}")]
    Table(TableError),
    /// No room for its source ranges.
    #[error("all {limit} source ranges are taken; the frontend is not forwarded without its own")]
    SourceRanges {
        /// How many there can be.
        limit: usize,
    },
    /// No room for the address.
    #[error("all {limit} addresses are taken")]
    Vips {
        /// How many there can be.
        limit: usize,
    },
}

impl LeftOutReason {
    /// The map that has no room; `None` when more room would not help.
    pub fn full_map(&self) -> Option<&'static str> {
        match self {
            Self::FrontendIds(_) => Some("frontends"),
            Self::EndpointIds { .. } => Some("endpoints"),
            Self::Region(_) => Some("tables"),
            Self::SourceRanges { .. } => Some("source_ranges"),
            Self::Vips { .. } => Some("vips"),
            Self::Ipv6 | Self::Ipv6Endpoint { .. } | Self::Table(_) => None,
        }
    }
}

/// For messages: the address of a VIP.
pub(super) fn ip(address: V4) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(address))
}
