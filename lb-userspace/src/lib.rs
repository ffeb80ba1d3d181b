//! Sluice's agent as a library.

pub mod desired;
pub mod observe;
pub mod plan;
pub mod timer;
