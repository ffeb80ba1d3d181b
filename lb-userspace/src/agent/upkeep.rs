//! What comes round by itself: sweeping the flows, counting how full the maps are.

use super::{Agent, boot_clock};
use crate::apply::KernelStore;
use crate::netlink::Node;
use crate::observe::pins::PinnedMaps;
use crate::plan::Scope;

impl Agent {
    /// Sweeps the flows in the kernel, and gives back what no flow holds any more.
    pub(super) fn sweep(&mut self) {
        let began = boot_clock();
        let sweep = match self.datapath.sweep() {
            Ok(sweep) => sweep,
            Err(error) => {
                tracing::warn!(%error, "the sweep of the flow table failed");
                return;
            }
        };
        let now = boot_clock();
        match PinnedMaps::open(&self.settings.pin_dir) {
            Ok(maps) => self.conflicts.look(&maps, now),
            Err(error) => tracing::warn!(%error, "cannot open the pinned maps"),
        }
        let plan = self.planner.reclaim(&sweep.held(), began, now);
        let mut store = KernelStore::new(&mut self.datapath.maps);
        self.executor.run(&plan, &mut self.planner, &mut store, now);
        match self.planner.crowded_out() {
            Some(keys) if keys.is_empty() => {}
            Some(keys) => self.round(Scope::Frontends(&keys), now),
            None => self.round(Scope::All, now),
        }
        self.usage = sweep.flows;
        self.snapshot_due = true;
        self.drop_hops();
        self.forget_gone(now);
        self.pods.probe_dead(&Node);
    }

    /// Counts how full the maps are.
    pub(super) fn count(&mut self) {
        match PinnedMaps::open(&self.settings.pin_dir).and_then(|maps| maps.fills()) {
            Ok(fills) => self.fills = fills,
            Err(error) => tracing::warn!(%error, "cannot count the maps' entries"),
        }
        self.snapshot_due = true;
    }
}
