//! A rustup nightly with the sources of `core`, for machines without Debian's packages.

use std::process::Command;

use anyhow::{Context, Result};

use super::change;
use crate::run;

/// Installs it by rustup.
pub(super) fn install() -> Result<()> {
    run::quiet(Command::new("rustup").arg("--version")).context(
        "neither Debian's BPF toolchain nor rustup is here: install rustup, then run `cargo xtask setup`",
    )?;
    change(
        Command::new("rustup").args([
            "toolchain",
            "install",
            "nightly",
            "--profile",
            "minimal",
            "--component",
            "clippy,rust-src",
        ]),
        "installing a nightly toolchain with rust-src",
    )
}
