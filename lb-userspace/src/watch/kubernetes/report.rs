//! What the followers of all kinds have to say, on one channel and in one order.
//!
//! Troubles are told as a whole, so they are put together and sent under one lock: a follower that
//! waited for room in the channel must not overwrite what another has said since.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use super::follow::HungUp;
use crate::desired::Ignored;
use crate::watch::{Right, WatchEvent};

/// What is wrong with one kind.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Trouble {
    /// Something is not as it should be.
    pub(super) problems: Vec<Ignored>,
    /// A right is missing.
    pub(super) denied: Option<Right>,
}

type Troubles = BTreeMap<&'static str, Trouble>;

/// The agent's ear.
#[derive(Clone)]
pub(super) struct Report {
    events: mpsc::Sender<Vec<WatchEvent>>,
    troubles: Arc<Mutex<Troubles>>,
    /// Rings when the API has answered somebody.
    answered: Arc<Notify>,
}

impl Report {
    pub(super) fn new(events: mpsc::Sender<Vec<WatchEvent>>) -> Self {
        Self {
            events,
            troubles: Arc::default(),
            answered: Arc::default(),
        }
    }

    /// Tells what happened.
    pub(super) async fn tell(&self, events: Vec<WatchEvent>) -> Result<(), HungUp> {
        self.events.send(events).await.map_err(|_closed| HungUp)
    }

    /// Tells what is wrong with a resource now, if that is news.
    pub(super) async fn trouble(&self, resource: &'static str, now: Trouble) -> Result<(), HungUp> {
        if self.known(resource) == now {
            return Ok(());
        }
        let place = self.events.reserve().await.map_err(|_closed| HungUp)?;
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.insert(resource, now);
        let problems = troubles.values().flat_map(|t| t.problems.iter().cloned());
        let denied = troubles.values().filter_map(|t| t.denied);
        place.send(vec![
            WatchEvent::Problems(problems.collect()),
            WatchEvent::Denied(denied.collect()),
        ]);
        Ok(())
    }

    fn known(&self, resource: &str) -> Trouble {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.get(resource).cloned().unwrap_or_default()
    }

    /// The API has answered as it should.
    pub(super) fn answered(&self) {
        self.answered.notify_waiters();
    }

    /// Waits; who could not reach the API only until somebody else has. Five kinds with pauses of
    /// their own would be behind by the longest of them.
    pub(super) async fn wait(&self, pause: Duration, unreachable: bool) {
        tokio::select! {
            () = sleep(pause) => {}
            () = self.answered.notified(), if unreachable => {}
        }
    }

    /// Until the agent has hung up.
    pub(super) async fn closed(&self) {
        self.events.closed().await;
    }
}
