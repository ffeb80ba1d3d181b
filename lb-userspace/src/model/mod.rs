//! The world as told, turned into what this node should do.
//!
//! Pure: no IO, no clock, no kernel. `World` takes `WatchEvent`s and keeps `Desired` up to
//! date, touching only the Services an event concerns. Nothing is decided before every kind
//! has been listed once, and bad input never takes down what is good: it ends in `ignored`,
//! naming object, field and what was expected.

mod address;
mod alloc;
mod annotation;
mod assign;
mod context;
mod ending;
mod frontend;
pub mod merge;
mod pool;
pub mod select;
mod settings;
mod store;
mod tier;
mod vip;
mod world;

pub use alloc::{Allocations, PriorError};
pub use context::{Context, DEFAULT_CLASS, Reservation, Reserved};
pub use world::{Changes, World};

/// Address family of a VIP or an endpoint.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    fn of(address: std::net::IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// Kubernetes' spelling.
    fn parse(text: &str) -> Option<Self> {
        match text {
            "IPv4" => Some(Self::V4),
            "IPv6" => Some(Self::V6),
            _ => None,
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}
