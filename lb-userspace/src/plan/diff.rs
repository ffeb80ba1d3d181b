//! One frontend: what it should be against what the maps hold.
//!
//! While the model is incomplete an endpoint that is not listed stays what it is, a frontend
//! never gets worse, and a new one appears only if it can forward. When a table has no room the
//! frontend keeps its old one, and nobody in that one is taken out.

use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use lb_common::abi::{self, State};
use lb_common::select::layout::WORDS_PER_ELEMENT;
use lb_common::select::{Identity, Layout, rows_log2_for};
use lb_common::{V4, limits};

use super::endpoint::endpoint_value;
use super::order::{LeftOut, LeftOutReason, MapOp, Plan};
use super::table::Table;
use super::target::{Target, Wanted, kernel_key};
use super::{AppliedFrontend, Planner};
use crate::desired::FrontendKey;

/// Scores (members times rows) from which on the old table is read back and changed instead of
/// building a new one: below, building takes less than a fifth of a millisecond.
const REBUILD_LIMIT: u64 = 1 << 14;

/// Members of a table that is to be written, with their ids in canonical order.
struct Members {
    identities: Vec<Identity>,
    ids: Arc<[u32]>,
}

impl Planner {
    /// Plans one frontend. A key that nobody wants is planned away, if that is known for sure.
    pub(super) fn frontend(
        &mut self,
        key: &FrontendKey,
        target: &Target<'_>,
        now: Duration,
        plan: &mut Plan,
    ) {
        self.left_out.remove(key);
        let Some(kernel) = kernel_key(key) else {
            if target.desired.frontends.contains_key(key) {
                self.leave_out(key, LeftOutReason::Ipv6, plan);
            }
            return;
        };
        if let Some(region) = self.pending.remove(&kernel) {
            // Handed out by a plan that failed; nobody uses it.
            let _ = self.regions.free(region.offset, now);
        }
        match target.frontend(key) {
            Some(wanted) => {
                if let Err(reason) = self.wanted_frontend(key, kernel, wanted, target, now, plan) {
                    self.leave_out(key, reason, plan);
                }
            }
            None if target.desired.complete => self.unwanted_frontend(kernel, plan),
            None => {}
        }
    }

    fn wanted_frontend(
        &mut self,
        key: &FrontendKey,
        kernel: abi::FrontendKey<V4>,
        mut wanted: Wanted,
        target: &Target<'_>,
        now: Duration,
        plan: &mut Plan,
    ) -> Result<(), LeftOutReason> {
        let complete = target.desired.complete;
        let known = self.applied.frontends.get(&kernel).cloned();
        if !complete && known.is_none() && wanted.verdict != abi::verdict::FORWARD {
            return Ok(());
        }
        let id = self
            .frontend_ids
            .assign(&kernel)
            .map_err(LeftOutReason::FrontendIds)?;
        for reason in std::mem::take(&mut wanted.left_out) {
            self.leave_out(key, reason, plan);
        }
        self.check_ranges(id, wanted.ranges.as_deref())?;

        let mut down = Vec::new();
        let mut members = Vec::new();
        for (address, endpoint) in &wanted.endpoints {
            match self.slot(id, *address, endpoint.incarnation) {
                Ok(slot) => {
                    if endpoint.state == State::Active {
                        members.push((Identity::new(SocketAddr::V4(*address)), slot.id));
                    }
                    let value = endpoint_value(&slot, *address, *endpoint, target);
                    self.put_endpoint(slot.id, value, plan, &mut down);
                }
                Err(error) => {
                    let address = SocketAddr::V4(*address);
                    self.leave_out(key, LeftOutReason::EndpointIds { address, error }, plan);
                }
            }
        }
        self.unlisted(
            id,
            &wanted,
            known.as_ref().filter(|_| !complete),
            &mut members,
        );
        self.leaving_endpoints(id, &mut down);

        let verdict = match (&known, members.is_empty()) {
            (Some(known), true) if !complete => known.value.verdict,
            (_, true) if wanted.verdict == abi::verdict::FORWARD => abi::verdict::REJECT,
            (_, false) if !complete => abi::verdict::FORWARD,
            _ => wanted.verdict,
        };
        let mut value = abi::Frontend {
            id,
            affinity: wanted.affinity,
            verdict,
            source_ranges: u8::from(wanted.ranges.is_some()),
            ..abi::Frontend::default()
        };
        let members = Members::new(members);
        self.table(
            kernel,
            &mut value,
            &members,
            known.as_ref(),
            target,
            now,
            plan,
        )?;
        self.ranges(id, wanted.ranges.unwrap_or_default(), complete, plan);

        let seed = target.config.seed;
        let same = known.is_some_and(|known| known.value == value && known.members == members.ids);
        if !same {
            plan.ops.push(MapOp::PutFrontend {
                key: kernel,
                value,
                members: members.ids,
                seed,
            });
        }
        plan.ops.extend(down);
        Ok(())
    }

    /// Fills in the region: the old one when it is the right one, else a new one, written first.
    #[expect(
        clippy::too_many_arguments,
        reason = "called once, and each says something else"
    )]
    fn table(
        &mut self,
        key: abi::FrontendKey<V4>,
        value: &mut abi::Frontend,
        members: &Members,
        known: Option<&AppliedFrontend>,
        target: &Target<'_>,
        now: Duration,
        plan: &mut Plan,
    ) -> Result<(), LeftOutReason> {
        if members.ids.is_empty() {
            return Ok(());
        }
        let count = members.ids.len() as u32;
        let rows_log2 = if count == 1 {
            rows_log2_for(1, 1)
        } else {
            self.rows_log2
        };
        value.members = count as u16;
        value.rows_log2 = rows_log2;
        let seed = target.config.seed;
        if let Some(known) = known
            && (known.value.rows_log2, known.seed) == (rows_log2, seed)
            && known.members == members.ids
        {
            value.region = known.value.region;
            return Ok(());
        }
        let table = self
            .build(members, rows_log2, known, target)
            .map_err(LeftOutReason::Table)?;
        let words = table.words(&members.ids).map_err(LeftOutReason::Table)?;
        let region = self
            .regions
            .alloc(table.layout().elements(), now)
            .map_err(LeftOutReason::Region)?;
        self.pending.insert(key, region);
        value.region = region.offset;
        let (elements, _) = words.as_chunks::<{ WORDS_PER_ELEMENT as usize }>();
        let (frontend, first) = (value.id, region.offset);
        plan.ops.push(MapOp::PutTable {
            frontend,
            first,
            elements: Arc::from(elements),
        });
        Ok(())
    }

    fn build(
        &self,
        members: &Members,
        rows_log2: u8,
        known: Option<&AppliedFrontend>,
        target: &Target<'_>,
    ) -> Result<Table, super::table::TableError> {
        let seed = target.config.seed;
        if (members.identities.len() as u64) << rows_log2 > REBUILD_LIMIT
            && let Some(known) = known.filter(|known| known.seed == seed)
            && known.value.rows_log2 == rows_log2
            && let Some(words) = target.words.and_then(|read| read(known.value))
            && let Some(old) = self.identities(&known.members)
            && let Ok(mut table) = Table::adopt(seed, &old, rows_log2, &words)
        {
            let now: BTreeSet<_> = members.identities.iter().copied().collect();
            let old: BTreeSet<_> = old.into_iter().collect();
            let joined: Vec<_> = now.difference(&old).copied().collect();
            let left: Vec<_> = old.difference(&now).copied().collect();
            table.update(&joined, &left)?;
            return Ok(table);
        }
        Table::build(seed, &members.identities, rows_log2)
    }

    fn identities(&self, ids: &[u32]) -> Option<Vec<Identity>> {
        let identity = |id| {
            let endpoint = self.applied.endpoints.get(id)?;
            let address = SocketAddrV4::new(endpoint.address.into(), endpoint.port);
            Some(Identity::new(SocketAddr::V4(address)))
        };
        ids.iter().map(identity).collect()
    }

    fn check_ranges(&self, id: u32, ranges: Option<&[Ipv4Net]>) -> Result<(), LeftOutReason> {
        let own = self.applied.ranges.get(&id);
        let new = ranges.unwrap_or_default().iter();
        let new = new
            .filter(|range| !own.is_some_and(|own| own.contains(*range)))
            .count();
        let limit = limits::SOURCE_RANGES;
        if new > 0 && self.applied.range_count() + new > limit {
            return Err(LeftOutReason::SourceRanges { limit });
        }
        Ok(())
    }

    fn ranges(&self, frontend: u32, wanted: Vec<Ipv4Net>, complete: bool, plan: &mut Plan) {
        let wanted: BTreeSet<Ipv4Net> = wanted.into_iter().collect();
        let empty = BTreeSet::new();
        let known = self.applied.ranges.get(&frontend).unwrap_or(&empty);
        let put = wanted.difference(known).map(|range| MapOp::PutRange {
            frontend,
            range: *range,
        });
        plan.ops.extend(put);
        // What is listed is listed in full: ranges belong to the Service alone. Still, nothing is
        // taken away before the lists are complete.
        if complete {
            let gone = known.difference(&wanted);
            plan.ops.extend(gone.map(|range| MapOp::DeleteRange {
                frontend,
                range: *range,
            }));
        }
    }

    fn leave_out(&mut self, key: &FrontendKey, reason: LeftOutReason, plan: &mut Plan) {
        self.left_out.entry(*key).or_default().push(reason);
        plan.left_out.push(LeftOut {
            address: key.address,
            port: Some((key.port, key.protocol)),
            reason,
        });
    }
}

impl Members {
    fn new(mut members: Vec<(Identity, u32)>) -> Self {
        members.sort_unstable();
        members.dedup_by_key(|(identity, _)| *identity);
        let (identities, ids): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        Self {
            identities,
            ids: Arc::from(ids),
        }
    }
}

/// Shape of a frontend's region.
pub(super) fn layout(value: &abi::Frontend) -> Layout {
    Layout::new(value.members, value.rows_log2)
}
