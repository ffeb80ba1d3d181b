//! `tidy`: the repository's own rules, which no compiler checks. Also a test.
//!
//! Each rule is a function from text to findings; what a rule excepts stands in `lists.rs`,
//! with a reason. Findings fail the run, warnings are only shown.

mod lists;
mod manifests;
mod reasons;
mod rust;
mod source;
mod text;

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{run as process, workspace};

/// One place where a rule is broken.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    level: Level,
    path: String,
    line: usize,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Error,
    Warning,
}

/// Checks the whole repository.
pub(crate) fn run() -> Result<()> {
    process::step("tidy");
    let (errors, warnings): (Vec<_>, Vec<_>) = findings(&workspace::root())?
        .into_iter()
        .partition(|finding| finding.level == Level::Error);
    for finding in warnings.iter().chain(&errors) {
        println!("    {finding}");
    }
    if !errors.is_empty() {
        bail!("tidy: {} finding(s)", errors.len());
    }
    println!("tidy: clean, {} warning(s)", warnings.len());
    Ok(())
}

fn findings(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in files(root)? {
        let bytes = fs::read(root.join(&path)).with_context(|| path.clone())?;
        let Ok(content) = String::from_utf8(bytes) else {
            continue;
        };
        findings.extend(text::check(&path, &content));
        if Path::new(&path).extension().is_some_and(|end| end == "rs") {
            findings.extend(rust::check(&path, &content));
        }
    }
    findings.extend(manifests::check(root)?);
    findings.extend(reasons::check(root)?);
    Ok(findings)
}

/// The repository's files: those that git knows, and new ones it does not ignore.
fn files(root: &Path) -> Result<Vec<String>> {
    let list = process::quiet(Command::new("git").current_dir(root).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]))
    .context("tidy needs git to know which files are the repository's")?;
    let mut files: Vec<String> = list
        .split('\0')
        .filter(|path| !path.is_empty() && root.join(path).is_file())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

impl Finding {
    fn error(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            level: Level::Error,
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }

    fn warning(path: &str, message: impl Into<String>) -> Self {
        Self {
            level: Level::Warning,
            path: path.to_owned(),
            line: 1,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Error => "error",
            Level::Warning => "warning",
        };
        let Self {
            path,
            line,
            message,
            ..
        } = self;
        write!(f, "{path}:{line}: {level}: {message}")
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, findings};
    use crate::workspace;

    #[test]
    fn the_repository_is_tidy() {
        let errors: Vec<String> = findings(&workspace::root())
            .unwrap()
            .iter()
            .filter(|finding| finding.level == Level::Error)
            .map(ToString::to_string)
            .collect();
        assert!(errors.is_empty(), "\n{}", errors.join("\n"));
    }
}
