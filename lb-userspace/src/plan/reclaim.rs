//! The end of an endpoint's life: nothing names its id, and no flow holds it.
//!
//! The caller sweeps the flows and says which ids it found; what was unnamed before the sweep
//! began, and was not found, is free. Until then the slot stays as it is, so that the data plane
//! knows what to do with the flows.

use std::collections::BTreeSet;
use std::time::Duration;

use lb_common::abi;

use super::Planner;
use super::order::{MapOp, Phase, Plan};

impl Planner {
    /// Takes in the result of a sweep: `held` are all endpoint ids that handshakes and flows hold,
    /// seen by a sweep that began at `began`. Returns the writes that empty the free slots.
    pub fn reclaim(&mut self, held: &BTreeSet<u32>, began: Duration, now: Duration) -> Plan {
        self.release(now);
        let free: BTreeSet<u32> = self.endpoint_ids.reclaim(held, began).into_iter().collect();
        if !free.is_empty() {
            self.leaving.retain(|(_, id), _| !free.contains(id));
            for slots in self.slots.values_mut() {
                slots.retain(|_, slot| !free.contains(&slot.id));
            }
            self.slots.retain(|_, slots| !slots.is_empty());
        }
        let unknown = self
            .applied
            .endpoints
            .keys()
            .filter(|id| self.endpoint_ids.key(**id).is_none());
        let ops = unknown.map(|id| MapOp::PutEndpoint {
            id: *id,
            value: abi::Endpoint::default(),
            fresh: false,
            phase: Phase::EndpointsDown,
        });
        let plan = Plan {
            ops: ops.collect(),
            left_out: Vec::new(),
            deferred: Vec::new(),
        };
        // A frontend's id is in the flows that hold its endpoints' ids, and in no others.
        let frontends = self
            .applied
            .endpoints
            .values()
            .map(|endpoint| endpoint.frontend)
            .collect();
        self.frontend_ids.reclaim(&frontends, began);
        plan
    }

    /// Endpoints that nobody wants and no table names: their quarantine begins now.
    fn release(&mut self, now: Duration) {
        let unnamed = |(frontend, id): &(u32, u32)| {
            let key = self.frontend_ids.key(*frontend);
            let frontend = key.and_then(|key| self.applied.frontends.get(key));
            !frontend.is_some_and(|frontend| frontend.members.contains(id))
        };
        let unnamed: Vec<_> = self
            .leaving
            .iter()
            .filter(|(at, leaving)| self.endpoint_ids.id(&leaving.key).is_some() && unnamed(at))
            .map(|(_, leaving)| leaving.key)
            .collect();
        for key in unnamed {
            self.endpoint_ids.release(&key, now);
        }
    }

    /// Endpoints that have left and whose flows go on, with the frontend they belonged to.
    pub fn leaving_endpoints_count(&self) -> usize {
        self.leaving.len()
    }
}
