//! What a load sees, told second by second while it goes on: a line each, before the report.
//!
//! For people who watch. The report counts by itself and does not depend on these lines.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};

use super::Run;
use crate::report::Report;

/// Tells such a line from the report.
const MARK: &str = "second ";

/// What came in during about one second. A failure counts when it is seen: a connect that times out
/// counts seconds after its start.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Second {
    /// Its end, in milliseconds since 1970.
    pub at_ms: u64,
    /// Connections tried.
    pub attempts: u64,
    /// Failed before SYN-ACK.
    pub before: u64,
    /// Connections that broke after SYN-ACK, or brought wrong bytes.
    pub after: u64,
    /// UDP exchanges without an answer.
    pub lost: u64,
}

impl Second {
    fn totals(report: &Report, at_ms: u64) -> Self {
        let total = report.total();
        Self {
            at_ms,
            attempts: report.tcp().attempts,
            before: total.before(),
            after: total.broken() - total.before() - total.lost(),
            lost: total.lost(),
        }
    }

    fn since(self, last: Self) -> Self {
        Self {
            at_ms: self.at_ms,
            attempts: self.attempts - last.attempts,
            before: self.before - last.before,
            after: self.after - last.after,
            lost: self.lost - last.lost,
        }
    }
}

impl Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self);
        write!(f, "{MARK}{}", text.unwrap_or_default())
    }
}

impl FromStr for Second {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let text = line.strip_prefix(MARK).context("no line of that kind")?;
        Ok(serde_json::from_str(text)?)
    }
}

/// Prints them until the run is over; the first at once, so that whoever reads knows the beginning.
pub(super) async fn tell(run: &Run) {
    let mut tick = interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Second::default();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = run.stop() => return,
        }
        let totals = Second::totals(&run.report(), run.clock.now_ms());
        println!("{}", totals.since(last));
        last = totals;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_survives_its_line_and_nothing_else_passes_for_one() {
        let second = Second {
            at_ms: 1,
            attempts: 2,
            before: 3,
            after: 4,
            lost: 5,
        };
        assert_eq!(
            second.to_string().parse::<Second>().expect("parses"),
            second
        );
        for other in ["ready", "{\"started_ms\":1}", "second", "second {}"] {
            assert!(other.parse::<Second>().is_err(), "{other}");
        }
    }
}
