//! The node's links, neighbours and routes, through rtnetlink.
//!
//! Questions and changes are blocking and short ([`request`]); what changes by itself comes as a
//! stream of plain [`Event`]s. Decisions stand elsewhere: an event says what the kernel said, and
//! a lost route is not a dead pod until somebody concludes so. Nothing in here may touch an entry
//! that an administrator made.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's messages and attributes are open sets: what is not known is not ours"
)]

mod link;
mod neighbour;
mod next_hop;
mod pods;
mod request;
mod sysctl;
mod watch;

use std::io;

use thiserror::Error;

pub use link::{Link, LinkChange, LinkKind, Links, XdpAttached, link_by_name, links};
pub use neighbour::{
    Fitness, Neighbour, PROTOCOL, managed_neighbours, neighbours, remove_managed, set_managed,
};
pub use next_hop::{NextHops, Route, default_route_interfaces, local_hops, route_to};
pub use pods::{Kernel, Node, Pods};
pub use sysctl::{SysctlError, disable_send_redirects};
pub use watch::{Event, Watch};

/// Why the kernel could not be asked or told something about the network.
#[derive(Debug, Error)]
pub enum NetlinkError {
    /// No such interface.
    #[error("there is no interface {name} in this network namespace")]
    NoLink {
        /// The name asked for.
        name: String,
    },
    /// The kernel refused the request.
    #[error("the kernel refused to {what}: {source}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The socket failed.
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
    /// An answer that could not be read.
    #[error("unreadable netlink answer: {0}")]
    Unreadable(String),
}

impl NetlinkError {
    /// The kernel's error number, when it refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } | Self::Socket(source) => source.raw_os_error(),
            Self::NoLink { .. } | Self::Unreadable(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
