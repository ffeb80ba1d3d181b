//! What a snapshot says of each endpoint, and what its silence says.

use std::time::Duration;

use crate::desired::{Desired, Endpoint, FrontendKey};

use super::Drains;
use super::effect::{Effect, PodId};
use super::machine::name;
use super::track::{Listing, Track};

impl Drains {
    /// Takes one endpoint's entry.
    pub(super) fn list(
        &mut self,
        key: FrontendKey,
        endpoint: &Endpoint,
        cap: Option<Duration>,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        let address = endpoint.address;
        let listing = Listing::from(endpoint);
        let uid = endpoint.uid.as_deref().map(PodId::of);
        let generation = self.generation;
        let known = self
            .groups
            .get_mut(&key)
            .and_then(|group| group.tracks.get_mut(&address));
        let Some(track) = known else {
            let track = Track::new(0, listing, uid, cap, now);
            return self.begin(key, address, track, now, effects);
        };
        if track.says_the_same(listing, uid, cap) {
            track.generation = generation;
            return;
        }
        if track.is_other_pod(uid) {
            let track = Track::new(0, listing, uid, cap, now);
            return self.begin(key, address, track, now, effects);
        }
        if track.gone() {
            let mut next = track.clone();
            next.list(listing, uid, cap, now);
            if !next.stillborn(self.settings, now) {
                return self.begin(key, address, next, now, effects);
            }
            // A sighting may change that, and no listing will say so.
            self.again.insert(key);
        }
        self.change(key, address, now, effects, |track| {
            track.list(listing, uid, cap, now);
            track.generation = generation;
        });
    }

    /// What the snapshot does not list has vanished.
    pub(super) fn sweep(&mut self, desired: &Desired, now: Duration, effects: &mut Vec<Effect>) {
        for key in self.groups.keys().copied().collect::<Vec<_>>() {
            self.sweep_one(&key, desired, now, effects);
        }
    }

    /// The same for one frontend.
    pub(super) fn sweep_one(
        &mut self,
        key: &FrontendKey,
        desired: &Desired,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        let wanted = desired.frontends.get(key);
        group.wanted = wanted.is_some();
        let missing: Vec<_> = group
            .tracks
            .iter()
            .filter(|(_, track)| track.generation != self.generation)
            .map(|(address, track)| {
                let cap = wanted.map_or(track.cap, |frontend| frontend.drain_timeout);
                (*address, cap)
            })
            .collect();
        for (address, cap) in missing {
            self.change(*key, address, now, effects, |track| {
                track.vanish(now);
                track.cap = cap;
            });
        }
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        let changed = &mut self.changed;
        group.tracks.retain(|address, track| {
            let over = track.forgotten && track.vanished.is_some();
            if over {
                changed.insert(name(*key, *address, track));
            }
            !over
        });
        if !group.wanted && group.tracks.is_empty() {
            self.groups.remove(key);
        }
    }
}
