//! Which VIPs each Service has, and which of two Services has a VIP:port.
//!
//! The status decides where it speaks: an address there may come from any allocator, and
//! kube-proxy uses it too. Elsewhere our own allocation decides. Several Services may stand on
//! one VIP; a VIP:port belongs to the oldest.

use std::collections::BTreeMap;
use std::net::IpAddr;

use thiserror::Error;

use crate::desired::{FrontendKey, ObjectName};
use crate::model::alloc::{self, AllocError, Allocations, Request};
use crate::model::context::Context;
use crate::model::settings::Settings;
use crate::model::vip::{Admission, VipError};
use crate::watch::object::Service;

/// What a Service has.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Assignment {
    pub(super) vips: Vec<IpAddr>,
    /// Ports of its VIPs that an older Service has.
    pub(super) lost: BTreeMap<FrontendKey, ObjectName>,
    pub(super) problems: Vec<AssignError>,
}

/// Why a Service has less than it asked for.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub(super) enum AssignError {
    /// An address of the status that must not be a VIP.
    #[error("status.loadBalancer.ingress has {address}, which {source}")]
    Published {
        /// The address.
        address: IpAddr,
        /// What is wrong with it.
        source: VipError,
    },
    /// Host names and mode Proxy only.
    #[error(
        "status.loadBalancer.ingress has no entry with an ip in mode VIP: nothing to answer for"
    )]
    NoVip,
    /// Nobody has written an address yet, and we don't.
    #[error("status.loadBalancer.ingress is empty: expected an address from an allocator")]
    NoAddress,
    /// Two Services on one VIP:port.
    #[error("{address} port {port}/{protocol} belongs to the older Service {by}", address = key.address, port = key.port, protocol = key.protocol)]
    Older {
        /// The VIP:port.
        key: FrontendKey,
        /// Who has it.
        by: ObjectName,
    },
    /// Our own allocation.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}

/// Assigns VIPs to all Services of ours; returns what was allocated too, to be the next prior.
pub(super) fn assign<'a>(
    services: impl Iterator<Item = (&'a Service, &'a Settings)>,
    admission: &Admission,
    context: &Context,
    prior: &Allocations,
) -> (BTreeMap<ObjectName, Assignment>, Allocations) {
    let services: Vec<_> = services.collect();
    let mut assigned: BTreeMap<ObjectName, Assignment> = BTreeMap::new();
    let mut published = Vec::new();
    let mut requests = Vec::new();
    for (service, settings) in services.iter().copied() {
        let entry = assigned.entry(service.name.clone()).or_default();
        match &settings.published {
            Some(addresses) => {
                let request = || Request { service, settings };
                entry.publish(addresses, admission);
                published.extend(entry.vips.iter().map(|address| (*address, request())));
            }
            None if context.allocate => requests.push(Request { service, settings }),
            None => entry.problems.push(AssignError::NoAddress),
        }
    }
    let outcome = alloc::allocate(requests, &published, admission, prior, &context.reserved);
    for (name, addresses) in &outcome.addresses {
        assigned
            .entry(name.clone())
            .or_default()
            .vips
            .clone_from(addresses);
    }
    for (name, errors) in outcome.errors {
        let errors = errors.into_iter().map(AssignError::from);
        assigned.entry(name).or_default().problems.extend(errors);
    }
    settle(&services, &mut assigned);
    (assigned, Allocations::new(outcome.addresses))
}

impl Assignment {
    fn publish(&mut self, addresses: &[IpAddr], admission: &Admission) {
        if addresses.is_empty() {
            self.problems.push(AssignError::NoVip);
        }
        for address in addresses.iter().copied() {
            match admission.check(address) {
                Ok(()) => self.vips.push(address),
                Err(source) => self
                    .problems
                    .push(AssignError::Published { address, source }),
            }
        }
    }
}

/// Gives each VIP:port to the oldest Service that has it.
fn settle(services: &[(&Service, &Settings)], assigned: &mut BTreeMap<ObjectName, Assignment>) {
    let mut on_vip: BTreeMap<IpAddr, Vec<(&Service, &Settings)>> = BTreeMap::new();
    for (service, settings) in services {
        for vip in assigned.get(&service.name).map_or(&[][..], |a| &a.vips) {
            on_vip.entry(*vip).or_default().push((service, settings));
        }
    }
    for (address, mut users) in on_vip.into_iter().filter(|(_, users)| users.len() > 1) {
        users.sort_by(|a, b| alloc::age(a.0).cmp(&alloc::age(b.0)));
        let mut owners: BTreeMap<FrontendKey, &ObjectName> = BTreeMap::new();
        for (service, settings) in users {
            for port in &settings.ports {
                let key = FrontendKey {
                    address,
                    port: port.number,
                    protocol: port.protocol,
                };
                let owner = *owners.entry(key).or_insert(&service.name);
                if owner != &service.name
                    && let Some(loser) = assigned.get_mut(&service.name)
                {
                    loser.problems.push(AssignError::Older {
                        key,
                        by: owner.clone(),
                    });
                    loser.lost.insert(key, owner.clone());
                }
            }
        }
    }
}
