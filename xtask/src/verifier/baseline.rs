//! The accepted numbers: `xtask/baselines/verifier.toml`.
//!
//! Another kernel's verifier prunes differently, patch releases included: the same object took 76 % more
//! instructions after one. So growth is judged closely only on the release the baseline was taken on, generously
//! on others, and closeness to the kernel's own limit is judged everywhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Program;
use crate::workspace;

/// The kernel refuses a program beyond this many verified instructions.
const LIMIT: u32 = 1_000_000;
/// Closer to the limit than this is too close: older kernels walk more paths.
const NEAR: u32 = LIMIT / 10 * 9;
/// Growth below this many instructions is noise, whatever the share.
const SLACK: u32 = 50;
/// Growth below this share is noise on the baseline's own kernel, in per cent.
const PERCENT: u32 = 5;
/// The same on any other kernel.
const ELSEWHERE: u32 = 100;

const HEADING: &str = "\
# Instructions the verifier walks per program; written by `cargo xtask verifier --update`.
# More than 50 instructions and 5 % above fails CI on the same kernel release, and 100 % on others.
";

/// The file's content.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Baseline {
    /// The kernel's release the numbers were taken on (`6.18.44`).
    kernel: String,
    /// Per object and program.
    #[serde(default)]
    verified: BTreeMap<String, BTreeMap<String, u32>>,
}

impl Baseline {
    /// Reads it; a missing file is an empty baseline.
    pub(super) fn read() -> Result<Self> {
        let path = path();
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Writes it, marked with the running kernel.
    pub(super) fn write(mut self) -> Result<()> {
        self.kernel = kernel();
        let path = path();
        let text = toml::to_string(&self).context("baseline")?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        fs::write(&path, format!("{HEADING}{text}")).with_context(|| path.display().to_string())?;
        println!("verifier: {} is the new baseline", path.display());
        Ok(())
    }

    /// The accepted number, if there is one.
    pub(super) fn verified(&self, object: &str, program: &str) -> Option<u32> {
        self.verified.get(object)?.get(program).copied()
    }

    /// What is wrong with a program's number, if anything.
    pub(super) fn complaint(&self, object: &str, program: &str, now: u32) -> Option<String> {
        self.judge(self.verified(object, program), now, &kernel())
            .map(|why| format!("{program}: {why}"))
    }

    /// Programs the baseline knows and the object lacks.
    pub(super) fn absent(&self, object: &str, programs: &[Program]) -> Vec<String> {
        self.verified
            .get(object)
            .into_iter()
            .flat_map(BTreeMap::keys)
            .filter(|name| !programs.iter().any(|program| program.name == **name))
            .map(|name| format!("{name}: in the baseline, but not in the object"))
            .collect()
    }

    /// Takes an object's present numbers as accepted.
    pub(super) fn replace(&mut self, object: &str, programs: &[Program]) {
        let numbers = programs
            .iter()
            .map(|program| (program.name.clone(), program.verified))
            .collect();
        self.verified.insert(object.to_owned(), numbers);
    }

    fn judge(&self, before: Option<u32>, now: u32, kernel: &str) -> Option<String> {
        if now >= NEAR {
            return Some(format!("{now} verified instructions, limit {LIMIT}"));
        }
        let Some(before) = before else {
            return Some(format!("{now} verified instructions, not in the baseline"));
        };
        let growth = now.saturating_sub(before);
        let percent = if self.kernel == kernel {
            PERCENT
        } else {
            ELSEWHERE
        };
        let grown =
            growth > SLACK && u64::from(growth) * 100 > u64::from(before) * u64::from(percent);
        grown.then(|| {
            let own = &self.kernel;
            format!(
                "{now} verified instructions, {growth} more than the baseline's {before} (kernel {own}, here {kernel})"
            )
        })
    }
}

fn path() -> PathBuf {
    workspace::root().join("xtask/baselines/verifier.toml")
}

/// The running kernel's release without what a distribution appends.
fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let end = release.find(['-', '+', '\n']).unwrap_or(release.len());
    release.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::Baseline;

    fn judge(before: Option<u32>, now: u32, kernel: &str) -> bool {
        let baseline = Baseline {
            kernel: "6.18.44".to_owned(),
            ..Baseline::default()
        };
        baseline.judge(before, now, kernel).is_some()
    }

    #[test]
    fn growth_counts_only_beyond_both_bounds() {
        assert!(!judge(Some(1_000), 1_050, "6.18.44"));
        assert!(
            !judge(Some(100), 150, "6.18.44"),
            "50 instructions are noise"
        );
        assert!(judge(Some(1_000), 1_051, "6.18.44"));
        assert!(!judge(Some(10_000), 10_500, "6.18.44"), "5 % is noise");
        assert!(judge(Some(10_000), 10_501, "6.18.44"));
        assert!(!judge(Some(10_000), 5_000, "6.18.44"), "less is welcome");
    }

    #[test]
    fn another_kernel_is_judged_generously() {
        assert!(!judge(Some(1_000), 2_000, "6.6"));
        assert!(!judge(Some(1_000), 1_760, "6.18.9"));
        assert!(judge(Some(1_000), 2_001, "6.6"));
        assert!(judge(Some(899_999), 900_000, "6.6"));
    }

    #[test]
    fn a_new_program_must_be_accepted_once() {
        assert!(judge(None, 10, "6.18.44"));
    }
}
