//! Pods on this node: by which link each is reached, and what the kernel says of it.
//!
//! A pod that is deleted together with its namespace falls silent; the first to know is its own
//! node. Its link or its route gone is proof. That the bridge has forgotten its hardware address,
//! or that its link has no carrier, is a suspicion (the one comes of mere ageing too), which a
//! probe confirms: three questions of the kernel's own that nobody answers. Nothing in here decides
//! what follows; a pod that is not a neighbour of ours (behind a gateway) is not watched.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::neighbour::{self, Fitness};
use super::{Event, Neighbour, NetlinkError, Route, route_to};
use crate::timer::drain::PodSight;

/// What the watch asks of the kernel.
pub trait Kernel {
    /// The way to a pod.
    fn route(&self, pod: Ipv4Addr) -> Option<Route>;

    /// All neighbours.
    fn neighbours(&self) -> Vec<Neighbour>;

    /// Hardware addresses behind each bridge port.
    fn bridge_ports(&self) -> Vec<([u8; 6], u32)>;

    /// Indices of all interfaces.
    fn links(&self) -> BTreeSet<u32>;

    /// Has the kernel ask whether a neighbour is there; `known` when it has a hardware address
    /// for it.
    fn probe(&self, pod: Ipv4Addr, ifindex: u32, known: bool);
}

/// The node's kernel.
#[derive(Clone, Copy, Debug)]
pub struct Node;

impl Kernel for Node {
    fn route(&self, pod: Ipv4Addr) -> Option<Route> {
        told("find the way to a pod", route_to(pod))
    }

    fn neighbours(&self) -> Vec<Neighbour> {
        told("list neighbours", neighbour::neighbours())
    }

    fn bridge_ports(&self) -> Vec<([u8; 6], u32)> {
        told("list bridge ports", neighbour::bridge_ports())
    }

    fn links(&self) -> BTreeSet<u32> {
        let links = told("list interfaces", super::links());
        links.into_iter().map(|link| link.index).collect()
    }

    fn probe(&self, pod: Ipv4Addr, ifindex: u32, known: bool) {
        told("probe a pod", neighbour::probe(pod, ifindex, known));
    }
}

/// Nothing, where the kernel has no answer; it is asked again with the next event.
fn told<T: Default>(what: &str, answer: Result<T, NetlinkError>) -> T {
    answer.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot {what}");
        T::default()
    })
}

/// Why a pod is thought dead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Death {
    /// Its link is gone.
    Link,
    /// Its route is gone.
    Route,
    /// It does not answer.
    Silence,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pod {
    /// The interface its route names: its own link, or the bridge.
    home: Option<u32>,
    /// Its hardware address, as last known.
    mac: Option<[u8; 6]>,
    /// The kernel has a hardware address for it now.
    resolved: bool,
    /// The bridge's port it was last seen behind.
    port: Option<u32>,
    death: Option<Death>,
}

impl Pod {
    fn is_behind(&self, link: u32) -> bool {
        self.home == Some(link) || self.port == Some(link)
    }
}

/// Pods that are watched.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    pods: BTreeMap<Ipv4Addr, Pod>,
    /// Ports by hardware address, of all bridges.
    ports: BTreeMap<[u8; 6], u32>,
}

impl Pods {
    /// Watches just these. New ones are probed: what became of them before is not known.
    pub fn want(&mut self, pods: &BTreeSet<Ipv4Addr>, kernel: &impl Kernel) {
        self.pods.retain(|address, _| pods.contains(address));
        let new: Vec<_> = pods
            .iter()
            .filter(|address| !self.pods.contains_key(*address))
            .copied()
            .collect();
        if new.is_empty() {
            return;
        }
        if self.pods.is_empty() {
            self.ports = kernel.bridge_ports().into_iter().collect();
        }
        let neighbours = kernel.neighbours();
        for address in new {
            let mut pod = Pod {
                home: home(address, kernel),
                ..Pod::default()
            };
            let known = neighbours
                .iter()
                .find(|known| known.ip == address && Some(known.ifindex) == pod.home);
            if let Some(known) = known {
                pod.resolved = known.mac.is_some();
                pod.mac = known.mac;
                pod.port = known.mac.and_then(|mac| self.ports.get(&mac).copied());
            }
            self.pods.insert(address, pod);
            // One that an administrator has made permanent is never asked for.
            if !known.is_some_and(|known| known.permanent) {
                self.probe(address, kernel);
            }
        }
    }

    /// Has the kernel ask for this pod.
    pub fn probe(&self, pod: Ipv4Addr, kernel: &impl Kernel) {
        if let Some((known, home)) = self.pods.get(&pod).and_then(|pod| Some((pod, pod.home?))) {
            kernel.probe(pod, home, known.resolved);
        }
    }

    /// Asks for those that are thought dead, in case another has taken their place.
    pub fn probe_dead(&mut self, kernel: &impl Kernel) {
        for (address, pod) in &mut self.pods {
            if pod.death.is_some() && pod.home.is_none() {
                pod.home = home(*address, kernel);
            }
        }
        let dead = self.pods.iter().filter(|(_, pod)| pod.death.is_some());
        for address in dead.map(|(address, _)| *address).collect::<Vec<_>>() {
            self.probe(address, kernel);
        }
    }

    /// Takes in what the kernel said.
    pub fn handle(&mut self, event: &Event, kernel: &impl Kernel) -> Vec<PodSight> {
        match event {
            Event::LinkGone { index, .. } => self.link_gone(*index),
            Event::Link(link) if !link.up => self.suspect(|pod| pod.is_behind(link.index)),
            Event::Route { destination, .. } => self.reroute(kernel, |address, pod, now| {
                let host = destination.prefix_len() == 32;
                let here = destination.contains(&address);
                here.then(|| pod.route_came(address, host, now))?
            }),
            Event::RouteGone { destination, .. } => self.reroute(kernel, |address, pod, now| {
                let here = destination.contains(&address);
                here.then(|| pod.route_went(address, now))?
            }),
            Event::Neighbour(neighbour) => {
                let ports = &self.ports;
                let pod = self.pods.get_mut(&neighbour.ip);
                let pod = pod.filter(|pod| pod.home == Some(neighbour.ifindex));
                let sight = pod.and_then(|pod| pod.neighbour(neighbour, ports));
                sight.into_iter().collect()
            }
            Event::NeighbourGone(neighbour) => {
                if let Some(pod) = self.pods.get_mut(&neighbour.ip) {
                    pod.resolved = false;
                }
                Vec::new()
            }
            Event::BridgePortLearned { ifindex, mac } => self.learned(*mac, *ifindex),
            Event::BridgePortForgot { ifindex, mac } => {
                if self.ports.get(mac) == Some(ifindex) {
                    self.ports.remove(mac);
                }
                self.suspect(|pod| pod.mac == Some(*mac) && pod.port == Some(*ifindex))
            }
            Event::Lost => self.list_again(kernel),
            Event::Link(_) | Event::AddressesChanged { .. } => Vec::new(),
        }
    }

    /// Asks for the ways to pods anew.
    fn reroute(
        &mut self,
        kernel: &impl Kernel,
        follow: impl Fn(Ipv4Addr, &mut Pod, Option<u32>) -> Option<PodSight>,
    ) -> Vec<PodSight> {
        let mut sights = Vec::new();
        let mut moved = Vec::new();
        for (address, pod) in &mut self.pods {
            let before = pod.home;
            sights.extend(follow(*address, pod, home(*address, kernel)));
            if pod.home != before {
                moved.push(*address);
            }
        }
        for address in moved {
            self.probe(address, kernel);
        }
        sights
    }

    fn link_gone(&mut self, index: u32) -> Vec<PodSight> {
        self.ports.retain(|_, port| *port != index);
        let mut sights = Vec::new();
        for (address, pod) in &mut self.pods {
            if !pod.is_behind(index) {
                continue;
            }
            if pod.home == Some(index) {
                // Its neighbour entry goes with it: whatever comes next is new.
                (pod.home, pod.mac, pod.resolved) = (None, None, false);
            }
            if pod.port == Some(index) {
                pod.port = None;
            }
            sights.extend(pod.die(*address, Death::Link));
        }
        sights
    }

    fn learned(&mut self, mac: [u8; 6], port: u32) -> Vec<PodSight> {
        self.ports.insert(mac, port);
        let mut sights = Vec::new();
        for (address, pod) in &mut self.pods {
            if pod.mac == Some(mac) {
                pod.port = Some(port);
                // It has just said something.
                if pod.death != Some(Death::Route) {
                    sights.extend(pod.live(*address));
                }
            }
        }
        sights
    }

    fn suspect(&self, which: impl Fn(&Pod) -> bool) -> Vec<PodSight> {
        let suspects = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.death.is_none() && which(pod));
        suspects
            .map(|(address, _)| PodSight::Suspect((*address).into()))
            .collect()
    }

    /// Messages were lost: what is not there any more is gone.
    fn list_again(&mut self, kernel: &impl Kernel) -> Vec<PodSight> {
        self.ports = kernel.bridge_ports().into_iter().collect();
        let links = kernel.links();
        let behind: BTreeSet<u32> = self
            .pods
            .values()
            .flat_map(|pod| pod.home.into_iter().chain(pod.port))
            .collect();
        let mut sights = Vec::new();
        for gone in behind.difference(&links) {
            sights.extend(self.link_gone(*gone));
        }
        sights.extend(self.reroute(kernel, |address, pod, now| {
            pod.route_went(address, now)
                .or_else(|| pod.route_came(address, false, now))
        }));
        for neighbour in kernel.neighbours() {
            sights.extend(self.handle(&Event::Neighbour(neighbour), kernel));
        }
        let alive = self.pods.iter().filter(|(_, pod)| pod.death.is_none());
        for address in alive.map(|(address, _)| *address).collect::<Vec<_>>() {
            self.probe(address, kernel);
        }
        sights
    }
}

impl Pod {
    /// A route that leads here has come; `host` when it is one to this pod alone.
    fn route_came(&mut self, address: Ipv4Addr, host: bool, now: Option<u32>) -> Option<PodSight> {
        let same = now == self.home;
        if now.is_some() && !same {
            (self.home, self.mac, self.resolved, self.port) = (now, None, false, None);
        }
        let back = now.is_some() && self.death == Some(Death::Route) && same;
        // A link of its own is made for a pod that is there.
        (back || now.is_some() && host && !same).then(|| self.live(address))?
    }

    /// A route that led here has gone. The link is remembered: the route may come back to it.
    fn route_went(&mut self, address: Ipv4Addr, now: Option<u32>) -> Option<PodSight> {
        if self.home.is_none() || now == self.home {
            return None;
        }
        self.die(address, Death::Route)
    }

    fn neighbour(&mut self, now: &Neighbour, ports: &BTreeMap<[u8; 6], u32>) -> Option<PodSight> {
        self.resolved = now.mac.is_some();
        match (now.fitness, now.mac) {
            (Fitness::Failed, _) => {
                let sight = self.die(now.ip, Death::Silence);
                // From here on any answer is a sign of life.
                self.death = Some(Death::Silence);
                sight
            }
            (Fitness::Valid, Some(mac)) => {
                let other = self.mac != Some(mac);
                self.mac = Some(mac);
                self.port = ports.get(&mac).copied().or(self.port.filter(|_| !other));
                let revives = match self.death {
                    // An entry outlives its pod's link; another hardware address does not.
                    Some(Death::Link) => other,
                    Some(Death::Silence) => true,
                    Some(Death::Route) | None => false,
                };
                revives.then(|| self.live(now.ip))?
            }
            (Fitness::Valid | Fitness::Unresolved, _) => None,
        }
    }

    fn die(&mut self, address: Ipv4Addr, death: Death) -> Option<PodSight> {
        if self.death.is_some() {
            return None;
        }
        self.death = Some(death);
        Some(PodSight::Gone(address.into()))
    }

    fn live(&mut self, address: Ipv4Addr) -> Option<PodSight> {
        self.death.take()?;
        Some(PodSight::Alive(address.into()))
    }
}

/// The interface that a pod is a neighbour on.
fn home(pod: Ipv4Addr, kernel: &impl Kernel) -> Option<u32> {
    let route = kernel.route(pod)?;
    (route.via == pod).then_some(route.ifindex)
}

#[cfg(test)]
mod tests;
