//! Settings, addresses and the destination bitmap.
//!
//! An address is answered for only when the model is complete: before, a port that has not been
//! listed would be refused. Several addresses may share a bit, so a bit goes only when none of
//! them needs it; the bit of an SNAT address that was in use stays, because flows still use it.

use std::collections::{BTreeMap, BTreeSet};

use lb_common::abi;
use lb_common::bitmap::bitmap_index;
use lb_common::{V4, limits};

use super::Planner;
use super::order::{LeftOut, LeftOutReason, MapOp, Phase, Plan, ip};
use super::target::{Target, kernel_key};
use crate::desired::FrontendKey;

impl Planner {
    pub(super) fn config(&mut self, target: &Target<'_>, plan: &mut Plan) {
        if target.config != self.applied.config {
            plan.ops.push(MapOp::PutConfig(target.config));
        }
        let snat = target.config.snat;
        if snat != V4::default() {
            let mut bits = Bits::new(&self.applied.bitmap);
            bits.set(snat);
            bits.put(Phase::SnatBits, plan);
        }
    }

    /// All addresses.
    pub(super) fn vips(&mut self, target: &Target<'_>, plan: &mut Plan) {
        if !target.desired.complete {
            return;
        }
        let mut wanted = target.vips();
        self.vips_left_out.clear();
        let mut room = limits::VIPS.saturating_sub(
            self.applied
                .vips
                .keys()
                .filter(|address| wanted.contains_key(*address))
                .count(),
        );
        wanted.retain(|address, _| {
            if self.applied.vips.contains_key(address) {
                return true;
            }
            let fits = room > 0;
            room = room.saturating_sub(1);
            if !fits {
                let reason = LeftOutReason::Vips {
                    limit: limits::VIPS,
                };
                self.vips_left_out.insert(*address, reason);
                plan.left_out.push(LeftOut {
                    address: ip(*address),
                    port: None,
                    reason,
                });
            }
            fits
        });
        self.put_vips(&wanted, plan);
        let unwanted = self
            .applied
            .vips
            .keys()
            .filter(|address| !wanted.contains_key(*address));
        plan.ops
            .extend(unwanted.map(|address| MapOp::DeleteVip { address: *address }));

        let mut up = Bits::new(&self.applied.bitmap);
        for address in wanted.keys() {
            up.set(*address);
        }
        up.put(Phase::BitsUp, plan);

        let mut only = Bits::empty(&self.applied.bitmap);
        let snat = Some(target.config.snat).filter(|snat| *snat != V4::default());
        let current = Some(self.applied.config.snat).filter(|snat| *snat != V4::default());
        wanted.keys().copied().for_each(|address| only.set(address));
        self.old_snat
            .iter()
            .copied()
            .chain(snat)
            .chain(current)
            .for_each(|a| only.set(a));
        only.clear_rest(&up, plan);
    }

    /// The addresses of these frontends, as far as they come or change.
    pub(super) fn vips_of(&self, keys: &[FrontendKey], target: &Target<'_>, plan: &mut Plan) {
        if !target.desired.complete {
            return;
        }
        let addresses: BTreeSet<V4> = keys
            .iter()
            .filter_map(kernel_key)
            .map(|key| key.address)
            .collect();
        let mut wanted = target.vips();
        wanted.retain(|address, _| {
            let known = self.applied.vips.contains_key(address);
            addresses.contains(address) && (known || self.applied.vips.len() < limits::VIPS)
        });
        self.put_vips(&wanted, plan);
        let mut bits = Bits::new(&self.applied.bitmap);
        for address in wanted.keys() {
            bits.set(*address);
        }
        bits.put(Phase::BitsUp, plan);
    }

    fn put_vips(&self, wanted: &BTreeMap<V4, abi::Vip>, plan: &mut Plan) {
        let changed = wanted
            .iter()
            .filter(|(address, value)| self.applied.vips.get(*address) != Some(*value));
        let put = |(address, value): (&V4, &abi::Vip)| MapOp::PutVip {
            address: *address,
            value: *value,
        };
        plan.ops.extend(changed.map(put));
    }
}

/// Changes to the bitmap, element by element.
struct Bits<'a> {
    is: &'a [u64],
    wanted: BTreeMap<u32, u64>,
}

impl<'a> Bits<'a> {
    /// Starts from what the map holds.
    fn new(is: &'a [u64]) -> Self {
        Self {
            is,
            wanted: BTreeMap::new(),
        }
    }

    /// Starts from nothing.
    fn empty(is: &'a [u64]) -> Self {
        let wanted = (0u32..)
            .zip(is)
            .filter(|(_, bits)| **bits != 0)
            .map(|(at, _)| (at, 0));
        Self {
            is,
            wanted: wanted.collect(),
        }
    }

    fn set(&mut self, address: V4) {
        let bit = bitmap_index(address);
        let element = bit >> 6;
        let is = self.is.get(element as usize).copied().unwrap_or_default();
        *self.wanted.entry(element).or_insert(is) |= 1 << (bit & 63);
    }

    fn put(&self, phase: Phase, plan: &mut Plan) {
        for (element, value) in &self.wanted {
            if self.is.get(*element as usize) != Some(value) {
                plan.ops.push(MapOp::PutBits {
                    element: *element,
                    value: *value,
                    phase,
                });
            }
        }
    }

    /// Clears what is neither wanted here nor was set by `up` on purpose.
    fn clear_rest(&self, up: &Bits<'_>, plan: &mut Plan) {
        for (element, value) in &self.wanted {
            let is = self.is.get(*element as usize).copied().unwrap_or_default();
            let after = up.wanted.get(element).copied().unwrap_or(is);
            if *value != after {
                let phase = Phase::BitsDown;
                plan.ops.push(MapOp::PutBits {
                    element: *element,
                    value: *value,
                    phase,
                });
            }
        }
    }
}
