//! Rules for Rust sources.

use super::source::{Source, has_word};
use super::{Finding, lists};

/// A longer file has more than one subject.
const MAX_LINES: usize = 400;
/// Above this share, in per cent, comments say what the code says.
const MAX_COMMENTS: usize = 30;
/// Shares of shorter files mean nothing.
const MIN_LINES: usize = 60;

/// Words that mark unfinished work. Split, so that this file passes its own rule.
const UNFINISHED: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
/// Macros that stand for missing code.
const STUBS: [&str; 2] = [concat!("to", "do!"), concat!("unimple", "mented!")];
/// Ways to read a clock.
const CLOCKS: [&str; 2] = ["Instant::now", "SystemTime::now"];

/// Checks one file.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let source = Source::new(text);
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push(Finding::error(path, 1, "the first line is not `//!`"));
    }
    findings.extend(size(path, text, &source));
    findings.extend(comments(path, &source));
    for (number, line, test) in source.lines() {
        if has_word(line, "unsafe") && !lists::may_be_unsafe(path) {
            findings.push(Finding::error(
                path,
                number,
                "`unsafe` outside the files of tidy/lists.rs",
            ));
        }
        for clock in CLOCKS {
            if line.contains(clock) && !test && !lists::may_read_clock(path) {
                let message = format!("`{clock}`: time is an argument here");
                findings.push(Finding::error(path, number, message));
            }
        }
        for stub in STUBS {
            if line.contains(stub) {
                findings.push(Finding::error(path, number, format!("`{stub}`")));
            }
        }
    }
    for (index, line) in text.lines().enumerate() {
        for word in UNFINISHED {
            if has_word(line, word) {
                findings.push(Finding::error(path, index + 1, format!("`{word}`")));
            }
        }
    }
    findings
}

fn size(path: &str, text: &str, source: &Source) -> Option<Finding> {
    let lines = source.test.iter().filter(|test| !**test).count();
    (lines > MAX_LINES && !is_test(path) && !lists::may_be_long(path)).then(|| {
        let total = text.lines().count();
        Finding::error(
            path,
            1,
            format!(
                "{lines} lines without tests ({total} in all), more than {MAX_LINES}: split it"
            ),
        )
    })
}

fn comments(path: &str, source: &Source) -> Option<Finding> {
    let lines = source
        .lines()
        .filter(|(_, line, test)| !test && !line.trim().is_empty())
        .count();
    let comments = source
        .comment
        .iter()
        .zip(&source.test)
        .filter(|(comment, test)| **comment && !**test)
        .count();
    let all = lines + comments;
    (all >= MIN_LINES && comments * 100 > all * MAX_COMMENTS).then(|| {
        let share = comments * 100 / all;
        Finding::warning(
            path,
            format!("{share} % comments, more than {MAX_COMMENTS} %"),
        )
    })
}

/// Whether all of a file is a test.
fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.contains("/benches/") || path.ends_with("/tests.rs")
}

#[cfg(test)]
mod tests {
    use super::check;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(path, text)
            .into_iter()
            .map(|found| found.message)
            .collect()
    }

    #[test]
    fn a_clean_file_passes() {
        assert!(messages("a/src/b.rs", "//! Doc.\nfn f() {}\n").is_empty());
    }

    #[test]
    fn only_code_counts_as_unsafe() {
        let text = "//! Never unsafe.\nconst A: &str = \"unsafe\";\n";
        assert!(messages("a/src/b.rs", text).is_empty());
        let text = "//! Doc.\nunsafe fn f() {}\n";
        assert_eq!(messages("a/src/b.rs", text).len(), 1);
        assert!(messages("lb-ebpf/src/kernel/xdp.rs", text).is_empty());
        assert!(messages("lb-userspace/src/load/pin.rs", text).is_empty());
    }

    #[test]
    fn tests_do_not_count_as_length() {
        let body = "fn f() {}\n".repeat(390);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{body}}}\n");
        assert!(messages("a/src/b.rs", &format!("//! Doc.\n{body}{tests}")).is_empty());
        assert_eq!(
            messages("a/src/b.rs", &format!("//! Doc.\n{body}{body}")).len(),
            1
        );
        assert!(messages("a/tests/b.rs", &format!("//! Doc.\n{body}{body}")).is_empty());
    }

    #[test]
    fn clocks_belong_to_the_agent() {
        let text = "//! Doc.\nfn f() { Instant::now(); }\n";
        assert_eq!(messages("lb-userspace/src/plan/diff.rs", text).len(), 1);
        assert!(messages("lb-userspace/src/agent.rs", text).is_empty());
        assert!(messages("lab/src/wait.rs", text).is_empty());
    }
}
