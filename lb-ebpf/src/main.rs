//! Entry points of the kernel programs: hand the packet to the pipeline, turn the reason into
//! the kernel's action, count it. Nothing is decided here.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]

#[cfg(target_arch = "bpf")]
mod kernel;

#[cfg(not(target_arch = "bpf"))]
fn main() {
    // The programs exist for the kernel only; on the host this crate is a library.
}
