//! Frontends that nobody wants any more, and what earlier ones left behind.
//!
//! Only for a complete model: what is merely not listed yet is not unwanted.

use std::collections::BTreeSet;

use lb_common::V4;
use lb_common::abi::{self, State};

use super::Planner;
use super::order::{MapOp, Plan};
use super::target::{Target, kernel_key};

impl Planner {
    /// Plans every frontend away that is in the maps and not in the target.
    pub(super) fn unwanted_frontends(&mut self, target: &Target<'_>, plan: &mut Plan) {
        self.left_out
            .retain(|key, _| target.desired.frontends.contains_key(key));
        if !target.desired.complete {
            return;
        }
        let wanted: BTreeSet<_> = target
            .frontends()
            .filter_map(|key| kernel_key(&key))
            .collect();
        let unwanted: Vec<_> = self
            .applied
            .frontends
            .keys()
            .filter(|key| !wanted.contains(*key))
            .copied()
            .collect();
        for key in unwanted {
            self.unwanted_frontend(key, plan);
        }
        self.remains(plan);
    }

    /// What frontends left behind that are gone from the maps already.
    fn remains(&self, plan: &mut Plan) {
        let gone = |id: &u32| {
            let key = self.frontend_ids.key(*id);
            key.and_then(|key| self.frontend_ids.id(key)) != Some(*id)
        };
        let ids: BTreeSet<u32> = self
            .leaving
            .keys()
            .map(|(id, _)| *id)
            .filter(gone)
            .collect();
        for id in ids {
            self.leaving_endpoints(id, &mut plan.ops);
        }
        for (frontend, ranges) in self.applied.ranges.iter().filter(|(id, _)| gone(id)) {
            let frontend = *frontend;
            plan.ops.extend(ranges.iter().map(|r| MapOp::DeleteRange {
                frontend,
                range: *r,
            }));
        }
    }

    /// Plans one frontend away; its endpoints stay in the maps for the flows that they have.
    pub(super) fn unwanted_frontend(&mut self, key: abi::FrontendKey<V4>, plan: &mut Plan) {
        let Some(id) = self.applied.frontends.get(&key).map(|known| known.value.id) else {
            return;
        };
        plan.ops.push(MapOp::DeleteFrontend { key, id });
        let ranges = self.applied.ranges.get(&id).into_iter().flatten();
        plan.ops.extend(ranges.map(|range| MapOp::DeleteRange {
            frontend: id,
            range: *range,
        }));
        let slots: Vec<_> = self
            .slots
            .get(&id)
            .into_iter()
            .flat_map(|slots| slots.values().copied())
            .collect();
        for slot in slots {
            self.leave(id, &slot, State::Draining);
        }
        self.leaving_endpoints(id, &mut plan.ops);
    }
}
