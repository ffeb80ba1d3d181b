//! Whose flows are to be reset, and which try it is. Pure: the time is an argument.
//!
//! A packet may be lost and a receiver may limit its answers, so each endpoint's flows are walked
//! some times, with pauses, until none is left that has not been heard of, or patience ends.

use std::collections::BTreeMap;
use std::time::Duration;

/// Time between a walk's end and the next one.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// Endpoints by id.
#[derive(Clone, Debug, Default)]
pub(super) struct Jobs {
    jobs: BTreeMap<u32, Job>,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    /// Walks done.
    pass: u32,
    due: Duration,
    /// Open flows found by the walk under way; none while it is not part of one.
    found: Option<usize>,
}

impl Jobs {
    /// Takes an endpoint on; one that is there already goes on as it is.
    pub(super) fn add(&mut self, id: u32, now: Duration) {
        self.jobs.entry(id).or_insert(Job {
            pass: 0,
            due: now,
            found: None,
        });
    }

    /// True while an endpoint's flows are being reset.
    pub(super) fn contains(&self, id: u32) -> bool {
        self.jobs.contains_key(&id)
    }

    /// True when there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Begins a walk for all that are due; returns them, and whether one is new.
    pub(super) fn begin(&mut self, now: Duration) -> (Vec<u32>, bool) {
        let mut due = Vec::new();
        let mut new = false;
        for (id, job) in &mut self.jobs {
            if job.due <= now {
                job.found = Some(0);
                new |= job.pass == 0;
                due.push(*id);
            }
        }
        (due, new)
    }

    /// Meets a flow; `open` when nothing is known of its end. The try's number when its endpoint is
    /// part of this walk.
    pub(super) fn meet(&mut self, id: u32, open: bool) -> Option<u32> {
        let job = self.jobs.get_mut(&id)?;
        *job.found.as_mut()? += usize::from(open);
        Some(job.pass)
    }

    /// The walk is over. Endpoints without an open flow left, or after their last try, are done.
    pub(super) fn finish(&mut self, now: Duration) {
        self.jobs.retain(|_, job| {
            let Some(found) = job.found.take() else {
                return true;
            };
            let pause = PAUSES.get(job.pass as usize);
            job.pass += 1;
            job.due = now + pause.copied().unwrap_or_default();
            found > 0 && pause.is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_endpoint_without_flows_is_done_at_once() {
        let mut jobs = Jobs::default();
        jobs.add(7, at(0));
        assert_eq!(jobs.begin(at(0)), (vec![7], true));
        assert!(jobs.contains(7));
        jobs.finish(at(0));
        assert!(jobs.is_empty());
    }

    #[test]
    fn flows_are_tried_three_times_with_pauses() {
        let mut jobs = Jobs::default();
        jobs.add(7, at(0));
        for (pass, due) in [(0, 0), (1, 1), (2, 3)] {
            if due > 0 {
                assert_eq!(jobs.begin(at(due - 1)).0, Vec::<u32>::new());
                assert_eq!(jobs.meet(7, true), None, "no walk is under way");
            }
            jobs.add(7, at(due));
            assert_eq!(jobs.begin(at(due)), (vec![7], pass == 0));
            assert_eq!(jobs.meet(7, true), Some(pass));
            assert_eq!(jobs.meet(8, true), None);
            jobs.finish(at(due));
        }
        assert!(jobs.is_empty());
    }

    #[test]
    fn one_that_comes_during_a_walk_waits_for_the_next() {
        let mut jobs = Jobs::default();
        jobs.add(7, at(0));
        jobs.begin(at(0));
        jobs.add(8, at(0));
        assert_eq!(jobs.meet(8, true), None);
        assert_eq!(jobs.meet(7, false), Some(0));
        jobs.finish(at(0));
        assert!(!jobs.contains(7) && jobs.contains(8));
        assert_eq!(jobs.begin(at(0)), (vec![8], true));
    }
}
