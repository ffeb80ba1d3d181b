//! A planner for maps that were there before the agent: ids and regions are those in use.
//!
//! What does not add up (a region out of place, an id used twice) is taken for unknown, so that
//! the next plan writes it anew; nothing is deleted for it.

use std::cmp::Reverse;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use lb_common::abi::State;

use super::Planner;
use super::applied::Applied;
use super::diff::layout;
use super::slots::{EndpointKey, Leaving, Slot};

impl Planner {
    /// Goes on from what the maps hold.
    pub fn adopt(applied: Applied, now: Duration) -> Self {
        let mut planner = Self {
            applied,
            ..Self::default()
        };
        planner.adopt_frontends();
        planner.adopt_endpoints(now);
        planner
    }

    fn adopt_frontends(&mut self) {
        let mut frontends = std::mem::take(&mut self.applied.frontends);
        for (key, frontend) in &mut frontends {
            let known = self.frontend_ids.adopt(key, frontend.value.id).is_ok();
            let elements = layout(&frontend.value).elements();
            let placed = frontend.value.members == 0
                || self.regions.adopt(frontend.value.region, elements).is_ok();
            if !known || !placed {
                tracing::warn!(?key, value = ?frontend.value, "a pinned frontend makes no sense and is written anew");
                frontend.members = Arc::default();
                frontend.value.members = 0;
            }
        }
        self.applied.frontends = frontends;
    }

    fn adopt_endpoints(&mut self, now: Duration) {
        let mut endpoints: Vec<_> = self
            .applied
            .endpoints
            .iter()
            .map(|(id, value)| (*id, *value))
            .collect();
        // Of several lives at one address, the last is first.
        endpoints.sort_by_key(|(id, value)| (Reverse(value.incarnation), *id));
        for (id, value) in endpoints {
            let address = SocketAddrV4::new(value.address.into(), value.port);
            let taken = self
                .slots
                .get(&value.frontend)
                .is_some_and(|slots| slots.contains_key(&address));
            let key = EndpointKey::new(value.frontend, address, value.incarnation);
            if self.endpoint_ids.adopt(&key, id).is_err() {
                continue;
            }
            let orphan = self.frontend_ids.key(value.frontend).is_none();
            if orphan {
                // Its frontend is gone, and its id must not be given away.
                let _ = self.frontend_ids.adopt_held(value.frontend, now);
            }
            if orphan || taken {
                // A life that another has followed is over.
                let gone = taken || value.state == State::Gone as u8;
                let state = if gone { State::Gone } else { State::Draining };
                self.leaving
                    .insert((value.frontend, id), Leaving { key, state });
            }
            if !taken {
                let slot = Slot {
                    id,
                    key,
                    incarnation: value.incarnation,
                };
                self.slots
                    .entry(value.frontend)
                    .or_default()
                    .insert(address, slot);
            }
        }
    }
}
