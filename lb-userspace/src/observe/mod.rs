//! Looking inside: counters, metrics, readiness, logs, and the snapshot people read.
//!
//! The data plane only counts; everything here reads. Nothing in this folder decides anything
//! about traffic, and none of it may hold the agent's loop up: the loop publishes a
//! [`state::StateSnapshot`], and the HTTP side answers from the last one.

pub mod batch;
pub mod client;
pub mod counters;
pub mod health;
pub mod http;
pub mod links;
pub mod logs;
pub mod metrics;
pub mod pins;
pub mod state;

/// Where the agent answers HTTP unless told otherwise.
pub const DEFAULT_HTTP_ADDRESS: &str = "127.0.0.1:9095";

#[cfg(test)]
mod tests {
    use lb_common::Reason;

    use super::pins::MAPS;

    #[test]
    fn every_reason_is_explained_under_its_outcome() {
        let text = include_str!("../../../docs/reasons.md");
        for reason in Reason::ALL {
            let (label, outcome) = (reason.as_str(), reason.outcome().as_str());
            let rows: Vec<_> = text
                .lines()
                .filter(|line| line.starts_with(&format!("| `{label}` |")))
                .collect();
            assert_eq!(rows.len(), 1, "{label} in docs/reasons.md");
            let section = format!("\n## `{outcome}`");
            let (_, after) = text.split_once(&section).expect("a section per outcome");
            let own = after.split("\n## ").next().unwrap_or_default();
            assert!(own.contains(rows[0]), "{label} belongs under {outcome}");
        }
        let rows = text.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(
            rows,
            Reason::COUNT,
            "a reason that no longer exists is explained"
        );
    }

    #[test]
    fn every_map_is_described() {
        let text = include_str!("../../../docs/maps.md");
        for map in MAPS {
            assert!(
                text.contains(&format!("\n### `{}`\n", map.name)),
                "{}",
                map.name
            );
        }
        assert_eq!(text.matches("\n### `").count(), MAPS.len());
    }
}
