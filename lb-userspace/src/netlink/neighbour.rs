//! Neighbour entries that the kernel keeps fresh for us.
//!
//! A `Nat` endpoint's frames are sent by XDP, which the neighbour table never sees: an ordinary
//! entry would go stale and be forgotten. A *managed* entry is re-resolved by the kernel for ever.
//! Ours carry a protocol number of their own, so that `detach` finds them without a memory, and
//! an administrator's permanent entry is used, never replaced.

use std::net::Ipv4Addr;

use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourMessage,
    NeighbourState,
};
use rtnetlink::packet_route::route::RouteProtocol;
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{NetlinkError, request};

/// Marks entries of ours (`NDA_PROTOCOL`); no routing daemon uses it.
pub const PROTOCOL: u8 = 115;

/// An IPv4 neighbour entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Neighbour {
    /// Its address.
    pub ip: Ipv4Addr,
    /// The interface it is behind.
    pub ifindex: u32,
    /// Its hardware address; none while unresolved or failed.
    pub mac: Option<[u8; 6]>,
    /// How far it can be relied on.
    pub fitness: Fitness,
    /// Made by an administrator, not to be touched.
    pub permanent: bool,
    /// Made by us.
    pub ours: bool,
}

/// What the kernel thinks of a neighbour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fitness {
    /// Its hardware address is known.
    Valid,
    /// It is being asked for, or nobody has asked.
    Unresolved,
    /// It was asked and did not answer.
    Failed,
}

impl Neighbour {
    /// From the kernel's message; `None` for other families.
    pub(super) fn parse(message: &NeighbourMessage) -> Option<Self> {
        let mut ip = None;
        let mut mac = None;
        let mut ours = false;
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
                    ip = Some(*address);
                }
                NeighbourAttribute::LinkLayerAddress(address) => {
                    mac = address.as_slice().try_into().ok();
                }
                NeighbourAttribute::Protocol(protocol) => {
                    ours = u8::from(*protocol) == PROTOCOL;
                }
                _ => {}
            }
        }
        let fitness = match message.header.state {
            NeighbourState::Incomplete | NeighbourState::None => Fitness::Unresolved,
            NeighbourState::Failed => Fitness::Failed,
            // Probe: asked again, but the address was right a moment ago.
            _ => Fitness::Valid,
        };
        Some(Self {
            ip: ip?,
            ifindex: message.header.ifindex,
            mac: mac.filter(|_| fitness == Fitness::Valid),
            fitness,
            permanent: message.header.state == NeighbourState::Permanent,
            ours,
        })
    }
}

/// All IPv4 neighbours of this network namespace.
pub fn neighbours() -> Result<Vec<Neighbour>, NetlinkError> {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet;
    let answers = request::dump(
        "list neighbours",
        RouteNetlinkMessage::GetNeighbour(message),
    )?;
    let neighbours = answers.iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewNeighbour(neighbour) => Neighbour::parse(neighbour),
        _ => None,
    });
    Ok(neighbours.collect())
}

/// Hardware addresses that bridges of this network namespace have learned, with their ports.
pub(super) fn bridge_ports() -> Result<Vec<([u8; 6], u32)>, NetlinkError> {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    let answers = request::dump(
        "list bridge ports",
        RouteNetlinkMessage::GetNeighbour(message),
    )?;
    let ports = answers.iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewNeighbour(entry) => bridge_port(entry),
        _ => None,
    });
    Ok(ports.collect())
}

/// The hardware address and port of a bridge's entry.
pub(super) fn bridge_port(message: &NeighbourMessage) -> Option<([u8; 6], u32)> {
    if message.header.family != AddressFamily::Bridge {
        return None;
    }
    let mac = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(address) => address.as_slice().try_into().ok(),
            _ => None,
        })?;
    Some((mac, message.header.ifindex))
}

/// Has the kernel ask whether this neighbour is there. One whose hardware address is known keeps
/// it until that has failed.
pub(super) fn probe(ip: Ipv4Addr, ifindex: u32, known: bool) -> Result<(), NetlinkError> {
    let mut message = entry(ip, ifindex);
    let flags = if known {
        message.header.state = NeighbourState::Probe;
        NLM_F_REPLACE
    } else {
        message.header.flags = NeighbourFlags::Use;
        NLM_F_CREATE
    };
    let asked = request::change(
        "probe a neighbour",
        RouteNetlinkMessage::NewNeighbour(message),
        flags,
    );
    match asked {
        // It has gone meanwhile, or has never been resolved: then it is asked for anew.
        Err(error) if known && matches!(error.errno(), Some(libc::ENOENT | libc::EINVAL)) => {
            probe(ip, ifindex, false)
        }
        other => other,
    }
}

/// Those of them that we installed. One that an administrator has made permanent since is theirs,
/// though it still carries our number.
pub fn managed_neighbours() -> Result<Vec<Neighbour>, NetlinkError> {
    Ok(neighbours()?
        .into_iter()
        .filter(|neighbour| neighbour.ours && !neighbour.permanent)
        .collect())
}

/// Makes the kernel resolve this neighbour now and keep it fresh.
pub fn set_managed(ip: Ipv4Addr, ifindex: u32) -> Result<(), NetlinkError> {
    let mut message = entry(ip, ifindex);
    message
        .attributes
        .push(NeighbourAttribute::Protocol(RouteProtocol::from(PROTOCOL)));
    message
        .attributes
        .push(NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed));
    request::change(
        "install a managed neighbour",
        RouteNetlinkMessage::NewNeighbour(message),
        NLM_F_CREATE | NLM_F_REPLACE,
    )
}

/// Lets go of a neighbour of ours; no error when it is gone already.
pub fn remove_managed(ip: Ipv4Addr, ifindex: u32) -> Result<(), NetlinkError> {
    let message = RouteNetlinkMessage::DelNeighbour(entry(ip, ifindex));
    match request::change("remove a managed neighbour", message, 0) {
        Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::ENODEV)) => Ok(()),
        other => other,
    }
}

fn entry(ip: Ipv4Addr, ifindex: u32) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.ifindex = ifindex;
    message.header.state = NeighbourState::None;
    message
        .attributes
        .push(NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)));
    message
}
