//! A histogram of durations with about 3 % resolution, that can be merged and sent as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Buckets per doubling, as a power of two.
const SUB_BITS: u32 = 5;
const SUB: u64 = 1 << SUB_BITS;

/// Counts by microseconds: exact below 32, then 32 buckets for each doubling.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Histogram {
    buckets: BTreeMap<u64, u64>,
    count: u64,
    max_us: u64,
}

impl Histogram {
    /// Adds one duration.
    pub fn record(&mut self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        *self.buckets.entry(index(us)).or_default() += 1;
        self.count += 1;
        self.max_us = self.max_us.max(us);
    }

    /// Adds all of another's.
    pub fn merge(&mut self, other: &Self) {
        for (index, count) in &other.buckets {
            *self.buckets.entry(*index).or_default() += count;
        }
        self.count += other.count;
        self.max_us = self.max_us.max(other.max_us);
    }

    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest one, exactly.
    pub fn max(&self) -> Duration {
        Duration::from_micros(self.max_us)
    }

    /// The duration that a share (0.0 to 1.0) of all did not exceed; zero when nothing was recorded.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a rank among fewer than 2^52 values, never negative"
    )]
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, count) in &self.buckets {
            seen += count;
            if seen >= rank {
                return Duration::from_micros(upper(*index).min(self.max_us));
            }
        }
        Duration::ZERO
    }

    /// `p50 0.10 ms, p99 ...` for people.
    pub fn summary(&self) -> String {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        format!(
            "p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms",
            ms(self.quantile(0.5)),
            ms(self.quantile(0.99)),
            ms(self.quantile(0.999)),
            ms(self.max())
        )
    }
}

fn index(us: u64) -> u64 {
    if us < SUB {
        return us;
    }
    let shift = us.ilog2() - SUB_BITS;
    u64::from(shift) * SUB + (us >> shift)
}

/// The largest value that falls into this bucket.
fn upper(index: u64) -> u64 {
    if index < 2 * SUB {
        return index;
    }
    let shift = index / SUB - 1;
    let mantissa = index - shift * SUB;
    // The last bucket ends where u64 does.
    u64::try_from(((u128::from(mantissa) + 1) << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_within_three_percent() {
        for us in (0..100_000).chain([1 << 20, (1 << 20) + 1, 1 << 40, u64::MAX - 1, u64::MAX]) {
            let top = upper(index(us));
            assert!(top >= us, "{us} is above its bucket's top {top}");
            assert!(top - us <= us / 31, "{us} is reported as {top}");
            if us > 0 {
                assert!(
                    upper(index(us) - 1) < us,
                    "{us} belongs into the bucket below"
                );
            }
        }
    }

    #[test]
    fn quantiles_and_merge() {
        let (mut low, mut high) = (Histogram::default(), Histogram::default());
        assert_eq!(low.quantile(0.5), Duration::ZERO);
        (1..=99).for_each(|_| low.record(Duration::from_micros(10)));
        high.record(Duration::from_millis(5));
        low.merge(&high);
        assert_eq!(low.count(), 100);
        assert_eq!(low.quantile(0.5), Duration::from_micros(10));
        assert_eq!(low.quantile(0.99), Duration::from_micros(10));
        assert_eq!(low.quantile(1.0), Duration::from_millis(5));
        assert_eq!(low.max(), Duration::from_millis(5));
    }
}
