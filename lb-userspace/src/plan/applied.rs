//! What the maps hold, as far as is known: every successful write is recorded, and after a
//! restart the maps are read back.
//!
//! A mirror and nothing more: it never holds a wish, so a difference to the target is always
//! something left to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::Ipv4Net;
use lb_common::abi::{self, Config, State};
use lb_common::{V4, limits};

use super::order::MapOp;

/// Elements of `dest_bitmap`, 64 bits each.
pub const BITMAP_WORDS: usize = 1 << (limits::BITMAP_BITS - 6);

/// A frontend and who is in its table.
#[derive(Clone, Debug, PartialEq)]
pub struct AppliedFrontend {
    /// The map's value.
    pub value: abi::Frontend,
    /// Endpoint ids at the start of its region.
    pub members: Arc<[u32]>,
    /// Seed of its table.
    pub seed: u64,
}

/// Contents of the maps that the agent writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// `config`.
    pub config: Config<V4>,
    /// `endpoints`, without unused slots, by id.
    pub endpoints: BTreeMap<u32, abi::Endpoint<V4>>,
    /// `frontends`.
    pub frontends: BTreeMap<abi::FrontendKey<V4>, AppliedFrontend>,
    /// `vips`.
    pub vips: BTreeMap<V4, abi::Vip>,
    /// `source_ranges`, by frontend id.
    pub ranges: BTreeMap<u32, BTreeSet<Ipv4Net>>,
    /// `dest_bitmap`.
    pub bitmap: Vec<u64>,
}

impl Default for Applied {
    fn default() -> Self {
        Self {
            config: Config::EMPTY,
            endpoints: BTreeMap::new(),
            frontends: BTreeMap::new(),
            vips: BTreeMap::new(),
            ranges: BTreeMap::new(),
            bitmap: vec![0; BITMAP_WORDS],
        }
    }
}

impl Applied {
    /// Source ranges over all frontends.
    pub fn range_count(&self) -> usize {
        self.ranges.values().map(BTreeSet::len).sum()
    }

    /// Takes note of a write that succeeded.
    pub(super) fn record(&mut self, op: &MapOp) {
        match op {
            MapOp::PutConfig(config) => self.config = *config,
            MapOp::PutBits { element, value, .. } => {
                if let Some(slot) = self.bitmap.get_mut(*element as usize) {
                    *slot = *value;
                }
            }
            MapOp::PutEndpoint { id, value, .. } => {
                if value.state == State::Unused as u8 {
                    self.endpoints.remove(id);
                } else {
                    self.endpoints.insert(*id, *value);
                }
            }
            MapOp::PutTable { .. } => {}
            MapOp::PutFrontend {
                key,
                value,
                members,
                seed,
            } => {
                let members = Arc::clone(members);
                self.frontends.insert(
                    *key,
                    AppliedFrontend {
                        value: *value,
                        members,
                        seed: *seed,
                    },
                );
            }
            MapOp::DeleteFrontend { key, .. } => {
                self.frontends.remove(key);
            }
            MapOp::PutRange { frontend, range } => {
                self.ranges.entry(*frontend).or_default().insert(*range);
            }
            MapOp::DeleteRange { frontend, range } => {
                if let Some(ranges) = self.ranges.get_mut(frontend) {
                    ranges.remove(range);
                    if ranges.is_empty() {
                        self.ranges.remove(frontend);
                    }
                }
            }
            MapOp::PutVip { address, value } => {
                self.vips.insert(*address, *value);
            }
            MapOp::DeleteVip { address } => {
                self.vips.remove(address);
            }
        }
    }
}
