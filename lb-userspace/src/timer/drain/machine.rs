//! The machine: snapshots, sightings and time in; effects out.
//!
//! Every entry point updates facts first and settles what is overdue last, so that a sighting
//! before the vanishing and one after it end alike. Nothing ends before the first complete
//! snapshot: until then an endpoint that is not listed may merely not be listed *yet*.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::desired::{
    Desired, EndpointState, Frontend, FrontendKey, ObjectName, Protocol, ServiceId,
};

use super::effect::{Cause, Effect, EndpointRef, Flows, Lifecycle, PodSight};
use super::track::Track;

/// The two time-outs that are not a Service's own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DrainSettings {
    /// For an endpoint that vanished without a word, where its Service sets none.
    pub drain_timeout: Duration,
    /// For one that was terminating before it vanished.
    pub terminated_grace: Duration,
}

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            drain_timeout: Duration::from_mins(1),
            terminated_grace: Duration::from_secs(5),
        }
    }
}

/// One frontend's endpoints, the latest life of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// The Service that asked for it last; unknown after a restart.
    pub(super) service: Option<ObjectName>,
    /// The same, as the records have it.
    pub(super) service_id: Option<ServiceId>,
    /// Asked for by the last complete snapshot (or any since).
    pub(super) wanted: bool,
    pub(super) tracks: BTreeMap<SocketAddr, Track>,
}

/// Lives of all endpoints of all frontends. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Drains {
    pub(super) settings: DrainSettings,
    pub(super) groups: BTreeMap<FrontendKey, Group>,
    /// Lives that are over and whose address has begun another.
    pub(super) past: BTreeMap<EndpointRef, Track>,
    pub(super) deadlines: BTreeSet<(Duration, FrontendKey, SocketAddr)>,
    pub(super) last_incarnation: u32,
    pub(super) generation: u64,
    /// A complete snapshot was seen.
    pub(super) settled: bool,
    /// Frontends whose listing is to be taken again with the next snapshot, changed or not.
    pub(super) again: BTreeSet<FrontendKey>,
    /// Lives whose record may differ from what was last taken.
    pub(super) changed: BTreeSet<EndpointRef>,
}

impl Drains {
    /// Nothing known.
    pub fn new(settings: DrainSettings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Takes a snapshot as the latest word. Only a complete one makes endpoints vanish.
    pub fn observe(&mut self, desired: &Desired, now: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.generation += 1;
        self.again.clear();
        for (key, frontend) in &desired.frontends {
            self.take(*key, frontend, now, &mut effects);
        }
        if desired.complete {
            self.settled = true;
            self.sweep(desired, now, &mut effects);
        }
        self.settle(now, &mut effects);
        effects
    }

    /// The same where nothing but these frontends has changed since the last snapshot: what it
    /// costs depends on them, not on how many there are.
    pub fn observe_some(
        &mut self,
        desired: &Desired,
        changed: &BTreeSet<FrontendKey>,
        now: Duration,
    ) -> Vec<Effect> {
        if !self.settled || !desired.complete {
            return self.observe(desired, now);
        }
        let mut effects = Vec::new();
        self.generation += 1;
        let again = std::mem::take(&mut self.again);
        for key in changed.union(&again) {
            if let Some(frontend) = desired.frontends.get(key) {
                self.take(*key, frontend, now, &mut effects);
            }
            self.sweep_one(key, desired, now, &mut effects);
        }
        self.settle(now, &mut effects);
        effects
    }

    fn take(
        &mut self,
        key: FrontendKey,
        frontend: &Frontend,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        let group = self.groups.entry(key).or_default();
        group.wanted = true;
        if group.service.as_ref() != Some(&frontend.service) {
            group.service = Some(frontend.service.clone());
            let id = Some(ServiceId::of(&frontend.service));
            if group.service_id != id {
                group.service_id = id;
                let tracks = group.tracks.iter();
                let names = tracks.map(|(address, track)| name(key, *address, track));
                self.changed.extend(names);
            }
        }
        for endpoint in &frontend.endpoints {
            self.list(key, endpoint, frontend.drain_timeout, now, effects);
        }
    }

    /// Takes a sighting of this node.
    pub fn sight(&mut self, sight: PodSight, now: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        let (address, seen_gone) = match sight {
            PodSight::Suspect(address) => {
                let alive = |key: &FrontendKey, at: &SocketAddr| {
                    self.current(key, *at)
                        .is_some_and(|(_, l)| l.state != EndpointState::Gone)
                };
                let known = self.lives_at(address).any(|(key, at)| alive(&key, &at));
                return known
                    .then_some(Effect::Probe { address })
                    .into_iter()
                    .collect();
            }
            PodSight::Gone(address) => (address, true),
            PodSight::Alive(address) => (address, false),
        };
        let found: Vec<_> = self.lives_at(address).collect();
        for (frontend, endpoint) in found {
            self.change(frontend, endpoint, now, &mut effects, |track| {
                track.seen_gone = seen_gone;
            });
        }
        self.settle(now, &mut effects);
        effects
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.deadlines
            .first()
            .filter(|_| self.settled)
            .map(|(at, ..)| *at)
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.settle(now, &mut effects);
        effects
    }

    /// The agent has reset or moved every flow of a life that is over, and may reuse its id.
    /// False when that life is unknown or not over.
    pub fn forget(&mut self, endpoint: &EndpointRef) -> bool {
        if self.past.remove(endpoint).is_some() {
            self.changed.insert(*endpoint);
            return true;
        }
        let Some(group) = self.groups.get_mut(&endpoint.frontend) else {
            return false;
        };
        let Some(track) = group.tracks.get_mut(&endpoint.address) else {
            return false;
        };
        if track.incarnation != endpoint.incarnation || !track.gone() || track.forgotten {
            return false;
        }
        self.changed.insert(*endpoint);
        if track.vanished.is_some() {
            group.tracks.remove(&endpoint.address);
            self.drop_if_empty(endpoint.frontend);
        } else {
            // Still listed: remembered, so that the next snapshot does not revive it.
            track.forgotten = true;
        }
        true
    }

    /// Starts a life; one that is there is over.
    pub(super) fn begin(
        &mut self,
        key: FrontendKey,
        address: SocketAddr,
        mut track: Track,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        self.end(key, address, Cause::Replaced, now, effects);
        self.last_incarnation += 1;
        track.incarnation = self.last_incarnation;
        track.generation = self.generation;
        track.forgotten = false;
        track.entered = now;
        (track.state, track.cause, track.deadline) = track.judge(self.settings);
        let endpoint = name(key, address, &track);
        effects.push(Effect::State {
            endpoint,
            from: None,
            to: track.state,
            cause: track.cause,
        });
        if let Some(at) = track.deadline {
            self.deadlines.insert((at, key, address));
        }
        self.changed.insert(endpoint);
        let group = self.groups.entry(key).or_default();
        if let Some(before) = group.tracks.insert(address, track) {
            let past = name(key, address, &before);
            self.changed.insert(past);
            if !before.forgotten {
                self.past.insert(past, before);
            }
        }
    }

    /// Changes the facts of a life, and follows up.
    pub(super) fn change(
        &mut self,
        key: FrontendKey,
        address: SocketAddr,
        now: Duration,
        effects: &mut Vec<Effect>,
        change: impl FnOnce(&mut Track),
    ) {
        let Some(group) = self.groups.get_mut(&key) else {
            return;
        };
        let Some(track) = group.tracks.get_mut(&address) else {
            return;
        };
        let before = track.lifecycle(key.protocol);
        change(track);
        self.changed.insert(name(key, address, track));
        if track.gone() {
            return;
        }
        let (state, cause, deadline) = track.judge(self.settings);
        if state != track.state {
            track.entered = now;
        }
        (track.state, track.cause, track.deadline) = (state, cause, deadline);
        if before.deadline != deadline {
            if let Some(at) = before.deadline {
                self.deadlines.remove(&(at, key, address));
            }
            if let Some(at) = deadline {
                self.deadlines.insert((at, key, address));
            }
        }
        let endpoint = name(key, address, track);
        tell(endpoint, before, track.lifecycle(key.protocol), effects);
    }

    /// Ends the life at this address, if there is one.
    fn end(
        &mut self,
        key: FrontendKey,
        address: SocketAddr,
        cause: Cause,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        let Some(group) = self.groups.get_mut(&key) else {
            return;
        };
        let Some(track) = group.tracks.get_mut(&address).filter(|track| !track.gone()) else {
            return;
        };
        let before = track.lifecycle(key.protocol);
        self.changed.insert(name(key, address, track));
        if let Some(at) = track.deadline {
            self.deadlines.remove(&(at, key, address));
        }
        track.end(cause, now);
        tell(
            name(key, address, track),
            before,
            track.lifecycle(key.protocol),
            effects,
        );
    }

    /// Ends what is overdue.
    fn settle(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        while let Some(&(_, key, address)) = self
            .deadlines
            .first()
            .filter(|(at, ..)| self.settled && *at <= now)
        {
            let seen = self
                .groups
                .get(&key)
                .and_then(|group| group.tracks.get(&address));
            let cause = match seen {
                Some(track) if track.seen_gone && track.vanished.is_some() => Cause::SeenGone,
                Some(_) | None => Cause::Deadline,
            };
            self.end(key, address, cause, now, effects);
        }
    }

    /// Latest lives on this node at an address. Those that are over count: the pod may return
    /// under its old name, and must not carry its death with it.
    fn lives_at(&self, address: IpAddr) -> impl Iterator<Item = (FrontendKey, SocketAddr)> + '_ {
        self.groups.iter().flat_map(move |(key, group)| {
            let here = move |(at, track): &(&SocketAddr, &Track)| {
                at.ip() == address && track.listing.local
            };
            group.tracks.iter().filter(here).map(|(at, _)| (*key, *at))
        })
    }

    fn drop_if_empty(&mut self, key: FrontendKey) {
        if self
            .groups
            .get(&key)
            .is_some_and(|g| !g.wanted && g.tracks.is_empty())
        {
            self.groups.remove(&key);
        }
    }
}

pub(super) fn name(frontend: FrontendKey, address: SocketAddr, track: &Track) -> EndpointRef {
    EndpointRef {
        frontend,
        address,
        incarnation: track.incarnation,
    }
}

/// The edge between two levels.
fn tell(endpoint: EndpointRef, before: Lifecycle, after: Lifecycle, effects: &mut Vec<Effect>) {
    let Lifecycle {
        state: to,
        new_connections,
        cause,
        ..
    } = after;
    if before.state != to {
        effects.push(Effect::State {
            endpoint,
            from: Some(before.state),
            to,
            cause,
        });
    }
    if before.new_connections != new_connections {
        effects.push(Effect::Selection {
            endpoint,
            new_connections,
        });
    }
    if before.flows != after.flows {
        match (endpoint.frontend.protocol, after.flows) {
            (Protocol::Tcp, Flows::Reset) => effects.push(Effect::Reset { endpoint }),
            (Protocol::Udp, Flows::Move) => effects.push(Effect::MoveUdp { endpoint }),
            (Protocol::Tcp | Protocol::Udp, _) => {}
        }
    }
}
