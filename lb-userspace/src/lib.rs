//! Sluice's agent as a library.

pub mod desired;
pub mod plan;
pub mod timer;
