//! `ip -batch`: many changes for the price of one process.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::ns::Ns;

/// Lines for one run of `ip -batch`, in the caller's namespace or inside one.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    lines: String,
}

impl Batch {
    pub(crate) fn add(&mut self, line: impl AsRef<str>) -> &mut Self {
        self.lines.push_str(line.as_ref());
        self.lines.push('\n');
        self
    }

    /// Runs where the caller is: for `netns add` and links between namespaces.
    pub(crate) fn apply(&self) -> Result<()> {
        self.feed(Command::new("ip").arg("-batch").arg("-"))
    }

    pub(crate) fn apply_in(&self, ns: &Ns) -> Result<()> {
        ns.enter(|| self.apply())?
            .with_context(|| format!("in namespace {}", ns.name()))
    }

    fn feed(&self, command: &mut Command) -> Result<()> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting `ip` (package iproute2)")?;
        let mut stdin = child.stdin.take().context("no pipe to `ip`")?;
        // A broken pipe means that `ip` gave up: its own words, below, say why.
        let fed = stdin.write_all(self.lines.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().context("waiting for `ip`")?;
        ensure!(
            output.status.success(),
            "ip -batch: {}; the lines were:\n{}",
            String::from_utf8_lossy(&output.stderr).trim(),
            self.lines
        );
        fed.context("writing to `ip`")
    }
}

/// Switches offload features of an interface: `&["tx", "off"]`.
pub(crate) fn ethtool(ns: &Ns, interface: &str, features: &[&str]) -> Result<()> {
    let mut args = vec!["-K", interface];
    args.extend_from_slice(features);
    ns.run("ethtool", &args).map(drop)
}
