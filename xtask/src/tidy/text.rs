//! Rules for every text file.

use std::path::Path;

use super::Finding;

/// Paths of the machine something was written on. Split, so that this file passes its own rule.
const MACHINE: [&str; 3] = [
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("../sha", "red"),
];

/// Checks one file.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::error(path, index + 1, "trailing whitespace"));
        }
        for machine in MACHINE {
            if line.contains(machine) {
                findings.push(Finding::error(
                    path,
                    index + 1,
                    format!("`{machine}` exists on one machine only"),
                ));
            }
        }
    }
    if !text.is_empty() && !text.ends_with('\n') && is_written_by_hand(path) {
        let last = text.lines().count();
        findings.push(Finding::error(path, last, "no newline at the end"));
    }
    findings
}

/// Data (packets, recorded objects) may end as it likes.
fn is_written_by_hand(path: &str) -> bool {
    Path::new(path)
        .extension()
        .and_then(|end| end.to_str())
        .is_some_and(|end| ["md", "rs", "sh", "toml", "yaml", "yml"].contains(&end))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn each_fault_is_found_on_its_line() {
        let text = format!("fine\nspace \n{}x\nend", super::MACHINE[0]);
        let lines: Vec<usize> = check("a.md", &text)
            .iter()
            .map(|found| found.line)
            .collect();
        assert_eq!(lines, [2, 3, 4]);
        assert!(check("a.md", "fine\n").is_empty());
    }
}
