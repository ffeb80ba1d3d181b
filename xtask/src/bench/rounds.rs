//! Interleaved rounds: what each case took in each round, and the medians of it.
//!
//! On a machine that does other things too, neighbours in time are comparable and figures far
//! apart are not. So ratios are made within a round, and the median is taken of the ratios.

use std::collections::BTreeMap;

/// Figures by case, one per round.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<&'static str, Vec<f64>>);

impl Samples {
    /// Adds one round's figure of a case.
    pub(crate) fn add(&mut self, case: &'static str, figure: f64) {
        self.0.entry(case).or_default().push(figure);
    }

    /// A case's figures net of another's, round by round.
    pub(crate) fn net(&self, case: &str, of: &str) -> Vec<f64> {
        self.both(case, of).map(|(a, b)| a - b).collect()
    }

    fn both(&self, a: &str, b: &str) -> impl Iterator<Item = (f64, f64)> {
        let all = |name| self.0.get(name).into_iter().flatten().copied();
        all(a).zip(all(b))
    }
}

/// Quotients of two series, round by round.
pub(crate) fn ratios(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter().zip(to).map(|(a, b)| a / b).collect()
}

/// The middle one; the mean of the middle two where their number is even. Not a number where
/// there is none.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(..=middle) {
        Some([.., a, b]) if sorted.len().is_multiple_of(2) => f64::midpoint(*a, *b),
        Some([.., last]) => *last,
        _ => f64::NAN,
    }
}

/// The figure that so large a part of all are not above (nearest rank). Not a number where there
/// is none.
pub(crate) fn quantile(figures: &[f64], part: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let above = sorted.iter().enumerate().find(|(index, _)| {
        let counted = *index as f64 + 1.0;
        counted >= part * sorted.len() as f64
    });
    above.map_or(f64::NAN, |(_, figure)| *figure)
}

#[cfg(test)]
mod tests {
    use super::{Samples, median, quantile, ratios};

    #[test]
    fn quantiles_count_from_below() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (part, figure) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.001, 1.0)] {
            assert!((quantile(&hundred, part) - figure).abs() < 1e-9, "{part}");
        }
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn medians_are_the_middle() {
        assert!(median(&[]).is_nan());
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!((median(&[7.0]) - 7.0).abs() < 1e-9);
    }

    #[test]
    fn ratios_are_made_within_a_round() {
        let mut samples = Samples::default();
        // The second round ran at half speed.
        for (tx, floor, product) in [(10.0, 40.0, 55.0), (20.0, 80.0, 110.0)] {
            samples.add("tx", tx);
            samples.add("floor", floor);
            samples.add("product", product);
        }
        let ratios = ratios(&samples.net("product", "tx"), &samples.net("floor", "tx"));
        assert_eq!(ratios, [1.5, 1.5]);
    }
}
