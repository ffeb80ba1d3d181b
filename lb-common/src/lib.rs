//! What the kernel program and the agent share: map layouts, wire formats, reasons and the
//! pure decisions about packets.
//!
//! Byte order, said once: **packets and flow keys hold wire order**, in the newtypes [`Be16`]
//! and [`Be32`] or in address bytes; **tables that people read and the agent writes**
//! (frontends, endpoints) hold ports in host order, as plain integers. Conversions stand in
//! constructors and in [`Be16::get`], nowhere else.
//!
//! This crate must never know aya-ebpf, tokio or Kubernetes, read a clock, or allocate.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod abi;
pub mod addr;
pub mod bitmap;
pub mod checksum;
pub mod limits;
pub mod select;
pub mod verdict;
pub mod wire;

pub use addr::{Address, V4};
pub use bitmap::bitmap_index;
pub use verdict::{Outcome, Reason};
pub use wire::{Be16, Be32, Mac};
