//! Next hops of `Nat` endpoints: which neighbour a frame for an endpoint goes to, and by which
//! interface.
//!
//! The route gives neighbour and interface, the neighbour table its hardware address. [`NextHops`]
//! holds both, asks the kernel only about endpoints that are new or whose route may have changed,
//! and is told everything else by events. It must never guess: an endpoint without a route, or
//! with an unresolved neighbour, has no next hop.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Event, Links, NetlinkError, neighbour, request};
use crate::plan::NextHop;

/// The way to an address.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Route {
    /// The neighbour frames go to: a gateway, or the address itself.
    pub via: Ipv4Addr,
    /// The interface they leave by.
    pub ifindex: u32,
}

/// Asks the kernel for the way to an address; `None` when there is none, or when the address is
/// one of this node's.
pub fn route_to(address: Ipv4Addr) -> Result<Option<Route>, NetlinkError> {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = 32;
    message
        .attributes
        .push(RouteAttribute::Destination(RouteAddress::Inet(address)));
    let answers = match request::one("find a route", RouteNetlinkMessage::GetRoute(message)) {
        Err(error)
            if matches!(
                error.errno(),
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL)
            ) =>
        {
            return Ok(None);
        }
        other => other?,
    };
    Ok(answers.iter().find_map(|answer| match answer {
        RouteNetlinkMessage::NewRoute(route) => way(address, route),
        _ => None,
    }))
}

/// Interfaces of the IPv4 default routes of the main table.
pub fn default_route_interfaces() -> Result<BTreeSet<u32>, NetlinkError> {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    let answers = request::dump("list routes", RouteNetlinkMessage::GetRoute(message))?;
    let mut interfaces = BTreeSet::new();
    for answer in &answers {
        let RouteNetlinkMessage::NewRoute(route) = answer else {
            continue;
        };
        let header = &route.header;
        let main = header.table == RouteHeader::RT_TABLE_MAIN;
        if header.destination_prefix_length != 0 || header.kind != RouteType::Unicast || !main {
            continue;
        }
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => {
                    interfaces.insert(*index);
                }
                RouteAttribute::MultiPath(hops) => {
                    interfaces.extend(hops.iter().map(|hop| hop.interface_index));
                }
                _ => {}
            }
        }
    }
    Ok(interfaces)
}

/// Interface and hardware address of those of these addresses that are neighbours and resolved:
/// pods on this node.
pub fn local_hops(
    addresses: &BTreeSet<Ipv4Addr>,
) -> Result<BTreeMap<Ipv4Addr, (u32, [u8; 6])>, NetlinkError> {
    let mut hops = BTreeMap::new();
    if addresses.is_empty() {
        return Ok(hops);
    }
    for neighbour in neighbour::neighbours()? {
        let Some(mac) = neighbour.mac.filter(|_| addresses.contains(&neighbour.ip)) else {
            continue;
        };
        let route = Route {
            via: neighbour.ip,
            ifindex: neighbour.ifindex,
        };
        if route_to(neighbour.ip)? == Some(route) {
            hops.insert(neighbour.ip, (neighbour.ifindex, mac));
        }
    }
    Ok(hops)
}

fn way(address: Ipv4Addr, route: &RouteMessage) -> Option<Route> {
    if route.header.kind != RouteType::Unicast {
        return None;
    }
    let mut via = address;
    let mut ifindex = None;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => via = *gateway,
            RouteAttribute::Oif(index) => ifindex = Some(*index),
            _ => {}
        }
    }
    Some(Route {
        via,
        ifindex: ifindex?,
    })
}

/// Next hops of all endpoints that are reached by full NAT.
#[derive(Clone, Debug, Default)]
pub struct NextHops {
    routes: BTreeMap<Ipv4Addr, Option<Route>>,
    neighbours: BTreeMap<Route, Entry>,
}

/// A neighbour that is needed.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Its hardware address, once known.
    mac: Option<[u8; 6]>,
    /// Installed by us, ours to remove.
    managed: bool,
    /// Installed a moment ago, not resolved yet.
    fresh: bool,
}

impl NextHops {
    /// Brings routes and managed neighbours in line with the endpoints wanted. A neighbour that
    /// the kernel refuses stays unresolved and is returned; the rest goes on.
    pub fn want(&mut self, endpoints: &BTreeSet<Ipv4Addr>) -> Vec<(Ipv4Addr, NetlinkError)> {
        self.routes
            .retain(|endpoint, _| endpoints.contains(endpoint));
        self.want_also(endpoints)
    }

    /// True when these endpoints have routes: nothing need be asked to reach them.
    pub fn knows(&self, endpoints: &BTreeSet<Ipv4Addr>) -> bool {
        let known = |endpoint| self.routes.get(endpoint).is_some_and(Option::is_some);
        endpoints.iter().all(known)
    }

    /// Wants these endpoints besides the others.
    pub fn want_also(&mut self, endpoints: &BTreeSet<Ipv4Addr>) -> Vec<(Ipv4Addr, NetlinkError)> {
        let mut failures = Vec::new();
        for endpoint in endpoints {
            if self.routes.get(endpoint).is_some_and(Option::is_some) {
                continue;
            }
            match route_to(*endpoint) {
                Ok(route) => {
                    self.routes.insert(*endpoint, route);
                }
                Err(error) => failures.push((*endpoint, error)),
            }
        }
        self.settle(&mut failures);
        failures
    }

    /// Asks for all routes again, after one has changed.
    pub fn reroute(&mut self) -> Vec<(Ipv4Addr, NetlinkError)> {
        let endpoints: BTreeSet<_> = self.routes.keys().copied().collect();
        self.routes.values_mut().for_each(|route| *route = None);
        self.want(&endpoints)
    }

    /// Installs the neighbours that are missing and removes those that nobody needs.
    fn settle(&mut self, failures: &mut Vec<(Ipv4Addr, NetlinkError)>) {
        let needed: BTreeSet<Route> = self.routes.values().copied().flatten().collect();
        self.neighbours.retain(|route, entry| {
            let keep = needed.contains(route);
            if !keep
                && entry.managed
                && let Err(error) = neighbour::remove_managed(route.via, route.ifindex)
            {
                failures.push((route.via, error));
            }
            keep
        });
        let missing: Vec<Route> = needed
            .into_iter()
            .filter(|route| !self.neighbours.contains_key(route))
            .collect();
        if missing.is_empty() {
            return;
        }
        let known = neighbour::neighbours().unwrap_or_else(|error| {
            failures.push((Ipv4Addr::UNSPECIFIED, error));
            Vec::new()
        });
        for route in missing {
            let entry = known
                .iter()
                .find(|entry| entry.ip == route.via && entry.ifindex == route.ifindex);
            let managed = !entry.is_some_and(|entry| entry.permanent);
            if managed
                && !entry.is_some_and(|entry| entry.ours)
                && let Err(error) = neighbour::set_managed(route.via, route.ifindex)
            {
                failures.push((route.via, error));
                continue;
            }
            let mac = entry.and_then(|entry| entry.mac);
            let fresh = mac.is_none();
            self.neighbours.insert(
                route,
                Entry {
                    mac,
                    managed,
                    fresh,
                },
            );
        }
    }

    /// Installs neighbours again that somebody (or a cable) has removed.
    pub fn refresh(&mut self) -> Vec<(Ipv4Addr, NetlinkError)> {
        let mut failures = Vec::new();
        self.settle(&mut failures);
        failures
    }

    /// Gives neighbours that were installed a moment ago the time to be resolved: an endpoint in
    /// use before its next hop is known costs its first clients a SYN, which is a second. Asks the
    /// kernel up to `tries` times, a millisecond apart; one that stays silent is not waited for
    /// again.
    pub fn await_fresh(&mut self, tries: u32) {
        for attempt in 0..tries {
            if !self.neighbours.values().any(|entry| entry.fresh) {
                return;
            }
            if attempt > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let Ok(known) = neighbour::neighbours() else {
                break;
            };
            for neighbour in known.iter().filter(|neighbour| neighbour.mac.is_some()) {
                let route = Route {
                    via: neighbour.ip,
                    ifindex: neighbour.ifindex,
                };
                if let Some(entry) = self.neighbours.get_mut(&route) {
                    entry.mac = neighbour.mac;
                    entry.fresh = false;
                }
            }
        }
        for entry in self.neighbours.values_mut() {
            entry.fresh = false;
        }
    }

    /// Takes in what the kernel said; true when a next hop has changed. [`Self::refresh`] should
    /// follow then, in case its entry is gone.
    pub fn handle(&mut self, event: &Event) -> bool {
        match event {
            Event::Neighbour(neighbour) => {
                let route = Route {
                    via: neighbour.ip,
                    ifindex: neighbour.ifindex,
                };
                let Some(entry) = self.neighbours.get_mut(&route) else {
                    return false;
                };
                // An administrator may have made it theirs.
                entry.managed &= !neighbour.permanent;
                let changed = entry.mac != neighbour.mac;
                entry.mac = neighbour.mac;
                changed
            }
            Event::NeighbourGone(neighbour) => {
                let route = Route {
                    via: neighbour.ip,
                    ifindex: neighbour.ifindex,
                };
                // Forgotten here, so that it is installed again.
                self.neighbours.remove(&route).is_some()
            }
            Event::Link(_)
            | Event::LinkGone { .. }
            | Event::BridgePortLearned { .. }
            | Event::BridgePortForgot { .. }
            | Event::Route { .. }
            | Event::RouteGone { .. }
            | Event::AddressesChanged { .. }
            | Event::Lost => false,
        }
    }

    /// Next hops by endpoint address; those that are unresolved are missing.
    pub fn resolved(&self, links: &Links) -> BTreeMap<Ipv4Addr, NextHop> {
        let hop = |route: &Route| {
            Some(NextHop {
                ip: route.via,
                ifindex: route.ifindex,
                mac: self.neighbours.get(route)?.mac?,
                own_mac: links.by_index(route.ifindex)?.mac?,
            })
        };
        self.routes
            .iter()
            .filter_map(|(endpoint, route)| Some((*endpoint, hop(route.as_ref()?)?)))
            .collect()
    }
}
