//! The next hops that a round needs: of all endpoints, or, where only some frontends have changed,
//! of theirs. A change must not cost a look at everything there is.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use super::Agent;
use super::lives::report;
use crate::desired::{FrontendKey, Via};
use crate::plan::Scope;

/// How many milliseconds a new next hop is waited for: a LAN answers within one.
const RESOLVE_TRIES: u32 = 50;

impl Agent {
    /// Brings the next hops up to date, as far as this round needs them.
    pub(super) fn find_hops(&mut self, scope: Scope<'_>) {
        match scope {
            Scope::All => self.find_all_hops(),
            Scope::Frontends(keys) => {
                let wanted = self.full_nat(keys.iter());
                // What is not wanted any more goes with the next look at all of them.
                self.hops_unneeded = true;
                if self.next_hops.knows(&wanted) {
                    return;
                }
                report(self.next_hops.want_also(&wanted));
                self.resolve_hops();
            }
        }
    }

    /// Lets go of neighbours that nobody needs any more.
    pub(super) fn drop_hops(&mut self) {
        if self.hops_unneeded {
            self.find_all_hops();
        }
    }

    fn find_all_hops(&mut self) {
        let desired = self.world.desired().frontends.keys();
        let keys: BTreeSet<_> = desired.chain(self.lives.keys()).copied().collect();
        let wanted = self.full_nat(keys.iter());
        self.hops_unneeded = false;
        report(self.next_hops.want(&wanted));
        self.resolve_hops();
    }

    fn resolve_hops(&mut self) {
        self.next_hops.await_fresh(RESOLVE_TRIES);
        self.hops = self.next_hops.resolved(&self.links);
    }

    /// Endpoints of these frontends that are reached by full NAT, those with old flows only too.
    fn full_nat<'a>(&mut self, keys: impl Iterator<Item = &'a FrontendKey>) -> BTreeSet<Ipv4Addr> {
        let desired = self.world.desired();
        let mut addresses = BTreeSet::new();
        let mut add = |via, address| {
            if let (Via::Nat, IpAddr::V4(address)) = (via, address) {
                addresses.insert(address);
            }
        };
        for key in keys {
            if let Some(frontend) = desired.frontends.get(key) {
                for endpoint in &frontend.endpoints {
                    add(endpoint.via, endpoint.address.ip());
                }
            }
            for (address, life) in self.lives.get(key).into_iter().flatten() {
                add(life.via, address.ip());
            }
        }
        addresses
    }
}
