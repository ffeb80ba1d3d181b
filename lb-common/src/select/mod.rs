//! How a connection finds its endpoint: a flow hash, a row of a table, a member of a region.
//!
//! The agent writes the tables and the kernel reads them, so the hash, the packing of a row and
//! the arithmetic of a region exist once, here. Each row carries the two best members by
//! rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit rates",
//! 1998), the second as the place to fail over to, as in GitHub's GLB Director.
//! Nothing in here may look at a clock, allocate, or depend on the machine's byte order.

#![expect(
    clippy::inline_always,
    reason = "the kernel program has no functions to call: what it uses must be inlined"
)]

pub mod class;
pub mod hash;
pub mod layout;
pub mod score;

pub use class::rows_log2_for;
pub use hash::{Address, flow_hash};
pub use layout::{Choice, Layout, RowSlot, Slot};
pub use score::{Identity, ScoreKey};
