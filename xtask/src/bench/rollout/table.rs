//! The rollout's figures: a table for people, JSON for programs, and which of ours are missed.

use std::fmt;

use lab::report::{Outcome as Fate, Side};
use lab::rollout::scenario::{Contestant, Outcome, Scenario};
use lab::serve::Kind;
use serde_json::{Value, json};

use super::direct::Direct;

/// One scenario with one contestant.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) scenario: Scenario,
    pub(super) contestant: Contestant,
    pub(super) outcome: Outcome,
}

impl Row {
    pub(super) const fn new(scenario: Scenario, contestant: Contestant, outcome: Outcome) -> Self {
        Self {
            scenario,
            contestant,
            outcome,
        }
    }

    fn of_ours(&self, kind: Kind) -> bool {
        self.contestant == Contestant::Sluice && self.scenario.kind == kind
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) direct: Vec<Direct>,
}

impl Rows {
    pub(super) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Our figures that are not what they must be, one line each.
    pub(super) fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for row in &self.rows {
            if row.contestant != Contestant::Sluice {
                continue;
            }
            let (total, scenario) = (row.outcome.report.total(), row.scenario);
            if total.before() > 0 {
                missed.push(format!(
                    "{scenario}: {} failed before SYN-ACK{}",
                    total.before(),
                    first_of(row)
                ));
            }
            if total.of(Fate::WrongBytes) > 0 {
                missed.push(format!("{scenario}: wrong bytes"));
            }
            if scenario.kind == Kind::C && total.after() > 0 {
                missed.push(format!(
                    "{scenario}: {} broken after SYN-ACK",
                    total.after()
                ));
            }
            let slowest = row.outcome.report.connect.max().as_secs_f64();
            if scenario.kind == Kind::D && slowest > 1.5 {
                missed.push(format!("{scenario}: a connect took {slowest:.2} s"));
            }
        }
        for direct in &self.direct {
            let (stops, after) = self.ours(direct.kind);
            let chance = chance_of(after, stops as u64, direct.after, direct.stops as u64);
            if chance < 0.001 {
                missed.push(format!(
                    "kind {}: {after} failed after SYN-ACK in {stops} stops, {} in {} asked directly",
                    direct.kind.letter(),
                    direct.after,
                    direct.stops
                ));
            }
        }
        missed
    }

    /// Our stops of a kind, and what failed after SYN-ACK in them.
    fn ours(&self, kind: Kind) -> (usize, u64) {
        self.rows
            .iter()
            .filter(|row| row.of_ours(kind))
            .fold((0, 0), |(stops, after), row| {
                (
                    stops + row.outcome.rollout.stops,
                    after + row.outcome.report.total().after(),
                )
            })
    }

    pub(super) fn json(&self) -> Value {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                let (report, total) = (&row.outcome.report, row.outcome.report.total());
                json!({
                    "kind": row.scenario.kind.letter(),
                    "delay_s": row.scenario.delay.as_secs_f64(),
                    "updates": row.scenario.updates,
                    "agent_killed": row.scenario.kill_agent,
                    "contestant": row.contestant,
                    "stops": row.outcome.rollout.stops,
                    "attempts": report.tcp().attempts,
                    "before": total.before(),
                    "after": total.after(),
                    "wrong": total.of(Fate::WrongBytes),
                    "lost": total.lost(),
                    "connect_ms": {
                        "p50": report.connect.quantile(0.5).as_secs_f64() * 1e3,
                        "p99": report.connect.quantile(0.99).as_secs_f64() * 1e3,
                        "p99.9": report.connect.quantile(0.999).as_secs_f64() * 1e3,
                        "max": report.connect.max().as_secs_f64() * 1e3,
                    },
                })
            })
            .collect();
        json!({"rows": rows, "direct": self.direct})
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<6}{:>6} {:<14}{:>6}{:>9}{:>9}{:>7}{:>7}{:>6}{:>6}  connect ms: p50, p99, p99.9, max",
            "kind",
            "late s",
            "balancer",
            "stops",
            "attempts",
            "before",
            "%",
            "after",
            "wrong",
            "UDP"
        )?;
        for row in &self.rows {
            let (report, total) = (&row.outcome.report, row.outcome.report.total());
            let tries = report.tcp().attempts;
            let kind = row.scenario.kind.letter();
            let kind = if row.scenario.kill_agent {
                format!("{kind}, -9")
            } else {
                kind.to_owned()
            };
            let ms = |share| report.connect.quantile(share).as_secs_f64() * 1e3;
            writeln!(
                f,
                "{kind:<6}{:>6} {:<14}{:>6}{:>9}{:>9}{:>7.2}{:>7}{:>6}{:>6}  {:.2}, {:.2}, {:.2}, {:.1}",
                row.scenario.delay.as_secs_f64(),
                row.contestant.to_string(),
                row.outcome.rollout.stops,
                tries,
                total.before(),
                100.0 * total.before() as f64 / tries.max(1) as f64,
                total.after(),
                total.of(Fate::WrongBytes),
                total.lost(),
                ms(0.5),
                ms(0.99),
                ms(0.999),
                report.connect.max().as_secs_f64() * 1e3,
            )?;
        }
        writeln!(f)?;
        for direct in &self.direct {
            let (stops, after) = self.ours(direct.kind);
            let per = |after: u64, stops: usize| after as f64 / stops.max(1) as f64;
            writeln!(
                f,
                "kind {} after SYN-ACK, per stop: asked directly {:.2} ({} in {}), through sluice {:.2} ({after} in {stops})",
                direct.kind.letter(),
                per(direct.after, direct.stops),
                direct.after,
                direct.stops,
                per(after, stops),
            )?;
        }
        writeln!(
            f,
            "before: refused, timed out or unreachable before SYN-ACK: what a balancer could have saved.\n\
             after: reset or unanswered after it: the pod's kernel had accepted the connection.\n\
             UDP: exchanges without an answer. \"-9\": the agent killed at each stop, started once the list had changed."
        )
    }
}

/// The first failures of a row before SYN-ACK, with when they happened.
fn first_of(row: &Row) -> String {
    let report = &row.outcome.report;
    let failures = report.failures.iter();
    let before = failures.filter(|failure| failure.outcome.side() == Side::Before);
    let lines = before.take(5).map(|failure| {
        let at = failure.at_ms.saturating_sub(report.started_ms) as f64 / 1e3;
        let (traffic, outcome) = (failure.traffic, failure.outcome);
        format!("\n    {at:.1} s: {traffic} {outcome:?} {}", failure.detail)
    });
    lines.collect()
}

/// How likely it is to see `ours` events or more in so many stops if the rate is the same as that
/// of `theirs` in theirs: given the sum of two Poisson counts, one is binomial.
fn chance_of(ours: u64, stops: u64, theirs: u64, their_stops: u64) -> f64 {
    let all = ours + theirs;
    if ours == 0 || all == 0 || stops == 0 || their_stops == 0 {
        return 1.0;
    }
    let share = stops as f64 / (stops + their_stops) as f64;
    let (hit, miss) = (share.ln(), (1.0 - share).ln());
    let mut ways = 0.0;
    let mut chance = 0.0;
    for count in 0..=all {
        if count >= ours {
            chance += (ways + count as f64 * hit + (all - count) as f64 * miss).exp();
        }
        ways += ((all - count) as f64 / (count + 1) as f64).ln();
    }
    chance.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_binomial_tail() {
        // One of one event, two equal runs: even odds.
        assert!((chance_of(1, 10, 0, 10) - 0.5).abs() < 1e-9);
        assert!((chance_of(2, 10, 1, 10) - 0.5).abs() < 1e-9);
        assert!((chance_of(0, 10, 5, 10) - 1.0).abs() < 1e-9);
        assert!(chance_of(40, 10, 10, 10) < 0.001);
        assert!(chance_of(40, 40, 10, 10) > 0.4);
    }
}
