//! The slices of one Service, united: endpoints per port name and protocol.
//!
//! A port of the Service is joined to the slices by *name*; numbers do not matter. An address
//! that is listed twice is one endpoint: the best entry wins, whatever the order in which
//! slices came, so the result depends on the set of slices alone.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use crate::desired::Protocol;
use crate::model::{Family, address};
use crate::watch::object::{Slice, SliceEndpoint, SlicePort};

/// One endpoint after merging.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are Kubernetes' own conditions"
)]
pub struct Merged {
    /// Condition, null counted as true.
    pub ready: bool,
    /// Condition, null counted as true.
    pub serving: bool,
    /// Condition, null counted as false.
    pub terminating: bool,
    /// On this node.
    pub local: bool,
    /// `nodeName` of the winning entry.
    pub node: Option<String>,
    /// `targetRef.uid` of the winning entry.
    pub uid: Option<String>,
}

impl Merged {
    fn new(endpoint: &SliceEndpoint, this_node: &str) -> Self {
        let node = endpoint.node.as_deref().filter(|n| !n.is_empty());
        Self {
            ready: endpoint.ready.unwrap_or(true),
            serving: endpoint.serving.unwrap_or(true),
            terminating: endpoint.terminating.unwrap_or(false),
            local: node == Some(this_node),
            node: node.map(str::to_owned),
            uid: endpoint.uid.clone(),
        }
    }

    /// Ready first; then a pod that runs before one that ends (the address is the new pod's
    /// now); then serving. Two equal claims to one address cannot both be true: the local
    /// one can at least be checked here, and the rest makes the choice the same everywhere.
    fn rank(&self) -> impl Ord + '_ {
        (
            self.ready,
            !self.terminating,
            self.serving,
            self.local,
            &self.node,
            &self.uid,
        )
    }
}

/// Endpoints of one port name and protocol.
pub type Endpoints = BTreeMap<SocketAddr, Merged>;

/// The union of a Service's slices.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Union {
    /// By port name and protocol; no empty entries.
    pub ports: BTreeMap<(String, Protocol), Endpoints>,
    /// What was left out, with the slice's name.
    pub problems: Vec<(String, SliceError)>,
}

/// Why a slice, or a part of it, adds nothing.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum SliceError {
    /// FQDN, or something newer.
    #[error("addressType is {0:?}: expected IPv4 or IPv6")]
    AddressType(String),
    /// A port without a name.
    #[error("ports[{0}].name is missing: expected the Service port's name, \"\" when it has none")]
    PortName(usize),
    /// A port that means "all ports".
    #[error("ports[{0}].port is missing: expected a port number")]
    NoPort(usize),
    /// A port that is none.
    #[error("ports[{index}].port is {port}: expected 1-65535")]
    Port {
        /// Place in the list.
        index: usize,
        /// What it says.
        port: i32,
    },
    /// Not TCP or UDP.
    #[error("ports[{index}].protocol is {protocol:?}: expected TCP or UDP")]
    Protocol {
        /// Place in the list.
        index: usize,
        /// What it says.
        protocol: String,
    },
    /// An endpoint without an address.
    #[error("endpoints[{0}].addresses is empty: expected an address")]
    NoAddress(usize),
    /// An address that is none, or none that could be a pod's.
    #[error("endpoints[{index}].addresses[0] is {address:?}: expected a unicast {family} address")]
    Address {
        /// Place in the list.
        index: usize,
        /// What it says.
        address: String,
        /// What the slice's addressType promises.
        family: Family,
    },
}

/// Unites `slices` as seen from `this_node`.
pub fn merge<'a>(slices: impl Iterator<Item = &'a Slice>, this_node: &str) -> Union {
    let mut union = Union::default();
    for slice in slices {
        union.add(slice, this_node);
    }
    union.ports.retain(|_, endpoints| !endpoints.is_empty());
    union.problems.sort_by(|a, b| a.0.cmp(&b.0));
    union
}

impl Union {
    fn add(&mut self, slice: &Slice, this_node: &str) {
        let problem = |error| (slice.name.to_string(), error);
        let Some(family) = Family::parse(&slice.address_type) else {
            let error = SliceError::AddressType(slice.address_type.clone());
            self.problems.push(problem(error));
            return;
        };
        let mut endpoints = Vec::with_capacity(slice.endpoints.len());
        for (index, endpoint) in slice.endpoints.iter().enumerate() {
            match first_address(index, endpoint, family) {
                Ok(ip) => endpoints.push((ip, Merged::new(endpoint, this_node))),
                Err(error) => self.problems.push(problem(error)),
            }
        }
        for (index, port) in slice.ports.iter().enumerate() {
            match numbered(index, port) {
                Ok((name, protocol, number)) => {
                    let into = self.ports.entry((name.to_owned(), protocol)).or_default();
                    for (ip, merged) in &endpoints {
                        offer(into, SocketAddr::new(*ip, number), merged);
                    }
                }
                Err(error) => self.problems.push(problem(error)),
            }
        }
    }
}

/// Only the first address has a meaning in Kubernetes.
fn first_address(
    index: usize,
    endpoint: &SliceEndpoint,
    family: Family,
) -> Result<IpAddr, SliceError> {
    let text = endpoint
        .addresses
        .first()
        .ok_or(SliceError::NoAddress(index))?;
    let parsed = address::parse(text);
    parsed
        .filter(|ip| Family::of(*ip) == family && address::not_unicast(*ip).is_none())
        .ok_or_else(|| SliceError::Address {
            index,
            address: text.clone(),
            family,
        })
}

fn numbered(index: usize, port: &SlicePort) -> Result<(&str, Protocol, u16), SliceError> {
    let name = port.name.as_deref().ok_or(SliceError::PortName(index))?;
    let number = port.port.ok_or(SliceError::NoPort(index))?;
    let valid = u16::try_from(number).ok().filter(|n| *n != 0);
    let number = valid.ok_or(SliceError::Port {
        index,
        port: number,
    })?;
    let protocol = protocol(port.protocol.as_deref())
        .map_err(|protocol| SliceError::Protocol { index, protocol })?;
    Ok((name, protocol, number))
}

/// TCP when absent; what it says when it is neither TCP nor UDP.
pub(super) fn protocol(text: Option<&str>) -> Result<Protocol, String> {
    match text {
        None | Some("" | "TCP") => Ok(Protocol::Tcp),
        Some("UDP") => Ok(Protocol::Udp),
        Some(other) => Err(other.to_owned()),
    }
}

fn offer(into: &mut Endpoints, at: SocketAddr, candidate: &Merged) {
    match into.get_mut(&at) {
        Some(held) if held.rank() >= candidate.rank() => {}
        Some(held) => held.clone_from(candidate),
        None => {
            into.insert(at, candidate.clone());
        }
    }
}
