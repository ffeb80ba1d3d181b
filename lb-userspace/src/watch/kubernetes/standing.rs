//! How one kind fares with the API: what has failed how often, what is said of it, and how long to
//! wait before the next attempt. Pure, so that every rule of patience is a test without a server.

use std::collections::BTreeMap;
use std::time::Duration;

use backon::ExponentialBackoff;

use super::failure::Failure;
use super::pace::Pace;
use super::report::Trouble;
use crate::desired::{Ignored, ObjectName};
use crate::watch::Right;

/// Failures in a row before it is said of a watch: a server that restarts is none.
const PATIENCE: u32 = 2;
/// The same for a right that was there before: an API server that starts grants nothing until it
/// has read its roles.
const DENIALS: u32 = 3;

/// The state of one kind's dealings with the API.
pub(super) struct Standing {
    /// As in messages.
    resource: &'static str,
    kind: String,
    pace: Pace,
    pauses: ExponentialBackoff,
    /// Failures in a row.
    failures: u32,
    /// Of these, how many refusals in a row.
    denials: u32,
    /// There was no answer the last time.
    unreachable: bool,
    /// 404 was the answer that often in a row.
    absences: u32,
    /// It has been listed to its end.
    listed: bool,
    /// What is wrong with the kind as a whole.
    outage: Option<String>,
    denied: Option<Right>,
    /// Objects that cannot be read, and why.
    pub(super) broken: BTreeMap<ObjectName, String>,
}

impl Standing {
    pub(super) fn new(resource: &'static str, kind: String, pace: Pace) -> Self {
        Self {
            resource,
            kind,
            pauses: pace.pauses(),
            pace,
            failures: 0,
            denials: 0,
            unreachable: false,
            absences: 0,
            listed: false,
            outage: None,
            denied: None,
            broken: BTreeMap::new(),
        }
    }

    /// It has been listed once: from now on no list may be older than what is known.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }

    /// A list is done.
    pub(super) fn listed(&mut self) {
        self.listed = true;
        self.absences = 0;
        self.outage = None;
        self.granted();
    }

    /// A watch is open, or could be.
    pub(super) fn granted(&mut self) {
        self.denied = None;
        self.denials = 0;
        self.unreachable = false;
    }

    /// A watch has lived: the next failure is the first one.
    pub(super) fn lives(&mut self) {
        self.failures = 0;
        self.pauses = self.pace.pauses();
        self.outage = None;
    }

    /// There was no answer the last time.
    pub(super) fn is_unreachable(&self) -> bool {
        self.unreachable
    }

    /// The next pause.
    pub(super) fn pause(&mut self) -> Duration {
        self.pauses.next().unwrap_or(self.pace.most)
    }

    /// Notes a failure; returns how long to wait.
    pub(super) fn failed(&mut self, verb: &'static str, failure: &Failure) -> Duration {
        tracing::debug!(resource = self.resource, verb, %failure, "failed");
        let unreachable = matches!(failure, Failure::Unreachable(_));
        if self.unreachable && !unreachable {
            // It is back: the pauses of the outage are over.
            self.failures = 0;
            self.pauses = self.pace.pauses();
        }
        self.unreachable = unreachable;
        self.failures += 1;
        self.absences = 0;
        if *failure == Failure::Denied {
            self.denials += 1;
            if !self.listed || self.denials >= DENIALS {
                self.denied = Some(Right {
                    verb,
                    resource: self.resource,
                });
            }
        } else {
            self.denials = 0;
            if verb == "list" || self.failures >= PATIENCE {
                self.outage = Some(format!(
                    "cannot {verb} them: {failure}; what is known stays in force"
                ));
            }
        }
        self.pause()
    }

    /// The API has no such kind; returns how long to wait, and whether that is to be believed now.
    /// It is asked twice. (While it starts an API server answers 503, since 1.23.)
    pub(super) fn absent(&mut self) -> (Duration, bool) {
        self.absences += 1;
        self.granted();
        if self.absences == 1 {
            let pause = if self.listed {
                Pace::about(self.pace.absent)
            } else {
                self.pause()
            };
            return (pause, false);
        }
        let name = self.resource;
        self.outage = Some(format!(
            "the custom resource definition {name} is not installed: there are none"
        ));
        let believed = self.absences == 2;
        if believed {
            self.broken.clear();
        }
        (Pace::about(self.pace.absent), believed)
    }

    /// What is wrong now.
    pub(super) fn trouble(&self) -> Trouble {
        let broken = self.broken.iter().map(|(name, why)| Ignored {
            object: format!("{}/{name}", self.kind),
            reason: format!("cannot be read: {why}; its last good version stays"),
        });
        let outage = self.outage.iter().map(|reason| Ignored {
            object: format!("API {}", self.resource),
            reason: reason.clone(),
        });
        Trouble {
            problems: outage.chain(broken).collect(),
            denied: self.denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing() -> Standing {
        Standing::new("services", "Service".to_owned(), Pace::default())
    }

    fn unreachable() -> Failure {
        Failure::Unreachable("refused".to_owned())
    }

    #[test]
    fn a_server_that_restarts_is_no_trouble_and_one_that_stays_away_is() {
        let mut standing = standing();
        standing.listed();
        standing.failed("watch", &unreachable());
        assert_eq!(standing.trouble(), Trouble::default());
        standing.failed("watch", &unreachable());
        let said = standing.trouble().problems[0].clone();
        assert_eq!(said.object, "API services");
        assert_eq!(
            said.reason,
            "cannot watch them: refused; what is known stays in force"
        );
        standing.lives();
        assert_eq!(standing.trouble(), Trouble::default());
    }

    #[test]
    fn a_right_that_was_never_there_is_named_at_once_and_one_that_was_after_a_while() {
        let mut fresh = standing();
        fresh.failed("list", &Failure::Denied);
        let denied = |verb| {
            let resource = "services";
            Some(Right { verb, resource })
        };
        assert_eq!(fresh.trouble().denied, denied("list"));
        fresh.listed();
        assert_eq!(fresh.trouble().denied, None);
        for said in [None, None, denied("watch")] {
            fresh.failed("watch", &Failure::Denied);
            assert_eq!(fresh.trouble().denied, said);
        }
        // Not in a row: nothing is known of the right meanwhile, and what was known stays.
        fresh.failed("watch", &unreachable());
        assert_eq!(fresh.trouble().denied, denied("watch"));
        fresh.granted();
        assert_eq!(fresh.trouble().denied, None);
    }

    #[test]
    fn after_an_outage_the_first_answer_begins_with_short_pauses() {
        let mut standing = standing();
        standing.listed();
        let long = (0..8).map(|_| standing.failed("watch", &unreachable()));
        assert!(long.last() > Some(Duration::from_secs(8)));
        let pause = standing.failed("watch", &Failure::Denied);
        assert!(pause < Duration::from_secs(1), "{pause:?}");
    }

    #[test]
    fn a_missing_kind_is_believed_at_the_second_answer_in_a_row() {
        let mut standing = standing();
        assert!(!standing.absent().1);
        standing.failed("list", &unreachable());
        assert!(!standing.absent().1, "not in a row");
        assert!(standing.absent().1);
        assert!(!standing.absent().1, "it is told once");
        standing.listed();
        let (pause, believed) = standing.absent();
        assert!(!believed, "it was there");
        assert!(pause > Duration::from_secs(20), "{pause:?}");
        assert!(standing.absent().1);
    }
}
