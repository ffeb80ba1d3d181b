//! Where things are: the workspace's root, its target directory, its members.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The workspace's root: the parent of this package's folder.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable for `cargo run` and `cargo test`; the compile-time value serves
    // a binary that is started by hand.
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_path_buf).unwrap_or(manifest)
}

/// Cargo's target directory. `lb-userspace/build.rs` follows the same rule.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The folders of the workspace's members, as the root manifest lists them.
pub(crate) fn members(root: &Path) -> Result<Vec<String>> {
    let path = root.join("Cargo.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let manifest: toml::Table = text.parse().with_context(|| path.display().to_string())?;
    let members = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("members"))
        .and_then(toml::Value::as_array)
        .with_context(|| format!("{}: no workspace.members", path.display()))?;
    Ok(members
        .iter()
        .filter_map(toml::Value::as_str)
        .map(str::to_owned)
        .collect())
}

/// Whether the process may do what only root may.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
