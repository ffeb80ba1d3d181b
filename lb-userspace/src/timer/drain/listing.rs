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
        }
        self.change(key, address, now, effects, |track| {
            track.list(listing, uid, cap, now);
            track.generation = generation;
        });
    }

    /// What the snapshot does not list has vanished.
    pub(super) fn sweep(&mut self, desired: &Desired, now: Duration, effects: &mut Vec<Effect>) {
        let mut missing = Vec::new();
        for (key, group) in &mut self.groups {
            let wanted = desired.frontends.get(key);
            group.wanted = wanted.is_some();
            for (address, track) in &group.tracks {
                if track.generation != self.generation {
                    let cap = wanted.map_or(track.cap, |frontend| frontend.drain_timeout);
                    missing.push((*key, *address, cap));
                }
            }
        }
        for (key, address, cap) in missing {
            self.change(key, address, now, effects, |track| {
                track.vanish(now);
                track.cap = cap;
            });
        }
        let changed = &mut self.changed;
        self.groups.retain(|key, group| {
            group.tracks.retain(|address, track| {
                let over = track.forgotten && track.vanished.is_some();
                if over {
                    changed.insert(name(*key, *address, track));
                }
                !over
            });
            group.wanted || !group.tracks.is_empty()
        });
    }
}
