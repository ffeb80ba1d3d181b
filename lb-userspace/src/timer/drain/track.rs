//! One life of one endpoint: the facts, and the state and deadline that follow from them.
//!
//! State and deadline are a function of the facts, computed in one place, so that the order
//! in which facts arrive cannot matter beyond what the facts themselves keep.

use std::time::Duration;

use crate::desired::{Endpoint, EndpointState, Protocol};

use super::DrainSettings;
use super::effect::{Cause, Flows, Lifecycle, PodId};

/// What the slices said when they last listed it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent conditions of the API, by name"
)]
pub(super) struct Listing {
    pub(super) ready: bool,
    pub(super) serving: bool,
    pub(super) terminating: bool,
    pub(super) selected: bool,
    pub(super) local: bool,
}

impl From<&Endpoint> for Listing {
    fn from(endpoint: &Endpoint) -> Self {
        Self {
            ready: endpoint.ready,
            serving: endpoint.serving,
            terminating: endpoint.terminating,
            selected: endpoint.new_connections,
            local: endpoint.local,
        }
    }
}

impl Listing {
    /// Terminating, and kept out of the ready set.
    fn ending(self) -> bool {
        self.terminating && !self.ready
    }
}

#[derive(Clone, Debug)]
pub(super) struct Track {
    pub(super) incarnation: u32,
    pub(super) uid: Option<PodId>,
    pub(super) listing: Listing,
    /// When it vanished; `None` while listed.
    pub(super) vanished: Option<Duration>,
    /// When it was first seen terminating or vanished, since it was last well.
    pub(super) anchor: Option<Duration>,
    /// The Service's drain timeout, as last seen.
    pub(super) cap: Option<Duration>,
    /// This node saw the pod go.
    pub(super) seen_gone: bool,
    /// Its flows are settled; only its being gone is remembered.
    pub(super) forgotten: bool,
    /// Snapshot that last listed it.
    pub(super) generation: u64,
    pub(super) state: EndpointState,
    pub(super) cause: Cause,
    pub(super) entered: Duration,
    pub(super) deadline: Option<Duration>,
}

impl Track {
    /// A life that begins with being listed.
    pub(super) fn new(
        incarnation: u32,
        listing: Listing,
        uid: Option<PodId>,
        cap: Option<Duration>,
        now: Duration,
    ) -> Self {
        Self {
            incarnation,
            uid,
            listing,
            vanished: None,
            anchor: listing.terminating.then_some(now),
            cap,
            seen_gone: false,
            forgotten: false,
            generation: 0,
            state: EndpointState::Unready,
            cause: Cause::NotReady,
            entered: now,
            deadline: None,
        }
    }

    pub(super) fn gone(&self) -> bool {
        self.state == EndpointState::Gone
    }

    /// Another pod than this one? Unknown on either side is no proof.
    pub(super) fn is_other_pod(&self, uid: Option<PodId>) -> bool {
        matches!((self.uid, uid), (Some(old), Some(new)) if old != new)
    }

    /// Nothing new? Then most of a snapshot is done with at a glance.
    pub(super) fn says_the_same(
        &self,
        listing: Listing,
        uid: Option<PodId>,
        cap: Option<Duration>,
    ) -> bool {
        !self.gone()
            && self.vanished.is_none()
            && self.cause != Cause::Restored
            && self.listing == listing
            && self.cap == cap
            && (uid.is_none() || self.uid == uid)
    }

    /// Takes a listing as the latest word.
    pub(super) fn list(
        &mut self,
        listing: Listing,
        uid: Option<PodId>,
        cap: Option<Duration>,
        now: Duration,
    ) {
        self.listing = listing;
        self.uid = uid.or(self.uid);
        self.cap = cap;
        self.vanished = None;
        self.anchor = listing.terminating.then(|| self.anchor.unwrap_or(now));
    }

    /// No slice lists it any more.
    pub(super) fn vanish(&mut self, now: Duration) {
        if self.vanished.is_none() {
            self.vanished = Some(now);
            self.anchor.get_or_insert(now);
            self.listing.selected = false;
        }
    }

    /// State and deadline that follow from the facts, of a life that is not over.
    pub(super) fn judge(
        &self,
        settings: DrainSettings,
    ) -> (EndpointState, Cause, Option<Duration>) {
        let Some(vanished) = self.vanished else {
            return if self.listing.ready {
                (EndpointState::Active, Cause::Ready, None)
            } else if self.listing.terminating {
                (EndpointState::Draining, Cause::Terminating, self.capped())
            } else {
                (EndpointState::Unready, Cause::NotReady, None)
            };
        };
        let own = if self.seen_gone {
            vanished
        } else if self.listing.terminating {
            vanished + settings.terminated_grace
        } else {
            vanished + self.cap.unwrap_or(settings.drain_timeout)
        };
        let deadline = self.capped().map_or(own, |cap| cap.min(own));
        (EndpointState::Draining, Cause::Vanished, Some(deadline))
    }

    /// Would a new life under these facts be over at once? Then the old end stands.
    pub(super) fn stillborn(&self, settings: DrainSettings, now: Duration) -> bool {
        let (_, _, deadline) = self.judge(settings);
        self.listing.ending() && (self.seen_gone || deadline.is_some_and(|at| at <= now))
    }

    /// The moment beyond which the Service's own timeout lets nothing drain.
    fn capped(&self) -> Option<Duration> {
        Some(self.anchor? + self.cap?)
    }

    /// Ends this life. Facts are kept: they tell a later listing from a revival.
    pub(super) fn end(&mut self, cause: Cause, now: Duration) {
        self.state = EndpointState::Gone;
        self.cause = cause;
        self.entered = now;
        self.deadline = None;
    }

    pub(super) fn new_connections(&self) -> bool {
        self.listing.selected && self.vanished.is_none() && !self.seen_gone && !self.gone()
    }

    pub(super) fn flows(&self, protocol: Protocol) -> Flows {
        match protocol {
            Protocol::Tcp if self.gone() => Flows::Reset,
            Protocol::Tcp => Flows::Stay,
            Protocol::Udp => {
                let usable = self.listing.ready || self.listing.serving;
                if usable && self.vanished.is_none() && !self.seen_gone && !self.gone() {
                    Flows::Stay
                } else {
                    Flows::Move
                }
            }
        }
    }

    pub(super) fn lifecycle(&self, protocol: Protocol) -> Lifecycle {
        Lifecycle {
            state: self.state,
            new_connections: self.new_connections(),
            flows: self.flows(protocol),
            since: self.entered,
            deadline: self.deadline,
            uid: self.uid,
            local: self.listing.local,
            cause: if self.seen_gone && !self.gone() {
                // Why it gets nothing new, whatever it is called.
                Cause::SeenGone
            } else {
                self.cause
            },
        }
    }
}
