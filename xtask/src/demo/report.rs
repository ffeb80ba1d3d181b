//! What came of it all: rows side by side, and what Sluice's data plane did.

use std::fmt;

use lab::report::{Counters, Failure, Outcome as Fate, Side};
use lab::rollout::scenario::{Contestant, Outcome, Scenario};
use serde_json::{Value, json};

/// All that was run.
#[derive(Debug, Default)]
pub(super) struct Rows(Vec<Row>);

#[derive(Debug)]
struct Row {
    scenario: Scenario,
    contestant: Contestant,
    outcome: Outcome,
}

impl Rows {
    pub(super) fn push(&mut self, scenario: Scenario, contestant: Contestant, outcome: Outcome) {
        self.0.push(Row {
            scenario,
            contestant,
            outcome,
        });
    }

    pub(super) fn json(&self) -> Value {
        let rows: Vec<_> = self.0.iter().map(Row::json).collect();
        json!({"rows": rows})
    }
}

impl Row {
    /// SYNs that the data plane took to another endpoint.
    fn moved(&self) -> u64 {
        let reasons = self.outcome.reasons.iter();
        let moved = reasons.filter(|(reason, _)| reason.starts_with("failover_"));
        moved.map(|(_, packets)| packets).sum()
    }

    /// The first connections that broke, in full. Lost datagrams are only counted.
    fn broken(&self) -> Vec<&Failure> {
        let failures = self.outcome.report.failures.iter();
        let broken = failures.filter(|failure| {
            matches!(
                failure.outcome.side(),
                Side::Before | Side::After | Side::Wrong
            )
        });
        broken.take(8).collect()
    }

    /// All counters, and the connections tried.
    fn counted(&self) -> (Counters, u64) {
        let report = &self.outcome.report;
        (report.total(), report.tcp().attempts)
    }

    fn ms(&self, share: f64) -> f64 {
        self.outcome.report.connect.quantile(share).as_secs_f64() * 1e3
    }

    fn slowest_ms(&self) -> f64 {
        self.outcome.report.connect.max().as_secs_f64() * 1e3
    }

    fn json(&self) -> Value {
        let (total, tries) = self.counted();
        json!({
            "balancer": self.contestant,
            "kind": self.scenario.kind.letter(),
            "late_s": self.scenario.delay.as_secs_f64(),
            "updates": self.scenario.updates,
            "stops": self.outcome.rollout.stops,
            "attempts": tries,
            "failed_before_syn_ack": total.before(),
            "failed_after_syn_ack": total.after(),
            "wrong_bytes": total.of(Fate::WrongBytes),
            "udp_unanswered": total.lost(),
            "connect_ms": {
                "p50": self.ms(0.5), "p99": self.ms(0.99), "max": self.slowest_ms(),
            },
            "syns_moved": self.moved(),
            "broken": self.broken(),
            "reasons": self.outcome.reasons,
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, tries) = self.counted();
        writeln!(
            f,
            "{:<13}{:>5} s{:>6}{:>9}{:>8}{:>7.2}%{:>7}{:>7}{:>5}{:>8.2}{:>8.2}{:>9.1}",
            self.contestant.to_string(),
            self.scenario.delay.as_secs_f64(),
            self.outcome.rollout.stops,
            tries,
            total.before(),
            100.0 * total.before() as f64 / tries.max(1) as f64,
            total.after(),
            total.of(Fate::WrongBytes),
            total.lost(),
            self.ms(0.5),
            self.ms(0.99),
            self.slowest_ms(),
        )
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<13}{:>7}{:>6}{:>9}{:>8}{:>8}{:>7}{:>7}{:>5}{:>8}{:>8}{:>9}",
            "",
            "late",
            "stops",
            "tries",
            "failed",
            "%",
            "after",
            "wrong",
            "UDP",
            "p50 ms",
            "p99 ms",
            "max ms"
        )?;
        for row in &self.0 {
            write!(f, "{row}")?;
        }
        writeln!(
            f,
            "
failed  before SYN-ACK: refused, timed out, unreachable. What a balancer can save.
after   reset or unanswered after SYN-ACK: the pod's kernel had accepted. What nobody can save.
wrong   answers with wrong bytes. UDP: requests without an answer. ms: from connect to SYN-ACK.

What Sluice's data plane did (packets by reason; docs/reasons.md explains each):"
        )?;
        for row in self.0.iter().filter(|row| !row.outcome.status.is_empty()) {
            writeln!(
                f,
                "\nthe list {} s late: {} SYNs that met a stopped pod were moved to another endpoint (three\n\
                 refusals within 2 s, and new connections pass a pod by).",
                row.scenario.delay.as_secs_f64(),
                row.moved()
            )?;
            for failure in row.broken() {
                let Failure {
                    at_ms,
                    traffic,
                    outcome,
                    detail,
                } = failure;
                let at = at_ms.saturating_sub(row.outcome.report.started_ms) as f64 / 1e3;
                writeln!(f, "    at {at:.1} s: {traffic}, {outcome:?}: {detail}")?;
            }
            let status = row.outcome.status.lines();
            for line in status.skip_while(|line| !line.starts_with("REASON")) {
                writeln!(f, "    {line}")?;
            }
        }
        Ok(())
    }
}
