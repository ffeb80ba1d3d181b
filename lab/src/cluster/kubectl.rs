//! `kubectl` against a cluster's API.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::Ns;

/// `kubectl` with one user's rights.
#[derive(Clone, Debug)]
pub struct Kubectl {
    ns: Ns,
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(super) fn new(ns: &Ns, program: PathBuf, kubeconfig: &Path) -> Self {
        Self {
            ns: ns.clone(),
            program,
            kubeconfig: kubeconfig.to_owned(),
        }
    }

    /// Runs it; its standard output.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        self.run_with(args, None)
    }

    /// Runs it and reads its output as JSON; `-o json` is added.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let args: Vec<_> = args.iter().copied().chain(["-o", "json"]).collect();
        let text = self.run(&args)?;
        serde_json::from_str(&text).with_context(|| format!("output of kubectl {}", args.join(" ")))
    }

    /// Applies these manifests, on the server's side; what the server said.
    pub fn apply(&self, manifests: &str) -> Result<String> {
        self.run_with(
            &["apply", "--server-side", "--validate=strict", "-f", "-"],
            Some(manifests),
        )
    }

    /// A command that is not run yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args);
        command
    }

    fn run_with(&self, args: &[&str], input: Option<&str>) -> Result<String> {
        let mut command = self.command(args);
        command
            .stdin(if input.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = self
            .ns
            .enter(move || -> Result<std::process::Output> {
                let mut child = command.spawn()?;
                if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
                    stdin.write_all(text.as_bytes())?;
                }
                Ok(child.wait_with_output()?)
            })?
            .with_context(|| format!("running kubectl {}", args.join(" ")))?;
        ensure!(
            output.status.success(),
            "kubectl {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
