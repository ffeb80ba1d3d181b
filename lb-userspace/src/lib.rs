//! Sluice's agent as a library.

pub mod agent;
pub mod apply;
pub mod cli;
pub mod desired;
pub mod load;
pub mod model;
pub mod netlink;
pub mod observe;
pub mod plan;
pub mod timer;
pub mod watch;

#[cfg(test)]
mod testing;
