//! One round: the kernel is brought in line with what is known now. A large one goes in steps, each
//! of which leaves a working data plane.

use std::time::Duration;

use super::Agent;
use crate::apply::{KernelStore, words};
use crate::desired::FrontendKey;
use crate::plan::{Scope, Target};

impl Agent {
    /// Brings the kernel in line with what is known now.
    pub(super) fn round(&mut self, scope: Scope<'_>, now: Duration) {
        self.snapshot_due = true;
        self.find_hops(scope);
        let mut deferred = self.step(scope, now);
        let whole = matches!(scope, Scope::All) && !deferred.is_empty();
        while !deferred.is_empty() {
            deferred = self.step(Scope::Frontends(&deferred), now);
        }
        if whole {
            // Whatever is left now is what could not be written, and is tried again in time.
            self.step(Scope::All, now);
        }
        self.announcer.want(&self.vips(), now);
    }

    /// One plan, carried out; returns the frontends that it left for the next.
    fn step(&mut self, scope: Scope<'_>, now: Duration) -> Vec<FrontendKey> {
        let config = self.settings.config(&self.uplinks);
        let mut store = KernelStore::new(&mut self.datapath.maps);
        let plan = {
            let read = |frontend| words(&store, frontend);
            let mut target = Target::new(self.world.desired(), config);
            target.lives = &self.lives;
            target.next_hops = &self.hops;
            target.words = Some(&read);
            self.planner.plan(&target, scope, now)
        };
        let outcome = self.executor.run(&plan, &mut self.planner, &mut store, now);
        self.resets.follow(&plan, now);
        if matches!(scope, Scope::All) {
            self.executor.settle(&plan);
        }
        if outcome.failed > 0 {
            tracing::warn!(
                failed = outcome.failed,
                "writes to the maps failed and will be tried again"
            );
        }
        plan.deferred
    }
}
