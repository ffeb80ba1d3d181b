//! Rules for the members' manifests: lints that a member does not opt in to do nothing.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;
use crate::workspace;

/// Checks every member of the workspace.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for member in workspace::members(root)? {
        let path = format!("{member}/Cargo.toml");
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        let manifest: toml::Table = text.parse().with_context(|| path.clone())?;
        let opted_in = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            .and_then(toml::Value::as_bool);
        if opted_in != Some(true) {
            findings.push(Finding::error(&path, 1, "no `[lints] workspace = true`"));
        }
    }
    Ok(findings)
}
