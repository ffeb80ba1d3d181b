//! Sluice's agent as a library.

pub mod apply;
pub mod desired;
pub mod load;
pub mod netlink;
pub mod plan;

#[cfg(test)]
mod testing;
