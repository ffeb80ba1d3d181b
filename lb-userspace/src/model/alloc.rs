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
use crate::model::context::Reserved;
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
    #[error("address {address} is still draining for {by}")]
    Draining {
        /// The address asked for.
        address: IpAddr,
        /// Who had it.
        by: String,
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
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    /// Place of its answer in the outcome.
    pub(super) index: usize,
    pub(super) service: &'a Service,
    pub(super) settings: &'a Settings,
}

/// What one Service got.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    /// In the order asked for, or of the Service's families.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) errors: Vec<AllocError>,
}

/// Oldest first: by creation, then by name, which is the order they come in. A Service
/// without a time is taken for the youngest.
pub(super) fn by_age(requests: &mut [Request<'_>]) {
    requests.sort_by_key(|request| request.service.created.unwrap_or(i64::MAX));
}

/// Gives addresses to `requests`, which come in name order; the answer is in the order of
/// their indices, below `count`. `published` are addresses that other Services have by their
/// status: they are not free. In rounds, each oldest first: what a Service had, what it asks
/// for, and then what is free.
pub(super) fn allocate(
    mut requests: Vec<Request<'_>>,
    published: &[(IpAddr, Request<'_>)],
    count: usize,
    admission: &Admission,
    prior: &Allocations,
    reserved: &Reserved,
) -> Vec<Given> {
    by_age(&mut requests);
    let mut round = Allocator {
        admission,
        ledger: Ledger::new(reserved),
        cursors: BTreeMap::new(),
        given: vec![Given::default(); count],
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
    round.given
}

struct Allocator<'a> {
    admission: &'a Admission,
    ledger: Ledger<'a>,
    /// Per pool and range, where the search for a free address goes on: addresses are only
    /// ever taken within one run, so nothing free is left behind.
    cursors: BTreeMap<(&'a str, usize), Option<IpAddr>>,
    given: Vec<Given>,
}

impl<'a> Allocator<'a> {
    /// What it had, as far as it may still have it.
    fn keep(&mut self, request: &Request<'a>, prior: &Allocations) {
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

    fn give_requested(&mut self, request: &Request<'a>) {
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
        let given = &mut self.given[request.index].addresses;
        given.sort_by_key(|a| wanted.iter().position(|w| w == a));
    }

    fn give_any(&mut self, request: &Request<'a>) {
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
        let given = &mut self.given[request.index].addresses;
        given.sort_by_key(|a| families.iter().position(|f| *f == Family::of(*a)));
    }

    fn give_family(&mut self, request: &Request<'a>, family: Family) {
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
    fn pools(&self, request: &Request<'a>) -> Vec<&'a Pool> {
        let asked = request.settings.pool.as_deref();
        let pools = self.admission.pools.iter().filter(|pool| match asked {
            Some(name) => pool.name == name,
            None => pool.auto_assign,
        });
        pools.filter(|pool| pool.admits(request.service)).collect()
    }

    /// The lowest address of the pool that nobody has.
    fn free(&mut self, pool: &'a Pool, family: Family, request: &Request<'a>) -> Option<IpAddr> {
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
    fn may_have(&self, request: &Request<'a>, address: IpAddr) -> Result<(), AllocError> {
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

    fn give(&mut self, request: &Request<'a>, address: IpAddr) {
        self.ledger.take(address, request);
        self.given[request.index].addresses.push(address);
    }

    fn fail(&mut self, request: &Request<'a>, error: AllocError) {
        self.given[request.index].errors.push(error);
    }

    fn given(&self, request: &Request<'a>) -> &[IpAddr] {
        &self.given[request.index].addresses
    }

    fn has(&self, request: &Request<'a>, family: Family) -> bool {
        self.given(request).iter().any(|a| Family::of(*a) == family)
    }
}
