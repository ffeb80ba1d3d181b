//! What a load generator saw, in numbers that can be added up.
//!
//! The line that matters runs at SYN-ACK: before it, a balancer could have saved the attempt; after it, the pod's
//! kernel had accepted the connection and nobody else can answer for it. The two must never share a counter.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

use serde::{Deserialize, Serialize};

use crate::hist::Histogram;

/// Width of a bucket of [`Report::timeline`].
pub const BUCKET_MS: u64 = 100;
/// Failures kept in full; the counters have all of them.
const MAX_FAILURES: usize = 200;

/// A kind of traffic.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Traffic {
    /// Connect, one request, its answer, close.
    Short,
    /// One connection, a request now and then.
    Keepalive,
    /// A long answer, every byte compared.
    Download,
    /// UDP request and answer.
    Udp,
    /// A connection that says nothing until the end, and must work then.
    Idle,
}

impl Traffic {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Short,
        Self::Keepalive,
        Self::Download,
        Self::Udp,
        Self::Idle,
    ];
}

impl Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "short",
            Self::Keepalive => "keepalive",
            Self::Download => "download",
            Self::Udp => "udp",
            Self::Idle => "idle",
        })
    }
}

/// What came of an attempt, a request or a connection.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The answer came, and it was right.
    Answered,
    /// The server ended a connection with FIN while nothing was asked of it: its right.
    ClosedIdle,
    /// Before SYN-ACK: RST.
    Refused,
    /// Before SYN-ACK: silence until the connect timeout.
    ConnectTimeout,
    /// Before SYN-ACK: host or network unreachable.
    Unreachable,
    /// After SYN-ACK: RST.
    Reset,
    /// After SYN-ACK: closed without an answer, or in the middle of one.
    NoAnswer,
    /// After SYN-ACK: silence until the answer timeout.
    AnswerTimeout,
    /// An answer with wrong bytes.
    WrongBytes,
    /// UDP: no answer in time.
    Lost,
    /// UDP: an ICMP error in place of the answer. A balancer that swallows the error leaves a `Lost`
    /// one, so the two count alike.
    Bounced,
    /// This machine's own fault (ports or descriptors used up): says nothing about the target.
    Local,
    /// Not started because too many were under way: the generator could not keep its rate.
    Skipped,
    /// Cut off by the end of the run: says nothing either.
    Unfinished,
}

/// Which side of SYN-ACK a failure lies on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// Not a failure of the target.
    Fine,
    /// A balancer could have saved it.
    Before,
    /// The pod's kernel had accepted it.
    After,
    /// Bytes were wrong.
    Wrong,
    /// A UDP exchange got no answer.
    Lost,
}

impl Outcome {
    /// Which column it counts in.
    pub fn side(self) -> Side {
        match self {
            Self::Answered | Self::ClosedIdle | Self::Local | Self::Skipped | Self::Unfinished => {
                Side::Fine
            }
            Self::Refused | Self::ConnectTimeout | Self::Unreachable => Side::Before,
            Self::Reset | Self::NoAnswer | Self::AnswerTimeout => Side::After,
            Self::WrongBytes => Side::Wrong,
            Self::Lost | Self::Bounced => Side::Lost,
        }
    }
}

/// Counters of one kind of traffic.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counters {
    /// Connection attempts (UDP: exchanges).
    pub attempts: u64,
    /// Attempts that got a SYN-ACK.
    pub connected: u64,
    /// How often each outcome came.
    pub outcomes: BTreeMap<Outcome, u64>,
}

impl Counters {
    /// How often this outcome came.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(&outcome).copied().unwrap_or(0)
    }

    fn side(&self, side: Side) -> u64 {
        self.outcomes
            .iter()
            .filter(|(outcome, _)| outcome.side() == side)
            .map(|(_, count)| count)
            .sum()
    }

    /// Failed before SYN-ACK.
    pub fn before(&self) -> u64 {
        self.side(Side::Before)
    }

    /// Failed after SYN-ACK.
    pub fn after(&self) -> u64 {
        self.side(Side::After)
    }

    /// UDP exchanges without an answer.
    pub fn lost(&self) -> u64 {
        self.side(Side::Lost)
    }

    /// Connections or exchanges that broke, on whichever side: all failures.
    pub fn broken(&self) -> u64 {
        self.before() + self.after() + self.side(Side::Wrong) + self.lost()
    }

    fn merge(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.connected += other.connected;
        for (outcome, count) in &other.outcomes {
            *self.outcomes.entry(*outcome).or_default() += count;
        }
    }
}

/// One tenth of a second, all kinds together.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Bucket {
    /// Attempts started.
    pub attempts: u64,
    /// Answers.
    pub answered: u64,
    /// Failed before SYN-ACK, by the time of the attempt's start.
    pub before: u64,
    /// Failed after SYN-ACK, by the time it was seen.
    pub after: u64,
    /// Wrong bytes.
    pub wrong: u64,
    /// UDP exchanges without an answer, by the time of the request.
    pub lost: u64,
}

/// One failure in full.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Failure {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// In which traffic.
    pub traffic: Traffic,
    /// What it counted as.
    pub outcome: Outcome,
    /// The client's address and port, or what there is to say about it.
    pub detail: String,
}

/// All that one run saw; runs of several generators can be merged.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Report {
    /// First millisecond since 1970.
    pub started_ms: u64,
    /// Last one.
    pub ended_ms: u64,
    /// Counters by kind of traffic.
    pub traffic: BTreeMap<Traffic, Counters>,
    /// From connect to SYN-ACK, all TCP kinds; attempts without one are in the counters only.
    pub connect: Histogram,
    /// From request to the first answer, short and keep-alive connections and UDP.
    pub answer: Histogram,
    /// By time since 1970 in units of [`BUCKET_MS`].
    pub timeline: BTreeMap<u64, Bucket>,
    /// Answers by the name of the server that gave them.
    pub servers: BTreeMap<String, u64>,
    /// The first failures in full.
    pub failures: Vec<Failure>,
}

impl Report {
    /// Adds what another generator saw, at the same time or later.
    pub fn merge(&mut self, other: &Self) {
        self.started_ms = match self.started_ms {
            0 => other.started_ms,
            own => own.min(other.started_ms),
        };
        self.ended_ms = self.ended_ms.max(other.ended_ms);
        for (kind, counters) in &other.traffic {
            self.traffic.entry(*kind).or_default().merge(counters);
        }
        self.connect.merge(&other.connect);
        self.answer.merge(&other.answer);
        for (time, bucket) in &other.timeline {
            let own = self.timeline.entry(*time).or_default();
            own.attempts += bucket.attempts;
            own.answered += bucket.answered;
            own.before += bucket.before;
            own.after += bucket.after;
            own.wrong += bucket.wrong;
            own.lost += bucket.lost;
        }
        for (name, count) in &other.servers {
            *self.servers.entry(name.clone()).or_default() += count;
        }
        self.failures.extend(other.failures.iter().cloned());
        self.failures.truncate(MAX_FAILURES);
    }

    /// Counters of one kind; zeros if there was none.
    pub fn of(&self, traffic: Traffic) -> Counters {
        self.traffic.get(&traffic).cloned().unwrap_or_default()
    }

    /// All kinds added up.
    pub fn total(&self) -> Counters {
        self.sum(|_| true)
    }

    /// All that connects: every kind but UDP.
    pub fn tcp(&self) -> Counters {
        self.sum(|kind| kind != Traffic::Udp)
    }

    fn sum(&self, wanted: impl Fn(Traffic) -> bool) -> Counters {
        let mut sum = Counters::default();
        for (kind, counters) in &self.traffic {
            if wanted(*kind) {
                sum.merge(counters);
            }
        }
        sum
    }

    /// Counts the start of an attempt.
    pub fn attempt(&mut self, traffic: Traffic, at_ms: u64) {
        self.traffic.entry(traffic).or_default().attempts += 1;
        self.bucket(at_ms).attempts += 1;
    }

    /// Counts an outcome at its time; failures come with a detail.
    pub fn outcome(
        &mut self,
        traffic: Traffic,
        outcome: Outcome,
        at_ms: u64,
        detail: impl FnOnce() -> String,
    ) {
        *self
            .traffic
            .entry(traffic)
            .or_default()
            .outcomes
            .entry(outcome)
            .or_default() += 1;
        let bucket = self.bucket(at_ms);
        match outcome.side() {
            Side::Fine if outcome == Outcome::Answered => bucket.answered += 1,
            Side::Fine => {}
            Side::Before => bucket.before += 1,
            Side::After => bucket.after += 1,
            Side::Wrong => bucket.wrong += 1,
            Side::Lost => bucket.lost += 1,
        }
        let worth_telling = outcome.side() != Side::Fine || outcome == Outcome::Local;
        if worth_telling && self.failures.len() < MAX_FAILURES {
            self.failures.push(Failure {
                at_ms,
                traffic,
                outcome,
                detail: detail(),
            });
        }
    }

    fn bucket(&mut self, at_ms: u64) -> &mut Bucket {
        self.timeline.entry(at_ms / BUCKET_MS).or_default()
    }

    /// A few lines for people.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let seconds =
            std::time::Duration::from_millis(self.ended_ms.saturating_sub(self.started_ms))
                .as_secs_f64();
        // Writing to a String cannot fail.
        for (kind, counters) in &self.traffic {
            let outcomes: Vec<String> = counters
                .outcomes
                .iter()
                .map(|(outcome, count)| format!("{outcome:?} {count}"))
                .collect();
            writeln!(
                text,
                "{kind:>10}: {} attempts, {} connected, {} failed before SYN-ACK, {} after ({})",
                counters.attempts,
                counters.connected,
                counters.before(),
                counters.after(),
                outcomes.join(", ")
            )
            .ok();
        }
        writeln!(text, "   connect: {}", self.connect.summary()).ok();
        writeln!(text, "    answer: {}", self.answer.summary()).ok();
        writeln!(text, "   seconds: {seconds:.2}").ok();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(outcome: Outcome, at_ms: u64) -> Report {
        let mut report = Report {
            started_ms: at_ms,
            ended_ms: at_ms,
            ..Report::default()
        };
        report.attempt(Traffic::Short, at_ms);
        report.outcome(Traffic::Short, outcome, at_ms, || "x".to_owned());
        report
    }

    #[test]
    fn merged_reports_add_up_and_survive_json() {
        let mut sum = one(Outcome::Refused, 1_050);
        sum.merge(&one(Outcome::Reset, 1_099));
        sum.merge(&one(Outcome::Answered, 1_100));
        let short = sum.of(Traffic::Short);
        assert_eq!(
            (
                short.attempts,
                short.before(),
                short.after(),
                short.broken()
            ),
            (3, 1, 1, 2)
        );
        assert_eq!((sum.started_ms, sum.ended_ms), (1_050, 1_100));
        assert_eq!(sum.timeline[&10].attempts, 2);
        assert_eq!(sum.timeline[&11].answered, 1);
        assert_eq!(sum.failures.len(), 2, "an answer is no failure");
        let json = serde_json::to_string(&sum).expect("to JSON");
        assert_eq!(
            serde_json::from_str::<Report>(&json).expect("from JSON"),
            sum
        );
    }

    #[test]
    fn a_datagram_is_no_connection_however_it_is_lost() {
        let mut report = Report::default();
        for (traffic, outcome) in [
            (Traffic::Udp, Outcome::Lost),
            (Traffic::Udp, Outcome::Bounced),
            (Traffic::Short, Outcome::Refused),
        ] {
            report.attempt(traffic, 0);
            report.outcome(traffic, outcome, 0, String::new);
        }
        let (total, tcp) = (report.total(), report.tcp());
        assert_eq!((total.before(), total.lost(), total.broken()), (1, 2, 3));
        assert_eq!((tcp.attempts, tcp.before(), tcp.lost()), (1, 1, 0));
        assert_eq!(
            (report.timeline[&0].before, report.timeline[&0].lost),
            (1, 2)
        );
    }

    #[test]
    fn failures_in_full_are_bounded() {
        let mut report = Report::default();
        (0..1000).for_each(|_| report.outcome(Traffic::Udp, Outcome::Lost, 0, String::new));
        assert_eq!(report.failures.len(), MAX_FAILURES);
        assert_eq!(report.of(Traffic::Udp).of(Outcome::Lost), 1000);
    }
}
