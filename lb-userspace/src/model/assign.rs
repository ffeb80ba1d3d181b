//! Which VIPs each Service has, and which of two Services has a VIP:port.
//!
//! The status decides where it speaks: an address there may come from any allocator, and
//! kube-proxy uses it too. Elsewhere our own allocation decides. Several Services may stand on
//! one VIP; a VIP:port belongs to the oldest.

use std::collections::BTreeMap;
use std::net::IpAddr;

use thiserror::Error;

use crate::desired::{FrontendKey, ObjectName};
use crate::model::alloc::{self, AllocError, Allocations, Given, Request};
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

/// Assigns VIPs to all Services of ours, given in name order and answered in the same; returns
/// what was allocated too, to be the next prior, when that is different.
pub(super) fn assign<'a>(
    services: impl Iterator<Item = (&'a Service, &'a Settings)>,
    admission: &Admission,
    context: &Context,
    prior: &Allocations,
) -> (Vec<Assignment>, Option<Allocations>) {
    let all: Vec<_> = services
        .enumerate()
        .map(|(index, (service, settings))| Request {
            index,
            service,
            settings,
        })
        .collect();
    let mut assigned = vec![Assignment::default(); all.len()];
    let mut published = Vec::new();
    let mut asked = Vec::new();
    for (request, entry) in all.iter().zip(&mut assigned) {
        match &request.settings.published {
            Some(addresses) => {
                entry.publish(addresses, admission);
                published.extend(entry.vips.iter().map(|address| (*address, *request)));
            }
            None if context.allocate => asked.push(*request),
            None => entry.problems.push(AssignError::NoAddress),
        }
    }
    let (count, reserved) = (all.len(), &context.reserved);
    let mut given = alloc::allocate(asked.clone(), &published, count, admission, prior, reserved);
    let next = next_prior(&asked, &given, prior);
    for request in &asked {
        let Given { addresses, errors } = std::mem::take(&mut given[request.index]);
        let entry = &mut assigned[request.index];
        entry.vips = addresses;
        entry
            .problems
            .extend(errors.into_iter().map(AssignError::from));
    }
    settle(&all, &mut assigned);
    (assigned, next)
}

/// Almost always nothing new was given: then no name is copied.
fn next_prior(asked: &[Request<'_>], given: &[Given], prior: &Allocations) -> Option<Allocations> {
    let addresses = |request: &Request<'_>| given[request.index].addresses.as_slice();
    let holders = || {
        asked
            .iter()
            .filter(|request| !addresses(request).is_empty())
    };
    let same = asked
        .iter()
        .all(|r| prior.of(&r.service.name) == addresses(r));
    if same && holders().count() == prior.services().len() {
        return None;
    }
    let named = holders().map(|r| (r.service.name.clone(), addresses(r).to_vec()));
    Some(Allocations::new(named.collect()))
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
fn settle(all: &[Request<'_>], assigned: &mut [Assignment]) {
    let mut users: Vec<(IpAddr, usize)> = Vec::with_capacity(all.len());
    for (index, assignment) in assigned.iter().enumerate() {
        users.extend(assignment.vips.iter().map(|vip| (*vip, index)));
    }
    users.sort_unstable();
    for on_vip in users
        .chunk_by(|a, b| a.0 == b.0)
        .filter(|users| users.len() > 1)
    {
        let mut sharers: Vec<_> = on_vip.iter().map(|(_, index)| all[*index]).collect();
        alloc::by_age(&mut sharers);
        let address = on_vip[0].0;
        let mut owners: BTreeMap<FrontendKey, &ObjectName> = BTreeMap::new();
        for sharer in sharers {
            for port in &sharer.settings.ports {
                let key = FrontendKey {
                    address,
                    port: port.number,
                    protocol: port.protocol,
                };
                let owner = *owners.entry(key).or_insert(&sharer.service.name);
                if owner != &sharer.service.name {
                    let loser = &mut assigned[sharer.index];
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
