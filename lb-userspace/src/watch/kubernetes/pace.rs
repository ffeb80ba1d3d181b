//! How long to wait, for what: pauses that grow and are never the same on two nodes.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// Pauses and patience. Fields so that a test need not wait for minutes.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Pause after a first failure; up to twice that, by chance.
    pub first: Duration,
    /// It doubles up to this.
    pub most: Duration,
    /// How long an answer may take, a whole list included.
    pub answer: Duration,
    /// A watch that says nothing for that long is held for dead and opened anew, from where it was.
    /// The API server sends a bookmark a minute, but not of a kind of which nothing has changed
    /// since it started: there it costs one request each time.
    pub silence: Duration,
    /// A watch that has lasted that long is none that is cut as soon as it begins.
    pub settled: Duration,
    /// How often it is asked for a kind that the API does not have.
    pub absent: Duration,
    /// Objects on a page of a list.
    pub page: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(400),
            most: Duration::from_secs(10),
            answer: Duration::from_mins(1),
            silence: Duration::from_secs(90),
            settled: Duration::from_secs(5),
            absent: Duration::from_secs(30),
            page: 500,
        }
    }
}

impl Pace {
    /// Pauses between failures; made anew after a success.
    pub(super) fn pauses(&self) -> ExponentialBackoff {
        ExponentialBuilder::default()
            .with_min_delay(self.first)
            .with_max_delay(self.most)
            .with_factor(2.0)
            .without_max_times()
            .with_jitter()
            .build()
    }

    /// How many seconds a watch is asked to last: not the same for all, or all agents that were
    /// started together would come back together for ever.
    pub(super) fn watch_seconds() -> u32 {
        fastrand::u32(230..=290)
    }

    /// Roughly that long, for questions that are asked again and again.
    pub(super) fn about(pause: Duration) -> Duration {
        pause.mul_f64(0.75 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        let pace = Pace::default();
        let pauses: Vec<_> = pace.pauses().take(12).collect();
        assert!(pauses[0] >= pace.first && pauses[0] <= pace.first * 2);
        assert!(pauses[3] >= pace.first * 8, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= pace.most * 2));
        assert!(pauses[11] >= pace.most, "it goes on for ever: {pauses:?}");
        let others: Vec<_> = pace.pauses().take(12).collect();
        assert_ne!(pauses, others, "two nodes in step");
    }

    #[test]
    fn watches_last_differently_long_and_never_longer_than_the_client_allows() {
        let lengths: std::collections::BTreeSet<_> =
            (0..100).map(|_| Pace::watch_seconds()).collect();
        assert!(lengths.len() > 10);
        assert!(lengths.iter().all(|seconds| *seconds < 295));
    }
}
