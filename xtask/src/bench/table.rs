//! The table: what was measured, what it should be, and whether it is.

use std::fmt;

use anyhow::{Context, Result};
use serde::Serialize;

/// One line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) what: String,
    /// The figure.
    pub(crate) measured: f64,
    /// What it is counted in.
    pub(crate) unit: &'static str,
    /// What it should be; none where it is only told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<Target>,
    /// The figures behind it.
    pub(crate) detail: String,
}

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    /// Not above this.
    AtMost(f64),
    /// Not below this.
    AtLeast(f64),
}

impl Row {
    /// Whether the target is reached; none without one.
    fn reached(&self) -> Option<bool> {
        Some(match self.target? {
            Target::AtMost(limit) => self.measured <= limit,
            Target::AtLeast(limit) => self.measured >= limit,
        })
    }
}

/// All lines.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Row>);

impl Table {
    /// Adds lines.
    pub(crate) fn extend(&mut self, rows: Vec<Row>) {
        self.0.extend(rows);
    }

    /// Lines whose target is missed.
    pub(crate) fn missed(&self) -> usize {
        let missed = |row: &&Row| row.reached() == Some(false);
        self.0.iter().filter(missed).count()
    }

    /// For programs.
    pub(crate) fn json(&self) -> Result<String> {
        #[derive(Serialize)]
        struct Line<'a> {
            #[serde(flatten)]
            row: &'a Row,
            reached: Option<bool>,
        }
        let lines: Vec<_> = self
            .0
            .iter()
            .map(|row| Line {
                row,
                reached: row.reached(),
            })
            .collect();
        serde_json::to_string_pretty(&lines).context("the table as JSON")
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<[String; 5]> = self.0.iter().map(cells).collect();
        let head = ["what", "measured", "target", "reached", "figures"].map(str::to_owned);
        let width = |column: usize| {
            let all = std::iter::once(&head).chain(&lines);
            all.map(|line| line[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2), width(3)];
        for line in std::iter::once(&head).chain(&lines) {
            let [what, measured, target, reached, detail] = line;
            let [first, second, third, fourth] = widths;
            writeln!(
                f,
                "{what:<first$}  {measured:>second$}  {target:>third$}  {reached:<fourth$}  {detail}"
            )?;
        }
        let with_target = self.0.iter().filter(|row| row.target.is_some()).count();
        match self.missed() {
            0 => write!(f, "\nall {with_target} targets reached"),
            missed => write!(f, "\n{missed} of {with_target} targets MISSED"),
        }
    }
}

fn cells(row: &Row) -> [String; 5] {
    let figure = |number: f64| {
        let places = if number < 10.0 { 2 } else { 1 };
        format!("{number:.places$} {}", row.unit)
            .trim_end()
            .to_owned()
    };
    let target = match row.target {
        Some(Target::AtMost(limit)) => format!("<= {}", figure(limit)),
        Some(Target::AtLeast(limit)) => format!(">= {}", figure(limit)),
        None => "-".to_owned(),
    };
    let reached = match row.reached() {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "-",
    };
    [
        row.what.clone(),
        figure(row.measured),
        target,
        reached.to_owned(),
        row.detail.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Row, Table, Target};

    fn row(measured: f64, target: Option<Target>) -> Row {
        Row {
            what: "something".to_owned(),
            measured,
            unit: "x F1",
            target,
            detail: String::new(),
        }
    }

    #[test]
    fn a_missed_target_is_said_and_counted() {
        let mut table = Table::default();
        table.extend(vec![
            row(1.6, Some(Target::AtMost(1.5))),
            row(1.5, Some(Target::AtMost(1.5))),
            row(0.94, Some(Target::AtLeast(0.95))),
            row(9.0, None),
        ]);
        assert_eq!(table.missed(), 2);
        let text = table.to_string();
        assert!(text.contains("2 of 3 targets MISSED"), "{text}");
        assert_eq!(text.matches(" NO ").count(), 2, "{text}");
        let json = table.json().unwrap();
        assert_eq!(json.matches("\"reached\": false").count(), 2, "{json}");
        assert_eq!(json.matches("\"reached\": null").count(), 1, "{json}");
    }

    #[test]
    fn what_is_not_a_number_reaches_nothing() {
        assert_eq!(
            row(f64::NAN, Some(Target::AtMost(1.0))).reached(),
            Some(false)
        );
        assert_eq!(
            row(f64::NAN, Some(Target::AtLeast(1.0))).reached(),
            Some(false)
        );
    }
}
