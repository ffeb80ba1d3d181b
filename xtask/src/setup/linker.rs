//! `bpf-linker`: it links LLVM bitcode, so it is built against the LLVM its compiler uses.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::change;
use crate::cargo;
use crate::toolchain::Toolchain;

/// The version the verifier's baseline was taken with.
pub(super) const VERSION: &str = "0.13.0";
/// Where Debian's `llvm-22-dev` puts LLVM.
const DEBIAN_LLVM: &str = "/usr/lib/llvm-22";

/// Builds and installs it (about a minute).
pub(super) fn install(way: Toolchain) -> Result<()> {
    let mut command = Command::new("cargo");
    cargo::forget(&mut command);
    command.args(["install", "bpf-linker", "--locked", "--version", VERSION]);
    match way {
        Toolchain::Debian if Path::new(DEBIAN_LLVM).exists() => {
            command.env("LLVM_PREFIX", DEBIAN_LLVM).args([
                "--no-default-features",
                "--features",
                "llvm-22",
            ]);
        }
        Toolchain::Debian | Toolchain::Rustup => {}
    }
    change(
        &mut command,
        &format!("building bpf-linker {VERSION} (about a minute)"),
    )
}
