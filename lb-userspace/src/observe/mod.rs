//! Looking inside: counters, metrics, readiness, logs, and the snapshot people read.
//!
//! The data plane only counts; everything here reads. Nothing in this folder decides anything
//! about traffic, and none of it may hold the agent's loop up: the loop publishes a
//! [`state::StateSnapshot`], and the HTTP side answers from the last one.

pub mod batch;
pub mod client;
pub mod counters;
pub mod health;
pub mod http;
pub mod links;
pub mod logs;
pub mod metrics;
pub mod pins;
pub mod state;

/// Where the agent answers HTTP unless told otherwise.
pub const DEFAULT_HTTP_ADDRESS: &str = "127.0.0.1:9095";
