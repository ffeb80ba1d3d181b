//! What happens to links, neighbours, bridge ports, routes and addresses, as a stream of events.
//!
//! Signs that a pod on this node has died come from here as well: its veth or route is gone, or
//! the bridge has forgotten its hardware address (which ageing does too). They are told as data;
//! what follows from them is decided elsewhere. When the kernel had more to say than the socket
//! could hold, [`Event::Lost`] asks the reader to list everything again.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use futures::StreamExt as _;
use ipnet::Ipv4Net;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::LinkMessage;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::task::JoinHandle;

use super::neighbour::bridge_port;
use super::{Link, Neighbour};

/// What the kernel said.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// An interface is new or has changed.
    Link(Link),
    /// An interface is gone.
    LinkGone {
        /// Its index.
        index: u32,
        /// Its name.
        name: String,
    },
    /// A neighbour is new or has changed.
    Neighbour(Neighbour),
    /// A neighbour entry is gone.
    NeighbourGone(Neighbour),
    /// A bridge has learned where a hardware address is.
    BridgePortLearned {
        /// The port.
        ifindex: u32,
        /// The hardware address.
        mac: [u8; 6],
    },
    /// A bridge has forgotten a hardware address: its port went down, or the entry aged.
    BridgePortForgot {
        /// The port.
        ifindex: u32,
        /// The hardware address.
        mac: [u8; 6],
    },
    /// A route is new or has changed.
    Route {
        /// Its destination.
        destination: Ipv4Net,
        /// The interface, where it has one.
        ifindex: Option<u32>,
    },
    /// A route is gone.
    RouteGone {
        /// Its destination.
        destination: Ipv4Net,
        /// The interface, where it had one.
        ifindex: Option<u32>,
    },
    /// An interface has won or lost an address.
    AddressesChanged {
        /// The interface.
        ifindex: u32,
        /// The address.
        address: IpAddr,
    },
    /// Messages were lost: list everything again.
    Lost,
}

impl Event {
    /// True when a default route may have come or gone.
    pub fn concerns_default_route(&self) -> bool {
        match self {
            Self::Route { destination, .. } | Self::RouteGone { destination, .. } => {
                destination.prefix_len() == 0
            }
            Self::Lost => true,
            Self::Link(_)
            | Self::LinkGone { .. }
            | Self::Neighbour(_)
            | Self::NeighbourGone(_)
            | Self::BridgePortLearned { .. }
            | Self::BridgePortForgot { .. }
            | Self::AddressesChanged { .. } => false,
        }
    }
}

/// A subscription to [`Event`]s; ends with its last reader.
#[derive(Debug)]
pub struct Watch {
    events: tokio::sync::mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Subscribes. Needs a tokio runtime; the network namespace is that of the calling thread.
    pub fn open() -> io::Result<Self> {
        let (connection, handle, mut messages) = new_multicast_connection(&[
            MulticastGroup::Link,
            MulticastGroup::Neigh,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv4Route,
        ])?;
        let (sender, events) = tokio::sync::mpsc::channel(1024);
        let task = tokio::spawn(async move {
            // The connection ends when its handles are gone.
            let _handle = handle;
            let pump = async {
                while let Some((message, _)) = messages.next().await {
                    let Some(event) = event(message.payload) else {
                        continue;
                    };
                    if sender.send(event).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! { () = connection => {}, () = pump => {} }
        });
        Ok(Self { events, task })
    }

    /// The next event; `None` when the socket is gone and the watch must be opened again.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn event(payload: NetlinkPayload<RouteNetlinkMessage>) -> Option<Event> {
    let message = match payload {
        NetlinkPayload::InnerMessage(message) => message,
        NetlinkPayload::Overrun(_) => return Some(Event::Lost),
        _ => return None,
    };
    match message {
        // Bridge ports repeat their link in the bridge's own family.
        RouteNetlinkMessage::NewLink(link) if !of_bridge(&link) => {
            Link::parse(&link).map(Event::Link)
        }
        RouteNetlinkMessage::DelLink(link) if !of_bridge(&link) => {
            Link::parse(&link).map(|link| Event::LinkGone {
                index: link.index,
                name: link.name,
            })
        }
        RouteNetlinkMessage::NewNeighbour(neighbour) => {
            let learned = bridge_port(&neighbour)
                .map(|(mac, ifindex)| Event::BridgePortLearned { ifindex, mac });
            learned.or_else(|| Neighbour::parse(&neighbour).map(Event::Neighbour))
        }
        RouteNetlinkMessage::DelNeighbour(neighbour) => {
            let forgotten = bridge_port(&neighbour)
                .map(|(mac, ifindex)| Event::BridgePortForgot { ifindex, mac });
            forgotten.or_else(|| Neighbour::parse(&neighbour).map(Event::NeighbourGone))
        }
        RouteNetlinkMessage::NewRoute(route) => {
            let (destination, ifindex) = destination(&route)?;
            Some(Event::Route {
                destination,
                ifindex,
            })
        }
        RouteNetlinkMessage::DelRoute(route) => {
            let (destination, ifindex) = destination(&route)?;
            Some(Event::RouteGone {
                destination,
                ifindex,
            })
        }
        RouteNetlinkMessage::NewAddress(address) | RouteNetlinkMessage::DelAddress(address) => {
            addresses(&address)
        }
        _ => None,
    }
}

fn of_bridge(link: &LinkMessage) -> bool {
    link.header.interface_family == AddressFamily::Bridge
}

fn destination(route: &RouteMessage) -> Option<(Ipv4Net, Option<u32>)> {
    if route.header.address_family != AddressFamily::Inet {
        return None;
    }
    let mut address = Ipv4Addr::UNSPECIFIED;
    let mut ifindex = None;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(to)) => address = *to,
            RouteAttribute::Oif(index) => ifindex = Some(*index),
            _ => {}
        }
    }
    Some((
        Ipv4Net::new(address, route.header.destination_prefix_length).ok()?,
        ifindex,
    ))
}

fn addresses(message: &AddressMessage) -> Option<Event> {
    let address = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Local(address) | AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })?;
    Some(Event::AddressesChanged {
        ifindex: message.header.index,
        address,
    })
}
