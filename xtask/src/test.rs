//! `test`: every test there is, on this machine, with one closing line.
//!
//! A test that needs root is marked `#[ignore = "root"]`: plain `cargo test` passes everywhere,
//! and as root this command runs those too. Integration tests (the `tests/` folders) build
//! namespaces and wait for real time, so only a few of them run at once.

use std::fmt;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{build, cargo, run, setup, workspace};

/// Integration tests running at once: they wait more than they compute, on two cores.
const THREADS: &str = "2";

/// What `cargo xtask test` takes.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct Args {
    /// Only the tests whose path contains this
    filter: Option<String>,
    /// Passed on to the test programs
    #[arg(last = true)]
    libtest: Vec<String>,
}

/// What the test programs counted, added up.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// The failed tests' names, for the end of a long output.
    failures: Vec<String>,
}

/// Sets up, builds, tests, and ends with the closing line.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::ensure()?;
    build::ebpf()?;
    let tally = all(args)?;
    println!("\n{tally}");
    tally.verdict()
}

/// Runs every test; an error only if they could not be run.
pub(crate) fn all(args: &Args) -> Result<Tally> {
    let root = workspace::is_root();
    if !root {
        println!("    not root: tests that need root are skipped");
    }
    let mut tally = Tally::default();
    run::step("unit tests");
    pass(&mut tally, args, &["--lib", "--bins"], &privileged(root))?;
    let targets = integration_tests()?;
    if !targets.is_empty() {
        run::step("integration tests");
        let selection: Vec<&str> = targets
            .iter()
            .flat_map(|name| ["--test", name.as_str()])
            .collect();
        let mut libtest = privileged(root);
        libtest.extend(["--test-threads", THREADS]);
        pass(&mut tally, args, &selection, &libtest)?;
    }
    run::step("documentation tests");
    pass(&mut tally, args, &["--doc"], &[])?;
    if !root && tally.skipped > 0 {
        println!("    {} test(s) skipped: they need root", tally.skipped);
    }
    Ok(tally)
}

fn privileged(root: bool) -> Vec<&'static str> {
    if root {
        vec!["--include-ignored"]
    } else {
        Vec::new()
    }
}

/// One `cargo test`, its result lines added to the tally.
fn pass(tally: &mut Tally, args: &Args, selection: &[&str], libtest: &[&str]) -> Result<()> {
    let mut command = cargo::host();
    command
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(selection)
        .args(&args.filter)
        .arg("--")
        .args(libtest)
        .args(&args.libtest);
    let before = tally.failed;
    let status = run::lines(&mut command, |line| {
        println!("{line}");
        tally.read(line);
    })?;
    if !status.success() && tally.failed == before {
        // It did not compile, or a test program died before it could count.
        tally.failed += 1;
        tally
            .failures
            .push(format!("cargo test {} ({status})", selection.join(" ")));
    }
    Ok(())
}

/// The names of the workspace's integration tests.
fn integration_tests() -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        targets: Vec<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        kind: Vec<String>,
        name: String,
    }
    let text = run::quiet(cargo::host().args(["metadata", "--no-deps", "--format-version", "1"]))
        .context("cargo metadata failed")?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata")?;
    let mut names: Vec<String> = metadata
        .packages
        .into_iter()
        .flat_map(|package| package.targets)
        .filter(|target| target.kind.iter().any(|kind| kind == "test"))
        .map(|target| target.name)
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

impl Tally {
    /// Reads a line of libtest's output; all but two kinds say nothing.
    fn read(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            for part in counts.split(['.', ';']) {
                let mut words = part.split_whitespace();
                let Some(Ok(count)) = words.next().map(str::parse::<u64>) else {
                    continue;
                };
                match words.next() {
                    Some("passed") => self.passed += count,
                    Some("failed") => self.failed += count,
                    Some("ignored") => self.skipped += count,
                    _ => {}
                }
            }
        } else if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.failures.push(name.to_owned());
        }
    }

    /// An error if something failed, or if nothing ran.
    pub(crate) fn verdict(&self) -> Result<()> {
        if self.failed > 0 {
            bail!("failed:\n    {}", self.failures.join("\n    "));
        }
        if self.passed == 0 {
            bail!("no test ran");
        }
        Ok(())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn result_lines_add_up() {
        let mut tally = Tally::default();
        for line in [
            "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 1 filtered out; finished in 0.01s",
            "test a::b ... FAILED",
            "test c ... ok",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.00s",
        ] {
            tally.read(line);
        }
        assert_eq!(tally.to_string(), "6 passed, 1 failed, 2 skipped");
        assert_eq!(tally.failures, ["a::b"]);
        assert!(tally.verdict().is_err());
    }

    #[test]
    fn a_run_without_tests_is_no_success() {
        assert!(Tally::default().verdict().is_err());
    }
}
