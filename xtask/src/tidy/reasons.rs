//! The rule that every `Reason` is documented: it is what an operator sees in the metrics.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;
use super::source::Source;

const SOURCE: &str = "lb-common/src/verdict.rs";
const DOC: &str = "docs/reasons.md";

/// Checks that each label of the enum stands in the document, in backticks.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let (source, doc) = (root.join(SOURCE), root.join(DOC));
    if !source.exists() || !doc.exists() {
        return Ok(Vec::new());
    }
    let source = fs::read_to_string(source).context(SOURCE)?;
    let doc = fs::read_to_string(doc).context(DOC)?;
    Ok(compare(&source, &doc))
}

fn compare(source: &str, doc: &str) -> Vec<Finding> {
    let labels = labels(source);
    if labels.is_empty() {
        return vec![Finding::error(SOURCE, 1, "no labels found in `fn as_str`")];
    }
    labels
        .iter()
        .filter(|label| !doc.contains(&format!("`{label}`")))
        .map(|label| Finding::error(DOC, 1, format!("the reason `{label}` is not explained")))
        .collect()
}

/// The string literals in the body of `as_str`.
fn labels(source: &str) -> Vec<String> {
    let code: Vec<char> = Source::new(source).code.chars().collect();
    let text: Vec<char> = source.chars().collect();
    let name: Vec<char> = "fn as_str".chars().collect();
    let Some(start) = code.windows(name.len()).position(|part| part == name) else {
        return Vec::new();
    };
    let mut depth = 0;
    let mut open = None;
    let mut labels = Vec::new();
    for (at, c) in code.iter().enumerate().skip(start) {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            '"' => match open.take() {
                None => open = Some(at + 1),
                Some(from) => labels.extend(
                    text.get(from..at)
                        .map(|part| part.iter().collect::<String>()),
                ),
            },
            _ => {}
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::compare;

    const SOURCE: &str = "impl Reason {\n    pub const fn as_str(self) -> &'static str {\n        \
                          match self {\n            Self::A => \"first\", // \"x\"\n            \
                          Self::B => \"second\",\n        }\n    }\n    fn f() -> &str { \"no\" }\n}\n";

    #[test]
    fn every_label_must_be_in_the_document() {
        assert!(compare(SOURCE, "| `first` | `second` |").is_empty());
        let findings = compare(SOURCE, "| `first` |");
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("`second`"));
    }

    #[test]
    fn an_enum_without_labels_is_a_finding() {
        assert_eq!(compare("enum Reason {}", "").len(), 1);
    }
}
