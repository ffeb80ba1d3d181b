//! From what should be to what to write: the target minus what the maps hold, as ordered steps.
//!
//! [`Planner`] knows what was written ([`Applied`]) and hands out what must stay stable: ids,
//! regions. Everything in here is a function of its arguments; it must never do IO or read a
//! clock: where time matters it is an argument, a duration on the boot clock. Nothing is taken
//! away while the model is incomplete, and no id or region is reused while a packet or a flow may
//! still mean the old owner by it.

mod adopt;
mod applied;
mod diff;
mod endpoint;
pub mod ids;
mod order;
mod reclaim;
pub mod region;
mod slots;
pub mod table;
mod target;
mod unwanted;
mod vips;

use std::collections::BTreeMap;
use std::time::Duration;

use lb_common::abi;
use lb_common::select::rows_log2_for;
use lb_common::{V4, limits};

pub use applied::{Applied, AppliedFrontend, BITMAP_WORDS};
pub use order::{LeftOut, LeftOutReason, MapOp, Object, Phase, Plan};
pub use target::{Life, Lives, NextHop, Target, kernel_key};

use crate::desired::FrontendKey;
use ids::{ENDPOINT_IDS, FRONTEND_IDS, Ids};
use region::{Region, Regions};
use slots::{EndpointKey, Leaving};

/// How long a packet under way may still use what it has read.
pub const GRACE: Duration = Duration::from_secs(2);

/// How long a handshake may still become a flow: no sweep looks at handshakes, so an endpoint's id
/// must have been out of use for that long before a sweep of the flows can say anything about it.
pub const ENDPOINT_GRACE: Duration =
    Duration::from_nanos(((limits::HANDSHAKE + 2) as u64) << limits::TICK_SHIFT);

/// Bytes of tables in one plan, from which on the other frontends are left for the next.
pub const TABLE_BYTES: usize = 4 << 20;

fn table_bytes(op: &MapOp) -> usize {
    if let MapOp::PutTable { elements, .. } = op {
        size_of_val::<[abi::TableElement]>(elements)
    } else {
        0
    }
}

/// How much to compare.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// Everything.
    All,
    /// These frontends with their addresses; nothing else is looked at.
    Frontends(&'a [FrontendKey]),
}

/// Turns targets into writes.
#[derive(Clone, Debug)]
pub struct Planner {
    applied: Applied,
    frontend_ids: Ids<abi::FrontendKey<V4>>,
    endpoint_ids: Ids<EndpointKey>,
    regions: Regions,
    /// Regions handed out whose frontend has not switched to them.
    pending: BTreeMap<abi::FrontendKey<V4>, Region>,
    /// Who has which id, by frontend id.
    slots: BTreeMap<u32, slots::ByAddress>,
    /// Endpoints that are no longer wanted, by frontend id and endpoint id.
    leaving: BTreeMap<(u32, u32), Leaving>,
    /// Bits of SNAT addresses that flows may still use.
    old_snat: Vec<V4>,
    /// Rows of a table of two, at the last full pass.
    rows_log2: u8,
    left_out: BTreeMap<FrontendKey, Vec<LeftOutReason>>,
    vips_left_out: BTreeMap<V4, LeftOutReason>,
}

impl Default for Planner {
    fn default() -> Self {
        Self {
            applied: Applied::default(),
            frontend_ids: Ids::new(FRONTEND_IDS, GRACE),
            endpoint_ids: Ids::new(ENDPOINT_IDS, ENDPOINT_GRACE),
            regions: Regions::new(limits::TABLE_ELEMENTS as u32, GRACE),
            pending: BTreeMap::new(),
            slots: BTreeMap::new(),
            leaving: BTreeMap::new(),
            old_snat: Vec::new(),
            rows_log2: 0,
            left_out: BTreeMap::new(),
            vips_left_out: BTreeMap::new(),
        }
    }
}

impl Planner {
    /// What the maps hold, as far as is known.
    pub fn applied(&self) -> &Applied {
        &self.applied
    }

    /// The writes that bring the maps from what they hold to the target. They must be carried out
    /// and recorded before the next plan is made.
    pub fn plan(&mut self, target: &Target<'_>, scope: Scope<'_>, now: Duration) -> Plan {
        let mut plan = Plan::default();
        let frontends = target.desired.frontends.len();
        // Of an incomplete list, the length says nothing about how large tables may be.
        let frontends = if target.desired.complete {
            frontends
        } else {
            frontends.max(self.applied.frontends.len())
        };
        let rows_log2 = rows_log2_for(frontends as u32, 2);
        // Another size class changes every table.
        let all = matches!(scope, Scope::All) || rows_log2 != self.rows_log2;
        self.rows_log2 = rows_log2;

        self.config(target, &mut plan);
        let keys = match scope {
            Scope::Frontends(keys) if !all => keys.to_vec(),
            Scope::Frontends(_) | Scope::All => target.frontends().collect(),
        };
        let mut bytes = 0;
        let mut planned = 0;
        for key in &keys {
            if bytes >= TABLE_BYTES {
                break;
            }
            let before = plan.ops.len();
            self.frontend(key, target, now, &mut plan);
            bytes += plan.ops[before..].iter().map(table_bytes).sum::<usize>();
            planned += 1;
        }
        let (planned, deferred) = keys.split_at(planned);
        if all && deferred.is_empty() {
            self.unwanted_frontends(target, &mut plan);
            self.vips(target, &mut plan);
        } else {
            self.vips_of(planned, target, &mut plan);
        }
        plan.deferred = deferred.to_vec();
        plan.sort();
        plan
    }

    /// Takes note of a write that succeeded.
    pub fn record(&mut self, op: &MapOp, now: Duration) {
        match op {
            MapOp::PutFrontend { key, value, .. } => {
                if self
                    .pending
                    .get(key)
                    .is_some_and(|region| region.offset == value.region)
                {
                    self.pending.remove(key);
                }
                self.free_region(*key, Some(value.region).filter(|_| value.members > 0), now);
            }
            MapOp::DeleteFrontend { key, .. } => {
                self.free_region(*key, None, now);
                self.frontend_ids.release(key, now);
            }
            MapOp::PutConfig(config) => {
                let old = self.applied.config.snat;
                if old != config.snat && old != V4::default() {
                    self.old_snat.push(old);
                }
            }
            MapOp::PutBits { .. }
            | MapOp::PutEndpoint { .. }
            | MapOp::PutTable { .. }
            | MapOp::PutRange { .. }
            | MapOp::DeleteRange { .. }
            | MapOp::PutVip { .. }
            | MapOp::DeleteVip { .. } => {}
        }
        self.applied.record(op);
    }

    /// Everything that does not fit, for status and readiness.
    pub fn left_out(&self) -> impl Iterator<Item = LeftOut> {
        let frontends = self.left_out.iter().flat_map(|(key, reasons)| {
            reasons.iter().map(|reason| LeftOut {
                address: key.address,
                port: Some((key.port, key.protocol)),
                reason: *reason,
            })
        });
        let vips = self.vips_left_out.iter().map(|(address, reason)| LeftOut {
            address: order::ip(*address),
            port: None,
            reason: *reason,
        });
        frontends.chain(vips)
    }

    /// The kernel's id of a frontend.
    pub fn frontend_id(&self, key: &FrontendKey) -> Option<u32> {
        self.frontend_ids.id(&kernel_key(key)?)
    }

    /// The frontend that has (or lately had) this id.
    pub fn frontend_of(&self, id: u32) -> Option<abi::FrontendKey<V4>> {
        self.frontend_ids.key(id).copied()
    }

    /// The id of an endpoint that is in the maps, draining ones included.
    pub fn endpoint_id(&self, key: &FrontendKey, address: std::net::SocketAddrV4) -> Option<u32> {
        self.slots
            .get(&self.frontend_id(key)?)?
            .get(&address)
            .map(|slot| slot.id)
    }

    /// The id of one life of an endpoint, also when it is over and flows still hold the id.
    pub fn id_of_life(
        &self,
        key: &FrontendKey,
        address: std::net::SocketAddrV4,
        incarnation: u32,
    ) -> Option<u32> {
        let frontend = self.frontend_ids.find(&kernel_key(key)?)?;
        let key = EndpointKey::new(frontend, address, incarnation);
        self.endpoint_ids.find(&key)
    }

    /// Frontends that were left out for want of room, and are worth another try when some may have
    /// become free; `None` when only a full pass will do.
    pub fn crowded_out(&self) -> Option<Vec<FrontendKey>> {
        if !self.vips_left_out.is_empty() {
            return None;
        }
        let full = |reason: &LeftOutReason| reason.full_map().is_some();
        let crowded = self.left_out.iter();
        let crowded = crowded.filter(|(_, reasons)| reasons.iter().any(full));
        Some(crowded.map(|(key, _)| *key).collect())
    }

    /// Gives back the region a frontend used before, unless it is the one it uses still.
    fn free_region(&mut self, key: abi::FrontendKey<V4>, keep: Option<u32>, now: Duration) {
        let Some(old) = self.applied.frontends.get(&key) else {
            return;
        };
        if old.value.members > 0 && keep != Some(old.value.region) {
            // Not in use: it was no region of ours when it was found after a restart.
            let _ = self.regions.free(old.value.region, now);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
