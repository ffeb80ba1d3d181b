//! Rolling updates: every pod of a Service replaced in turn, and the endpoint list late.
//!
//! A pod is stopped the way its [`Kind`] says; whoever balances hears of that only [`Plan::delay`]
//! later, as it is in a cluster, and hears of a new pod once that one listens. One pod at a time:
//! the next one is stopped only when the list has caught up, for nothing can save a connection
//! when every endpoint that a balancer knows of is dead. The driver never tells early, and never
//! touches the load.

mod fleet;
pub mod scenario;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::serve::Kind;
use crate::{Lab, PodId};

pub use fleet::{Directory, Fleet};

/// What is to be rolled, and how.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How the pods end.
    pub kind: Kind,
    /// How much later than a pod's end the endpoint list says so.
    pub delay: Duration,
    /// Rolling updates: in each, every pod is replaced.
    pub updates: usize,
    /// Time between the list catching up and the next stop.
    pub settle: Duration,
}

/// What happened, for pictures and for those who watch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A pod listens and is listed.
    Started(String),
    /// A pod was stopped.
    Stopped(String),
    /// The list says that it ends.
    ListedTerminating(String),
    /// The list has forgotten it.
    Unlisted(String),
}

/// A rollout's outcome.
#[derive(Clone, Debug, Default)]
pub struct Rollout {
    /// Pods stopped.
    pub stops: usize,
    /// What happened, by milliseconds since 1970.
    pub events: Vec<(u64, Event)>,
}

/// A stopped pod on its way out of the list.
struct Leaving {
    pod: PodId,
    terminating_at: Option<Instant>,
    unlisted_at: Option<Instant>,
}

/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Runs the plan. Returns when the last pod is replaced and the list has caught up with all that
/// ended; pods that ignore SIGTERM live on, unlisted by nobody, until [`Fleet::kill_leftovers`].
pub fn run(
    lab: &mut Lab,
    fleet: &mut Fleet,
    directory: &mut dyn Directory,
    plan: Plan,
    watch: &mut dyn FnMut(u64, &Event),
) -> Result<Rollout> {
    let mut rollout = Rollout::default();
    let mut leaving: Vec<Leaving> = Vec::new();
    let mut note = |rollout: &mut Rollout, event: Event| {
        let at = now_ms();
        watch(at, &event);
        rollout.events.push((at, event));
    };
    for _ in 0..plan.updates {
        for old in fleet.listed() {
            let new = fleet.start(lab, plan.kind)?;
            directory.list(&fleet.endpoints())?;
            note(&mut rollout, Event::Started(fleet.name(new)));

            if plan.kind == Kind::D {
                fleet.kill_namespace(lab, old)?;
            } else {
                fleet.signal(old, Signal::SIGTERM)?;
            }
            let stopped = Instant::now();
            rollout.stops += 1;
            note(&mut rollout, Event::Stopped(fleet.name(old)));
            leaving.push(Leaving {
                pod: old,
                terminating_at: Some(stopped + plan.delay),
                unlisted_at: None,
            });
            let next = stopped + plan.delay + plan.settle;
            while Instant::now() < next {
                step(fleet, directory, plan, &mut leaving, &mut |event| {
                    note(&mut rollout, event);
                })?;
                std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
            }
        }
    }
    while leaving
        .iter()
        .any(|left| left.terminating_at.is_some() || left.unlisted_at.is_some())
    {
        step(fleet, directory, plan, &mut leaving, &mut |event| {
            note(&mut rollout, event);
        })?;
        std::thread::sleep(LOOK);
    }
    Ok(rollout)
}

/// Tells the directory what is due by now.
fn step(
    fleet: &mut Fleet,
    directory: &mut dyn Directory,
    plan: Plan,
    leaving: &mut Vec<Leaving>,
    note: &mut dyn FnMut(Event),
) -> Result<()> {
    let now = Instant::now();
    let mut changed = false;
    for left in leaving.iter_mut() {
        if left.unlisted_at.is_none() && fleet.has_ended(left.pod)? {
            left.unlisted_at = Some(now + plan.delay);
        }
        if left.terminating_at.is_some_and(|at| at <= now) {
            left.terminating_at = None;
            fleet.mark_terminating(left.pod);
            changed = true;
            note(Event::ListedTerminating(fleet.name(left.pod)));
        }
        // Told in order: a list that forgets a pod has said before that it ends.
        if left.terminating_at.is_none() && left.unlisted_at.is_some_and(|at| at <= now) {
            fleet.unlist(left.pod);
            changed = true;
            note(Event::Unlisted(fleet.name(left.pod)));
        }
    }
    leaving.retain(|left| fleet.is_listed(left.pod));
    if changed {
        directory.list(&fleet.endpoints())?;
    }
    Ok(())
}

/// Milliseconds since 1970, as reports count.
pub fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}
