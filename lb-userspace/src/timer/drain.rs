//! The life of an endpoint, from ready to gone: who keeps its flows, and until when.
//!
//! Slices come late, are rewritten in two steps, and say nothing about a pod that was deleted
//! while nobody looked. [`Drains`] turns successive snapshots, sightings of the own node and
//! the passing of time into one [`Lifecycle`] per endpoint. It must never declare a ready
//! endpoint gone, cut anything before the first complete listing, or let an agent's restart
//! (`export`, `import`) change an outcome.

mod effect;
mod listing;
mod machine;
mod record;
mod track;
mod view;

pub use effect::{Cause, Effect, EndpointRef, Flows, Hold, Lifecycle, PodId, PodSight};
pub use machine::{DrainSettings, Drains};
pub use record::{DrainRecord, RecordError};

#[cfg(test)]
mod tests;
