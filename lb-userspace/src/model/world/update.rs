//! Recomputing: in stages, each skipped when nothing it depends on was touched.
//!
//! Admission (what may be a VIP), assignment (who has which), views (one Service's frontends),
//! tiers (may this node answer), and the list of what was left out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::desired::{Frontend, FrontendKey, Ignored, ObjectName, Tier, Vip};
use crate::model::assign::{self, Assignment};
use crate::model::frontend::{self, View};
use crate::model::pool::Pool;
use crate::model::select::Use;
use crate::model::settings::{self, Settings};
use crate::model::tier;
use crate::model::vip::Admission;
use crate::model::world::{Entry, World};
use crate::watch::object::Node;

/// Frontends as they were, for telling what changed.
type Before = BTreeMap<FrontendKey, Option<Frontend>>;

impl World {
    pub(super) fn bring_up_to_date(&mut self) {
        let mut stale = std::mem::take(&mut self.stale);
        if !self.desired.complete {
            self.desired.complete = true;
            self.changes.completed = true;
            stale
                .services
                .extend(self.services.values().map(|s| s.name.clone()));
            (stale.admission, stale.ignored) = (true, true);
        }
        for name in &stale.services {
            self.check(name);
        }
        let mut vips: BTreeSet<IpAddr> = BTreeSet::new();
        if stale.admission {
            self.renew_admission();
            stale.ignored = true;
        }
        if stale.admission || stale.assignment {
            self.assign(&mut stale.services);
        }
        if stale.admission || stale.tiers {
            vips.extend(self.users.keys());
            stale.ignored = true;
        }
        self.renew_views(&stale.services, &mut vips, &mut stale.ignored);
        for vip in vips {
            // What is said of this node names the VIPs it cannot answer for.
            stale.ignored |= self.renew_tier(vip);
        }
        if stale.ignored {
            self.renew_ignored();
        }
    }

    /// Reads a Service's fields again, or forgets it when it is gone or not ours.
    fn check(&mut self, name: &ObjectName) {
        let service = self.services.get(name);
        let service = service.filter(|s| settings::ours(s, &self.context).is_ok());
        match (service.map(Settings::of), self.entries.get_mut(name)) {
            (Some(settings), Some(entry)) => entry.settings = settings,
            (Some(settings), None) => {
                self.entries.insert(name.clone(), Entry::new(settings));
            }
            // Its frontends are removed by `renew_views`, which needs to know them.
            (None, Some(entry)) => entry.assignment = Assignment::default(),
            (None, None) => {}
        }
    }

    fn renew_admission(&mut self) {
        self.pool_problems.clear();
        let mut pools = Vec::new();
        for spec in self.pools.values() {
            let (pool, problems) = Pool::of(spec);
            let object = || format!("AddressPool/{}", pool.name);
            let said = problems.iter().map(ToString::to_string);
            self.pool_problems.extend(said.map(|reason| Ignored {
                object: object(),
                reason,
            }));
            pools.push(pool);
        }
        self.admission = Admission::new(&self.context, pools, self.nodes.values());
    }

    /// Decides again who has which VIP, and adds the Services for which that changes something.
    fn assign(&mut self, stale: &mut BTreeSet<ObjectName>) {
        let (services, context) = (&self.services, &self.context);
        let is_ours = |name: &ObjectName| {
            let service = services.get(name)?;
            settings::ours(service, context).is_ok().then_some(service)
        };
        let ours: Vec<_> = self.entries.keys().map(is_ours).collect();
        let with_settings = ours.iter().zip(self.entries.values());
        let with_settings = with_settings.filter_map(|(s, e)| Some(((*s)?, &e.settings)));
        let (assigned, given) =
            assign::assign(with_settings, &self.admission, context, &self.prior);
        let entries = self
            .entries
            .iter_mut()
            .zip(&ours)
            .filter(|(_, ours)| ours.is_some());
        for (((name, entry), _), assignment) in entries.zip(assigned) {
            if entry.assignment != assignment {
                entry.assignment = assignment;
                stale.insert(name.clone());
            }
        }
        if let Some(given) = given {
            self.prior = given;
        }
    }

    /// Recomputes the stale Services. First all old frontends leave, then all new ones come: a
    /// VIP:port may pass from one Service to another.
    fn renew_views(
        &mut self,
        stale: &BTreeSet<ObjectName>,
        vips: &mut BTreeSet<IpAddr>,
        ignored: &mut bool,
    ) {
        let mut before = BTreeMap::new();
        for name in stale {
            self.withdraw(name, vips, &mut before);
        }
        for name in stale {
            *ignored |= match self.view(name) {
                Some(view) => self.put(name, view, vips, &mut before),
                None => self
                    .entries
                    .remove(name)
                    .is_some_and(|e| !e.ignored.is_empty()),
            };
        }
        for (key, old) in before {
            if self.desired.frontends.get(&key) != old.as_ref() {
                self.changes.frontends.insert(key);
            }
        }
    }

    fn withdraw(&mut self, name: &ObjectName, vips: &mut BTreeSet<IpAddr>, before: &mut Before) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        for key in std::mem::take(&mut entry.frontends) {
            before.insert(key, self.desired.frontends.remove(&key));
        }
        for vip in std::mem::take(&mut entry.reach).into_keys() {
            vips.insert(vip);
            if let Some(users) = self.users.get_mut(&vip) {
                users.remove(name);
            }
        }
    }

    /// The Service's view; `None` when it is gone or no longer ours.
    fn view(&self, name: &ObjectName) -> Option<View> {
        let service = self.services.get(name)?;
        let entry = self.entries.get(name)?;
        settings::ours(service, &self.context).ok()?;
        let slices = self.slices_of.get(name).into_iter().flatten();
        let slices = slices.filter_map(|slice| self.slices.get(slice));
        let slices: Vec<_> = slices
            .map(|slice| self.endings.seen_in(slice, service.publish_not_ready))
            .collect();
        let node = &self.context.node_name;
        Some(frontend::view(
            service,
            &entry.settings,
            &entry.assignment,
            slices.iter().map(AsRef::as_ref),
            node,
        ))
    }

    /// Puts a view in force; returns whether what was left out is different.
    fn put(
        &mut self,
        name: &ObjectName,
        view: View,
        vips: &mut BTreeSet<IpAddr>,
        before: &mut Before,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(name) else {
            return false;
        };
        for (key, frontend) in view.frontends {
            before.entry(key).or_insert(None);
            self.desired.frontends.insert(key, frontend);
            entry.frontends.insert(key);
        }
        for vip in view.reach.keys() {
            vips.insert(*vip);
            self.users.entry(*vip).or_default().insert(name.clone());
        }
        entry.reach = view.reach;
        let changed = entry.ignored != view.ignored;
        entry.ignored = view.ignored;
        changed
    }

    /// Returns whether anything became different.
    fn renew_tier(&mut self, vip: IpAddr) -> bool {
        let users = self.users.get(&vip).filter(|users| !users.is_empty());
        let new = users.map(|users| {
            let reach = users
                .iter()
                .filter_map(|name| self.entries.get(name)?.reach.get(&vip));
            let best = reach.copied().max().unwrap_or(Use::No);
            let pool = self.admission.pool_of(vip);
            let excluded = tier::is_excluded(&self.context, self.own_node(), pool);
            Vip {
                tier: if excluded {
                    Tier::Excluded
                } else {
                    tier::of(best)
                },
            }
        });
        let old = if let Some(new) = &new {
            self.desired.vips.insert(vip, new.clone())
        } else {
            self.users.remove(&vip);
            self.desired.vips.remove(&vip)
        };
        let changed = old != new;
        if changed {
            self.changes.vips.insert(vip);
        }
        changed
    }

    fn own_node(&self) -> Option<&Node> {
        let name = ObjectName {
            name: self.context.node_name.clone(),
            ..ObjectName::default()
        };
        self.nodes.get(&name)
    }

    fn renew_ignored(&mut self) {
        let services = self.entries.values().flat_map(|entry| &entry.ignored);
        let fixed = self.source_problems.iter().chain(&self.pool_problems);
        let mut all: Vec<_> = fixed.chain(services).cloned().collect();
        all.extend(self.unknown_node());
        all.sort();
        all.dedup();
        if all != self.desired.ignored {
            self.desired.ignored = all;
            self.changes.ignored = true;
        }
    }

    /// VIPs that we cannot answer for only because nobody described this node.
    fn unknown_node(&self) -> Vec<Ignored> {
        if self.own_node().is_some() {
            return Vec::new();
        }
        let node = &self.context.node_name;
        let excluded = self.users.keys().filter_map(|vip| {
            let pool = self.admission.pool_of(*vip)?;
            let excluded = tier::is_excluded(&self.context, None, Some(pool));
            excluded.then(|| tier::unknown_node(pool, *vip, node))
        });
        excluded
            .map(|reason| Ignored {
                object: format!("Node/{node}"),
                reason,
            })
            .collect()
    }
}
