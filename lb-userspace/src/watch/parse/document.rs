//! The text of one document, and the line on which each thing in it stands.

use std::hash::{DefaultHasher, Hasher};

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

/// Splits at `---` and `...` at the start of a line: YAML forbids both inside a document, so
/// no parser is needed, and a broken document ends where the next one begins.
pub(super) fn documents(text: &str) -> Vec<Document<'_>> {
    let mut found = Vec::new();
    let (mut start, mut start_line, mut offset) = (0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let marker = line
            .strip_prefix("---")
            .or_else(|| line.strip_prefix("..."));
        if marker.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace)) {
            found.push((start_line, text.get(start..offset).unwrap_or_default()));
            // What follows "--- " on the same line belongs to the next document.
            start = offset + 3;
            start_line = number as u32 + 1;
        }
        offset += line.len();
    }
    found.push((start_line, text.get(start..).unwrap_or_default()));
    found.retain(|(_, d)| {
        d.lines()
            .any(|l| !l.trim_start().is_empty() && !is_comment(l))
    });
    let document = |(first_line, text)| Document { text, first_line };
    found.into_iter().map(document).collect()
}

fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with('#') || line.starts_with('%')
}

/// One document, with the line of the file on which it starts.
pub(super) struct Document<'a> {
    text: &'a str,
    first_line: u32,
}

impl Document<'_> {
    /// The document as if it were the whole file.
    pub(super) fn alone(&self) -> Self {
        Self {
            text: self.text,
            first_line: 1,
        }
    }

    /// How far down the file it stands.
    pub(super) fn lines_before(&self) -> u32 {
        self.first_line - 1
    }

    /// Of the text.
    pub(super) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.text.as_bytes());
        hasher.finish()
    }

    /// Where the text begins after blank lines and comments.
    pub(super) fn first_content_line(&self) -> u32 {
        let blank = |l: &&str| l.trim().is_empty() || is_comment(l);
        self.first_line + self.text.lines().take_while(blank).count() as u32
    }

    /// Line of each item of a list; empty where YAML cannot read it (tabs).
    pub(super) fn item_lines(&self) -> Vec<u32> {
        #[derive(Deserialize)]
        struct Items {
            items: Vec<serde_saphyr::Spanned<IgnoredAny>>,
        }
        let items = self
            .read_yaml::<Items>()
            .map(|list| list.items)
            .unwrap_or_default();
        items
            .iter()
            .map(|item| self.line(Some(item.referenced.line())))
            .collect()
    }

    fn line(&self, within: Option<u64>) -> u32 {
        self.first_line + within.map_or(0, |line| line.saturating_sub(1) as u32)
    }

    /// Reads the document; an error comes with its line in the file.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, (u32, String)> {
        if !self.looks_like_json() {
            return self.read_yaml();
        }
        // JSON may be indented by tabs, which YAML forbids; YAML's `{a: b}` is no JSON.
        let json = serde_json::from_str(self.text);
        json.or_else(|error| {
            self.read_yaml().map_err(|_yaml| {
                let line = self.line(Some(error.line() as u64));
                (line, strip_position(&error.to_string()))
            })
        })
    }

    fn looks_like_json(&self) -> bool {
        let inside = self
            .text
            .trim_start()
            .strip_prefix('{')
            .map(str::trim_start);
        inside.is_some_and(|rest| rest.starts_with(['"', '}']))
    }

    fn read_yaml<T: DeserializeOwned>(&self) -> Result<T, (u32, String)> {
        // A List of 10k Services is larger than the parser's guard against hostile input.
        // A node called `n` is no boolean.
        let options = serde_saphyr::options! {
            strict_booleans: true,
            budget: serde_saphyr::budget! {
                max_nodes: 16_000_000,
                max_events: 64_000_000,
            },
        };
        let yaml = serde_saphyr::from_str_with_options(self.text, options);
        yaml.map_err(|e| {
            let line = self.line(e.location().map(|l| l.line()));
            (line, strip_position(&e.without_snippet().to_string()))
        })
    }
}

/// Cuts what the parsers say about the position: it counts from the document's start, and
/// only the line within the file is of use to the reader.
fn strip_position(message: &str) -> String {
    let message = message.lines().next().unwrap_or_default();
    let message = match message.strip_prefix("error: ") {
        Some(rest) => rest,
        None => message,
    };
    let message = match message.strip_prefix("line ") {
        Some(rest) => rest.split_once(": ").map_or(message, |(_, said)| said),
        None => message,
    };
    let cut = message.rfind(" at line ").unwrap_or(message.len());
    message.get(..cut).unwrap_or(message).trim_end().to_owned()
}
