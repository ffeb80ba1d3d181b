//! Carries plans out: one write after the other, failures kept, counted and tried again.
//!
//! [`MapStore`] is the border to the kernel; a fake one with injected faults stands in for it in
//! tests. When a write fails, what depends on it is skipped and the rest goes on; the objects
//! concerned are planned anew later, from what was really written, so that a stale write is never
//! repeated. Nothing in here decides what should be written.

mod drains;
pub mod fake;
mod kernel;
mod reconcile;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use lb_common::V4;
use lb_common::abi::{self, Config, TableElement};
use lb_common::select::Layout;
use thiserror::Error;

pub use drains::{DrainBook, DrainMap};
pub use kernel::{KernelStore, drain_entries};
pub use reconcile::read_back;

use crate::desired::{FrontendKey, Protocol};
use crate::plan::{MapOp, Object, Plan, Planner};

/// Why a map could not be written or read.
#[derive(Debug, Error)]
pub enum StoreError {
    /// No entry is free.
    #[error("map {map} is full")]
    Full {
        /// The map.
        map: &'static str,
    },
    /// The kernel refused.
    #[error("map {map}: {source}")]
    Kernel {
        /// The map.
        map: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The place is outside of the map.
    #[error("map {map} has no element {index}")]
    OutOfRange {
        /// The map.
        map: &'static str,
        /// The element.
        index: u32,
    },
}

/// Everything that the agent writes, as read from the maps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// `config`.
    pub config: Config<V4>,
    /// `frontends`.
    pub frontends: Vec<(abi::FrontendKey<V4>, abi::Frontend)>,
    /// `endpoints`, without unused slots.
    pub endpoints: Vec<(u32, abi::Endpoint<V4>)>,
    /// `vips`.
    pub vips: Vec<(V4, abi::Vip)>,
    /// `source_ranges`: prefix length of the client's part, and key.
    pub ranges: Vec<(u8, abi::SourceRange<V4>)>,
    /// `dest_bitmap`.
    pub bitmap: Vec<u64>,
}

/// The maps that the agent writes.
pub trait MapStore {
    /// Carries out one write.
    fn apply(&mut self, op: &MapOp) -> Result<(), StoreError>;

    /// Reads everything but the tables.
    fn contents(&self) -> Result<Contents, StoreError>;

    /// Reads a run of elements of `tables`.
    fn table(&self, first: u32, elements: u32) -> Result<Vec<TableElement>, StoreError>;
}

/// The words of a frontend's region, for [`crate::plan::Target::words`].
pub fn words(store: &dyn MapStore, frontend: abi::Frontend) -> Option<Vec<u32>> {
    let layout = Layout::new(frontend.members, frontend.rows_log2);
    let elements = store.table(frontend.region, layout.elements()).ok()?;
    Some(elements.into_flattened())
}

/// A write that failed and will be tried again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// The last error.
    pub error: String,
    /// How often in a row.
    pub attempts: u32,
    /// When it failed first.
    pub since: Duration,
}

/// What became of one plan.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// Writes done.
    pub written: usize,
    /// Writes that failed.
    pub failed: usize,
    /// Writes not tried, because one that they build on failed.
    pub skipped: usize,
}

/// Carries out plans and remembers what failed.
#[derive(Clone, Debug, Default)]
pub struct Executor {
    failures: BTreeMap<Object, Failure>,
    total_failed: u64,
    total_written: u64,
}

impl Executor {
    /// Carries out a plan; what was written is recorded with the planner.
    pub fn run(
        &mut self,
        plan: &Plan,
        planner: &mut Planner,
        store: &mut dyn MapStore,
        now: Duration,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let mut broken = BTreeSet::new();
        let mut touched = BTreeSet::new();
        for op in &plan.ops {
            let object = op.object();
            touched.insert(object);
            if broken.contains(&object) {
                outcome.skipped += 1;
                continue;
            }
            match store.apply(op) {
                Ok(()) => {
                    planner.record(op, now);
                    outcome.written += 1;
                }
                Err(error) => {
                    outcome.failed += 1;
                    broken.insert(object);
                    self.fail(object, &error, now);
                }
            }
        }
        for object in touched.difference(&broken) {
            self.failures.remove(object);
        }
        self.total_written += outcome.written as u64;
        self.total_failed += outcome.failed as u64;
        outcome
    }

    /// Objects whose last write failed.
    pub fn failures(&self) -> impl Iterator<Item = (Object, &Failure)> {
        self.failures
            .iter()
            .map(|(object, failure)| (*object, failure))
    }

    /// True when nothing has failed since it was last written.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }

    /// Writes done and failed since the start.
    pub fn totals(&self) -> (u64, u64) {
        (self.total_written, self.total_failed)
    }

    /// Frontends to plan again; `None` when only a full pass will do.
    pub fn retry(&self, planner: &Planner) -> Option<Vec<FrontendKey>> {
        let key = |object: &Object| match object {
            Object::Frontend(id) => planner
                .frontend_of(*id)
                .and_then(frontend_key)
                // One that is deleted already is not planned by its key.
                .filter(|key| planner.frontend_id(key) == Some(*id)),
            Object::Config | Object::Bitmap | Object::Vip(_) => None,
        };
        self.failures.keys().map(key).collect()
    }

    /// Forgets failures that a full pass has found nothing left to do for.
    pub fn settle(&mut self, plan: &Plan) {
        let open: BTreeSet<Object> = plan.ops.iter().map(MapOp::object).collect();
        self.failures.retain(|object, _| open.contains(object));
    }

    fn fail(&mut self, object: Object, error: &StoreError, now: Duration) {
        let failure = self.failures.entry(object).or_insert_with(|| Failure {
            error: String::new(),
            attempts: 0,
            since: now,
        });
        failure.attempts += 1;
        failure.error = error.to_string();
        tracing::warn!(?object, attempts = failure.attempts, %error, "a map could not be written");
    }
}

/// The model's key of a frontend in the maps; `None` for a protocol that no agent writes.
pub fn frontend_key(key: abi::FrontendKey<V4>) -> Option<FrontendKey> {
    let protocol = match key.protocol {
        6 => Protocol::Tcp,
        17 => Protocol::Udp,
        _ => return None,
    };
    let address = std::net::Ipv4Addr::from(key.address).into();
    Some(FrontendKey {
        address,
        port: key.port,
        protocol,
    })
}

#[cfg(test)]
mod tests;
