//! Addresses for Services: a pure function of requests, pools and what was given before.
//!
//! The prior is what keeps addresses stable over restarts and over Services that come and go;
//! without one the result follows from the objects alone. No address goes to two Services,
//! unless both carry the same shared-key and their ports do not meet.

mod ledger;
mod prior;

use std::collections::BTreeMap;
use std::net::IpAddr;

use thiserror::Error;

use crate::desired::{ObjectName, Protocol};
use crate::model::Family;
use crate::model::pool::{self, Pool};
use crate::model::settings::{Settings, Wanted};
use crate::model::vip::{Admission, VipError};
use crate::watch::object::Service;

use ledger::Ledger;
pub use prior::{Allocations, PriorError};

/// Why a Service does not get an address.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub(super) enum AllocError {
    /// Not a possible VIP.
    #[error("address {address} {source}")]
    Vip {
        /// The address asked for.
        address: IpAddr,
        /// What is wrong with it.
        source: VipError,
    },
    /// The pool's selectors, or the pool asked for, do not allow it.
    #[error("address {address} is in AddressPool {pool}: expected one that {expected}")]
    NotAdmitted {
        /// The address asked for.
        address: IpAddr,
        /// The pool that has it.
        pool: String,
        /// What the Service's pool has to be.
        expected: &'static str,
    },
    /// Held back by avoidBuggyIPs.
    #[error("address {address} ends in .0 or .255, which AddressPool {pool} avoids")]
    Avoided {
        /// The address asked for.
        address: IpAddr,
        /// The pool that has it.
        pool: String,
    },
    /// One VIP:port, two Services.
    #[error("address {address} port {port}/{protocol} belongs to Service {by}")]
    PortTaken {
        /// The address asked for.
        address: IpAddr,
        /// The port both want.
        port: u16,
        /// Its protocol.
        protocol: Protocol,
        /// Who has it.
        by: ObjectName,
    },
    /// One VIP, two Services that did not agree to share.
    #[error(
        "address {address} belongs to Service {by}: expected the same sluice.dev/shared-key on both"
    )]
    Taken {
        /// The address asked for.
        address: IpAddr,
        /// Who has it.
        by: ObjectName,
    },
    /// Connections of its last owner are still draining.
    #[error("address {address} is still draining for Service {by}")]
    Draining {
        /// The address asked for.
        address: IpAddr,
        /// Who had it.
        by: ObjectName,
    },
    /// The annotation names a pool that is not there.
    #[error("AddressPool {0} does not exist: expected the name of a pool in sluice.dev/pool")]
    UnknownPool(String),
    /// No pool at all for this Service.
    #[error(
        "no AddressPool has {0} addresses for it: expected a pool with autoAssign whose selectors match"
    )]
    NoPool(Family),
    /// Pools, but nothing free in them.
    #[error("no free {family} address in AddressPool {pools}")]
    Exhausted {
        /// The family.
        family: Family,
        /// Names of the pools tried.
        pools: String,
    },
}

/// A Service that wants addresses.
pub(super) struct Request<'a> {
    pub(super) service: &'a Service,
    pub(super) settings: &'a Settings,
}

/// Who got what.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// In the order asked for, or of the Service's families.
    pub(super) addresses: BTreeMap<ObjectName, Vec<IpAddr>>,
    pub(super) errors: BTreeMap<ObjectName, Vec<AllocError>>,
}

/// Older first: by creation, then by name. A Service without a time is taken for the youngest.
pub(super) fn age(service: &Service) -> impl Ord + '_ {
    (service.created.unwrap_or(i64::MAX), &service.name)
}

/// Gives addresses to `requests`. `published` are addresses that other Services have by their
/// status: they are not free. In four rounds, each oldest first: what a Service had, what it
/// asks for, and then what is free.
pub(super) fn allocate(
    mut requests: Vec<Request<'_>>,
    published: &[(IpAddr, Request<'_>)],
    admission: &Admission,
    prior: &Allocations,
    reserved: &BTreeMap<IpAddr, ObjectName>,
) -> Outcome {
    requests.sort_by(|a, b| age(a.service).cmp(&age(b.service)));
    let mut round = Allocator {
        admission,
        ledger: Ledger::new(reserved),
        cursors: BTreeMap::new(),
        outcome: Outcome::default(),
    };
    for (address, request) in published {
        round.ledger.take(*address, request);
    }
    for request in &requests {
        round.keep(request, prior);
    }
    for request in &requests {
        round.give_requested(request);
    }
    for request in &requests {
        round.give_any(request);
    }
    round.outcome
}

struct Allocator<'a> {
    admission: &'a Admission,
    ledger: Ledger<'a>,
    /// Per pool and range, where the search for a free address goes on: addresses are only
    /// ever taken within one run, so nothing free is left behind.
    cursors: BTreeMap<(&'a str, usize), Option<IpAddr>>,
    outcome: Outcome,
}

impl<'a> Allocator<'a> {
    /// What it had, as far as it may still have it.
    fn keep(&mut self, request: &Request<'_>, prior: &Allocations) {
        for address in prior.of(&request.service.name) {
            let fits = match &request.settings.wanted {
                Wanted::These(wanted) => wanted.contains(address),
                Wanted::Any(families) => {
                    let family = Family::of(*address);
                    let of_family = if families.is_empty() {
                        self.given(request).is_empty()
                    } else {
                        families.contains(&family) && !self.has(request, family)
                    };
                    of_family && self.admission.pool_of(*address).is_some()
                }
                Wanted::Unreadable => false,
            };
            if fits && self.may_have(request, *address).is_ok() {
                self.give(request, *address);
            }
        }
    }

    fn give_requested(&mut self, request: &Request<'_>) {
        let Wanted::These(wanted) = &request.settings.wanted else {
            return;
        };
        for address in wanted {
            if self.given(request).contains(address) {
                continue;
            }
            match self.may_have(request, *address) {
                Ok(()) => self.give(request, *address),
                Err(error) => self.fail(request, error),
            }
        }
        // In the order asked for, whichever round gave it.
        if let Some(given) = self.outcome.addresses.get_mut(&request.service.name) {
            given.sort_by_key(|a| wanted.iter().position(|w| w == a));
        }
    }

    fn give_any(&mut self, request: &Request<'_>) {
        let Wanted::Any(families) = &request.settings.wanted else {
            return;
        };
        if families.is_empty() {
            // Manifests need not say: IPv4, or what there is.
            if self.given(request).is_empty() {
                let v4 = self.pools(request).iter().any(|p| p.has(Family::V4));
                let v6 = self.pools(request).iter().any(|p| p.has(Family::V6));
                self.give_family(request, if v6 && !v4 { Family::V6 } else { Family::V4 });
            }
            return;
        }
        for family in families {
            if !self.has(request, *family) {
                self.give_family(request, *family);
            }
        }
        if let Some(given) = self.outcome.addresses.get_mut(&request.service.name) {
            given.sort_by_key(|a| families.iter().position(|f| *f == Family::of(*a)));
        }
    }

    fn give_family(&mut self, request: &Request<'_>, family: Family) {
        if let Some(name) = &request.settings.pool
            && !self.admission.pools.iter().any(|p| p.name == *name)
        {
            return self.fail(request, AllocError::UnknownPool(name.clone()));
        }
        let mut pools = self.pools(request);
        pools.retain(|pool| pool.has(family));
        if pools.is_empty() {
            return self.fail(request, AllocError::NoPool(family));
        }
        let shared = self.ledger.of_key(request.settings.shared_key.as_deref());
        let shared = shared.into_iter().find(|address| {
            Family::of(*address) == family
                && pools.iter().any(|pool| pool.contains(*address))
                && self.ledger.may(*address, request).is_ok()
        });
        let free = shared.or_else(|| {
            pools
                .iter()
                .find_map(|pool| self.free(pool, family, request))
        });
        if let Some(address) = free {
            return self.give(request, address);
        }
        let pools: Vec<_> = pools.iter().map(|p| p.name.as_str()).collect();
        self.fail(
            request,
            AllocError::Exhausted {
                family,
                pools: pools.join(", "),
            },
        );
    }

    /// Pools the Service may be given any address of.
    fn pools(&self, request: &Request<'_>) -> Vec<&'a Pool> {
        let asked = request.settings.pool.as_deref();
        let pools = self.admission.pools.iter().filter(|pool| match asked {
            Some(name) => pool.name == name,
            None => pool.auto_assign,
        });
        pools.filter(|pool| pool.admits(request.service)).collect()
    }

    /// The lowest address of the pool that nobody has.
    fn free(&mut self, pool: &'a Pool, family: Family, request: &Request<'_>) -> Option<IpAddr> {
        for (index, range) in pool.ranges.iter().enumerate() {
            if Family::of(range.first) != family {
                continue;
            }
            let cursor = self
                .cursors
                .entry((&pool.name, index))
                .or_insert(Some(range.first));
            while let Some(address) = cursor.filter(|a| range.contains(*a)) {
                let refusal = self
                    .admission
                    .refusal(address)
                    .map(|(net, _)| net.broadcast());
                *cursor = pool::next(refusal.unwrap_or(address));
                let good = self.admission.check(address).is_ok() && !pool.avoids(address);
                if good && refusal.is_none() && self.ledger.is_free(address, request) {
                    return Some(address);
                }
            }
        }
        None
    }

    /// Whether the Service may have just this address.
    fn may_have(&self, request: &Request<'_>, address: IpAddr) -> Result<(), AllocError> {
        let vip = self.admission.check(address);
        vip.map_err(|source| AllocError::Vip { address, source })?;
        let holding = self.admission.pools.iter().filter(|p| p.contains(address));
        let asked = request.settings.pool.as_deref();
        let mut refusal = None;
        let mut found = false;
        for pool in holding {
            let name = || pool.name.clone();
            if asked.is_some_and(|asked| asked != pool.name) {
                let expected = "sluice.dev/pool names";
                refusal = Some(AllocError::NotAdmitted {
                    address,
                    pool: name(),
                    expected,
                });
            } else if !pool.admits(request.service) {
                let expected = "has selectors that match the Service";
                refusal = Some(AllocError::NotAdmitted {
                    address,
                    pool: name(),
                    expected,
                });
            } else if pool.avoids(address) {
                refusal = Some(AllocError::Avoided {
                    address,
                    pool: name(),
                });
            } else {
                found = true;
            }
        }
        match refusal {
            Some(refusal) if !found && !self.admission.is_allowed(address) => Err(refusal),
            Some(_) | None => self.ledger.may(address, request),
        }
    }

    fn give(&mut self, request: &Request<'_>, address: IpAddr) {
        self.ledger.take(address, request);
        let name = request.service.name.clone();
        self.outcome
            .addresses
            .entry(name)
            .or_default()
            .push(address);
    }

    fn fail(&mut self, request: &Request<'_>, error: AllocError) {
        let name = request.service.name.clone();
        self.outcome.errors.entry(name).or_default().push(error);
    }

    fn given(&self, request: &Request<'_>) -> &[IpAddr] {
        self.outcome
            .addresses
            .get(&request.service.name)
            .map_or(&[], Vec::as_slice)
    }

    fn has(&self, request: &Request<'_>, family: Family) -> bool {
        self.given(request).iter().any(|a| Family::of(*a) == family)
    }
}
