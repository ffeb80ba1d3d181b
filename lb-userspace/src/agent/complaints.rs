//! Says in the log what was left out, each once while it lasts: whoever starts an agent on a machine
//! looks there first. Never more than a few at a time, for `sluice status` has all of them.

use std::collections::BTreeSet;

use crate::observe::state::IgnoredObject;

/// How many are said at a time.
const AT_ONCE: usize = 20;

/// What was said already, and still holds.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    said: BTreeSet<IgnoredObject>,
}

impl Complaints {
    /// Takes all that is left out now, and says what is new.
    pub(super) fn look(&mut self, ignored: &[IgnoredObject]) {
        let news = self.news(ignored);
        for IgnoredObject { object, reason } in news.iter().take(AT_ONCE) {
            tracing::warn!(%object, %reason, "left out");
        }
        if let Some(more) = news.len().checked_sub(AT_ONCE).filter(|more| *more > 0) {
            tracing::warn!(more, "left out as well: `sluice status` has all of them");
        }
    }

    fn news(&mut self, ignored: &[IgnoredObject]) -> Vec<IgnoredObject> {
        let now: BTreeSet<_> = ignored.iter().cloned().collect();
        let news = now.difference(&self.said).cloned().collect();
        self.said = now;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_news_once_while_it_lasts() {
        let mut complaints = Complaints::default();
        let mut news = |names: &[&str]| {
            let object = |name: &&str| IgnoredObject {
                object: (*name).to_owned(),
                reason: "no ports".to_owned(),
            };
            let ignored: Vec<_> = names.iter().map(object).collect();
            let news = complaints.news(&ignored);
            news.into_iter().map(|left| left.object).collect::<Vec<_>>()
        };
        assert_eq!(news(&["a"]), ["a"]);
        assert_eq!(news(&["b", "a"]), ["b"]);
        assert!(news(&["a", "b"]).is_empty());
        assert!(news(&["b"]).is_empty());
        assert_eq!(news(&["a", "b"]), ["a"], "it came back");
    }
}
