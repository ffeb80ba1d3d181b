//! What the kernel program and the agent share.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod select;
