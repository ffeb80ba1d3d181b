//! Sluice's agent as a library.

pub mod apply;
pub mod cli;
pub mod desired;
pub mod load;
pub mod model;
pub mod netlink;
pub mod plan;
pub mod watch;

#[cfg(test)]
mod testing;
