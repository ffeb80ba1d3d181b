//! Cargo, started from inside a `cargo run`, as if it were started by hand.
//!
//! The outer cargo describes this package in the environment. Build scripts that watch those
//! variables (ring's does) would take each change between the two ways for a change of
//! their own, and half the dependencies would be compiled again each time.

use std::env;
use std::process::Command;

use crate::workspace;

/// The host's cargo, in the workspace's root.
pub(crate) fn host() -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(workspace::root());
    forget(&mut command);
    command
}

/// Removes what the outer cargo said about this package.
pub(crate) fn forget(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let described = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if described {
            command.env_remove(&name);
        }
    }
}
