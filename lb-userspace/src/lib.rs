//! Sluice's agent as a library.

pub mod cli;
pub mod desired;
pub mod model;
pub mod watch;
