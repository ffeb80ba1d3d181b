//! Just enough of Rust's grammar to tell code from comments, literals and tests.

/// A source file, split into what the rules look at.
#[derive(Debug)]
pub(super) struct Source {
    /// The text with the content of comments and literals blanked; lines stay where they were.
    pub(super) code: String,
    /// Per line: whether it is part of an item under `#[cfg(test)]`.
    pub(super) test: Vec<bool>,
    /// Per line: whether it holds a comment and no code.
    pub(super) comment: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Code,
    Line,
    Block(usize),
    Text,
    Raw(usize),
}

impl Source {
    /// Splits a file.
    pub(super) fn new(text: &str) -> Self {
        let code = blank(text);
        let comment = text
            .lines()
            .zip(code.lines())
            .map(|(text, code)| code.trim().is_empty() && !text.trim().is_empty())
            .collect();
        Self {
            test: tests(&code),
            code,
            comment,
        }
    }

    /// The lines of code, with their numbers and whether they belong to a test.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        self.code
            .lines()
            .zip(&self.test)
            .enumerate()
            .map(|(index, (line, test))| (index + 1, line, *test))
    }
}

/// Whether a line contains a word, as the compiler would see it.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_ident) && !after.is_some_and(is_ident)
    })
}

fn is_ident(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Replaces what comments and literals say by spaces, one for each character.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut state = State::Code;
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        let (taken, shown, then) = match state {
            State::Code => code(&chars, at, c, next),
            State::Line if c == '\n' => (1, 1, State::Code),
            State::Block(depth) if c == '/' && next == Some('*') => (2, 0, State::Block(depth + 1)),
            State::Block(1) if c == '*' && next == Some('/') => (2, 0, State::Code),
            State::Block(depth) if c == '*' && next == Some('/') => (2, 0, State::Block(depth - 1)),
            State::Text if c == '\\' => (2, 0, State::Text),
            State::Text if c == '"' => (1, 1, State::Code),
            State::Raw(hashes) if c == '"' && hashes_at(&chars, at + 1) >= hashes => {
                (1 + hashes, 1, State::Code)
            }
            State::Line | State::Block(_) | State::Text | State::Raw(_) => (1, 0, state),
        };
        for (index, c) in chars.iter().skip(at).take(taken).enumerate() {
            out.push(if index < shown || *c == '\n' { *c } else { ' ' });
        }
        at += taken;
        state = then;
    }
    out
}

/// One step outside of comments and literals: how much to take, how much of it to show, what follows.
fn code(chars: &[char], at: usize, c: char, next: Option<char>) -> (usize, usize, State) {
    let joined = at > 0 && chars.get(at - 1).copied().is_some_and(is_ident);
    match (c, next) {
        ('/', Some('/')) => (2, 0, State::Line),
        ('/', Some('*')) => (2, 0, State::Block(1)),
        ('"', _) => (1, 1, State::Text),
        ('r', Some('"' | '#')) if !joined || chars.get(at - 1).is_some_and(|c| *c == 'b') => {
            let hashes = hashes_at(chars, at + 1);
            if chars.get(at + 1 + hashes) == Some(&'"') {
                (2 + hashes, 2 + hashes, State::Raw(hashes))
            } else {
                (1, 1, State::Code)
            }
        }
        ('\'', Some('\\')) => {
            let end = chars.iter().skip(at + 3).position(|c| *c == '\'');
            (end.map_or(1, |length| length + 4), 1, State::Code)
        }
        ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => (3, 1, State::Code),
        _ => (1, 1, State::Code),
    }
}

fn hashes_at(chars: &[char], at: usize) -> usize {
    chars.iter().skip(at).take_while(|c| **c == '#').count()
}

/// Marks the lines of items under `#[cfg(test)]`, by counting braces.
fn tests(code: &str) -> Vec<bool> {
    let mut marks = Vec::new();
    let mut depth: i32 = 0;
    // The depth at which the test item began, while in one.
    let mut item: Option<i32> = None;
    for line in code.lines() {
        let starts = item.is_none() && line.trim_start().starts_with("#[cfg(test)]");
        if starts {
            item = Some(depth);
        }
        marks.push(item.is_some());
        for c in line.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
        }
        let ends = line.trim_end().ends_with(['}', ';']) && item == Some(depth);
        if ends {
            item = None;
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::{Source, blank, has_word};

    #[test]
    fn comments_and_literals_are_blanked() {
        for (text, want) in [
            ("a // unsafe\nb", "a          \nb"),
            ("a /* x /* y */ z */ b", "a                   b"),
            (r#"f("un\"safe") + 1"#, "f(\"        \") + 1"),
            ("r#\"a\"b\"# c", "r#\"   \"  c"),
            ("'\"' + 'a' + '\\'' + b", "'   + '   + '    + b"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
        ] {
            assert_eq!(blank(text), want);
        }
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe { x }", "unsafe"));
        assert!(!has_word("unsafe_op_in_unsafe_fn", "unsafe"));
    }

    #[test]
    fn test_items_are_marked_and_code_after_them_is_not() {
        let source = Source::new(
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod d;\nfn e() {}\n",
        );
        assert_eq!(
            source.test,
            [false, true, true, true, true, false, true, true, false]
        );
    }
}
