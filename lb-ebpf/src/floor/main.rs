//! The bench's floor: how little a forwarding XDP program can cost on this machine.
//!
//! `cargo xtask bench` compares the product with these, so each does the least that still moves a
//! packet rightly: one check of the length, no options, no counters, no clock, no time to live.
//! `floor_harness` runs any program on a fresh packet each time, for what a program has written
//! stays in a repeated test run's buffer. Nothing in here is ever attached or shipped.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![allow(
    clippy::inline_always,
    clippy::needless_pass_by_value,
    clippy::needless_borrows_for_generic_args,
    reason = "what is not inlined costs a call and a stack frame; entry points take their context by value; a value in a map is borrowed, never copied to the stack"
)]

#[cfg(target_arch = "bpf")]
mod harness;
#[cfg(target_arch = "bpf")]
mod packet;
#[cfg(target_arch = "bpf")]
mod programs;

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

#[cfg(not(target_arch = "bpf"))]
fn main() {
    // The programs exist for the kernel only.
}
