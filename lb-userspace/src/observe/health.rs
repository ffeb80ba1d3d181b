//! Readiness as a list of what is missing, in words that name the object and the way out.
//!
//! Ready means: this node's data plane does what the sources say. An API outage does not make
//! a node unready (it keeps serving what it knows), and neither does a bad object of somebody
//! else's: that is in the list of ignored objects.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing that keeps the node from being ready.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum NotReady {
    /// The loop has not finished its first round.
    Starting,
    /// A kind of object has not been listed to its end.
    NotListed {
        /// The kind.
        kind: String,
    },
    /// The API server refuses a verb.
    Denied {
        /// The verb.
        verb: String,
        /// The resource.
        resource: String,
    },
    /// The kernel or the rights of this process lack something.
    Missing {
        /// What, and what would help.
        what: String,
    },
    /// An interface has no program.
    NotAttached {
        /// The interface.
        interface: String,
        /// Why.
        error: String,
    },
    /// Writes to the kernel that failed and are being retried.
    FailedWrites {
        /// How many.
        count: usize,
        /// The first of them.
        first: String,
    },
    /// An object found no room.
    MapFull {
        /// The map.
        map: String,
        /// The object left out.
        object: String,
    },
}

impl NotReady {
    /// Label for metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::NotListed { .. } => "not_listed",
            Self::Denied { .. } => "denied",
            Self::Missing { .. } => "missing",
            Self::NotAttached { .. } => "not_attached",
            Self::FailedWrites { .. } => "failed_writes",
            Self::MapFull { .. } => "map_full",
        }
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::NotListed { kind } => write!(f, "{kind} objects not listed yet"),
            Self::Denied { verb, resource } => {
                write!(f, "may not {verb} {resource}: grant it in the ClusterRole")
            }
            Self::Missing { what } => f.write_str(what),
            Self::NotAttached { interface, error } => {
                write!(f, "no program on {interface}: {error}")
            }
            Self::FailedWrites { count, first } => {
                write!(
                    f,
                    "{count} map writes failed and are retried; the first: {first}"
                )
            }
            Self::MapFull { map, object } => {
                write!(f, "map {map} is full, left out: {object}")
            }
        }
    }
}

/// Whether the node is ready, and why not.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Readiness {
    /// Nothing is missing.
    pub ready: bool,
    /// What is missing, sorted, nothing twice.
    pub reasons: Vec<NotReady>,
}

impl Default for Readiness {
    /// Not ready: the loop has not said anything yet.
    fn default() -> Self {
        Self::of([NotReady::Starting])
    }
}

impl Readiness {
    /// From what is missing.
    pub fn of(reasons: impl IntoIterator<Item = NotReady>) -> Self {
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort();
        reasons.dedup();
        Self {
            ready: reasons.is_empty(),
            reasons,
        }
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ready {
            return writeln!(f, "ready");
        }
        writeln!(f, "not ready")?;
        self.reasons
            .iter()
            .try_for_each(|reason| writeln!(f, "- {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_that_nothing_is_missing() {
        assert!(Readiness::of([]).ready);
        assert!(!Readiness::default().ready, "silence is not readiness");
        let missing = NotReady::NotListed {
            kind: "Service".into(),
        };
        let readiness = Readiness::of([missing.clone(), NotReady::Starting, missing]);
        assert_eq!(readiness.reasons.len(), 2);
        assert_eq!(
            readiness.to_string(),
            "not ready\n- starting\n- Service objects not listed yet\n"
        );
    }

    #[test]
    fn reasons_survive_json() {
        let denied = NotReady::Denied {
            verb: "list".into(),
            resource: "services".into(),
        };
        let json = serde_json::to_string(&Readiness::of([denied])).expect("serializable");
        assert_eq!(
            json,
            r#"{"ready":false,"reasons":[{"reason":"denied","verb":"list","resource":"services"}]}"#
        );
        let back: Readiness = serde_json::from_str(&json).expect("own output");
        assert_eq!(
            back.reasons[0].to_string(),
            "may not list services: grant it in the ClusterRole"
        );
    }
}
