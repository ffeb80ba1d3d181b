//! Sluice's data plane as a library: every decision about a packet, over two small traits.
//!
//! [`frame::Frame`] is the packet, [`world::World`] is everything else (maps, clocks, the
//! link). The kernel programs in `main.rs` implement them on packet and map memory; `host`
//! implements them on plain collections, so that each case runs twice, here and there.
//!
//! Start reading at [`pipeline`]. Nothing in this library may be `unsafe`, know aya, or keep
//! anything between two packets.
#![no_std]
#![forbid(unsafe_code)]
#![allow(
    clippy::inline_always,
    reason = "a kernel program is one function: what is not inlined costs a call and a stack frame"
)]

#[cfg(not(target_arch = "bpf"))]
extern crate std;

pub mod answer;
pub mod arp;
pub mod candidates;
pub mod closed;
pub mod connect;
pub mod egress;
pub mod failover;
pub mod family;
pub mod flow;
pub mod frame;
pub mod health;
#[cfg(not(target_arch = "bpf"))]
pub mod host;
pub mod hot;
pub mod nat;
pub mod packet;
pub mod pipeline;
pub mod place;
pub mod promote;
pub mod refuse;
pub mod rewrite;
pub mod sweep;
pub mod transmit;
pub mod world;
