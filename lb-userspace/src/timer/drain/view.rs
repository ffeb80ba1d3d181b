//! What the machine shows: lives, holds, and records for the agent that comes after.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::desired::{Desired, FrontendKey, ServiceId};
use crate::model::Reserved;

use super::Drains;
use super::effect::{Cause, EndpointRef, Hold, Lifecycle};
use super::machine::name;
use super::record::DrainRecord;

impl Drains {
    /// Every life that is not forgotten, in order.
    pub fn iter(&self) -> impl Iterator<Item = (EndpointRef, Lifecycle)> + '_ {
        let past = self
            .past
            .iter()
            .map(|(endpoint, track)| (*endpoint, track.lifecycle(endpoint.frontend.protocol)));
        self.groups
            .keys()
            .flat_map(|key| self.frontend(key))
            .chain(past)
    }

    /// The latest life of each endpoint of a frontend; past lives are only in [`Self::iter`].
    pub fn frontend(
        &self,
        key: &FrontendKey,
    ) -> impl Iterator<Item = (EndpointRef, Lifecycle)> + use<'_> {
        let frontend = *key;
        self.groups
            .get(key)
            .into_iter()
            .flat_map(|group| &group.tracks)
            .filter_map(move |(address, track)| {
                let endpoint = name(frontend, *address, track);
                (!track.forgotten).then(|| (endpoint, track.lifecycle(frontend.protocol)))
            })
    }

    /// The same with those that are forgotten: they are listed still, and must stay as they are.
    pub fn all_of(
        &self,
        key: &FrontendKey,
    ) -> impl Iterator<Item = (EndpointRef, Lifecycle)> + use<'_> {
        let frontend = *key;
        let tracks = self.groups.get(key).into_iter().flat_map(|g| &g.tracks);
        tracks.map(move |(address, track)| {
            let endpoint = name(frontend, *address, track);
            (endpoint, track.lifecycle(frontend.protocol))
        })
    }

    /// Every frontend that is wanted or was.
    pub fn frontends(&self) -> impl Iterator<Item = FrontendKey> + '_ {
        self.groups.keys().copied()
    }

    /// VIPs that lose a frontend with this snapshot (or have lost one) while endpoints of it
    /// drain, with the Services that had the VIP so far. To be asked before the snapshot is
    /// taken: it may give the VIP to somebody else.
    pub fn leaving_vips(&self, desired: &Desired) -> Reserved {
        let mut leaving = Reserved::new();
        if !desired.complete {
            return leaving;
        }
        let past: BTreeSet<_> = self.past.keys().map(|past| past.frontend).collect();
        for (key, group) in &self.groups {
            let next = desired.frontends.get(key);
            let stays = next.is_some_and(|next| {
                group.service.as_ref() == Some(&next.service)
                    || group
                        .service_id
                        .is_none_or(|known| known == ServiceId::of(&next.service))
            });
            let drains = group.tracks.values().any(|track| !track.forgotten);
            if !stays && (drains || past.contains(key)) {
                let reservation = leaving.entry(key.address).or_default();
                reservation.by = group.service.clone().or(reservation.by.take());
            }
        }
        for (key, group) in &self.groups {
            if let Some(reservation) = leaving.get_mut(&key.address) {
                reservation.services.extend(group.service_id);
            }
        }
        leaving
    }

    /// The latest life of one endpoint.
    pub fn current(
        &self,
        frontend: &FrontendKey,
        address: SocketAddr,
    ) -> Option<(EndpointRef, Lifecycle)> {
        let track = self.groups.get(frontend)?.tracks.get(&address)?;
        let lifecycle = track.lifecycle(frontend.protocol);
        (!track.forgotten).then(|| (name(*frontend, address, track), lifecycle))
    }

    /// Frontends nobody asks for any more that must go on being answered; see [`Hold`].
    /// Empty before the first complete snapshot.
    pub fn holds(&self) -> BTreeMap<FrontendKey, Hold> {
        let unwanted = |key: &FrontendKey| !self.groups.get(key).is_some_and(|group| group.wanted);
        let mut holds = BTreeMap::new();
        for (endpoint, life) in self
            .iter()
            .filter(|(endpoint, _)| self.settled && unwanted(&endpoint.frontend))
        {
            let service = self
                .groups
                .get(&endpoint.frontend)
                .and_then(|g| g.service.clone());
            let until = life.deadline.unwrap_or(life.since);
            let hold = holds
                .entry(endpoint.frontend)
                .or_insert(Hold { service, until });
            hold.until = hold.until.max(until);
        }
        holds
    }

    /// What must survive a restart, in order.
    pub fn export(&self) -> Vec<DrainRecord> {
        let latest = self.groups.iter().flat_map(|(key, group)| {
            let tracks = group.tracks.iter();
            tracks.map(|(address, track)| name(*key, *address, track))
        });
        latest
            .chain(self.past.keys().copied())
            .filter_map(|endpoint| self.record(&endpoint))
            .collect()
    }

    /// Lives whose records may have changed since this was last called, with the record as it is
    /// now; none for a life that need not be remembered any more.
    pub fn take_changed(&mut self) -> Vec<(EndpointRef, Option<DrainRecord>)> {
        let changed = std::mem::take(&mut self.changed);
        let with_record = |endpoint: EndpointRef| (endpoint, self.record(&endpoint));
        changed.into_iter().map(with_record).collect()
    }

    fn record(&self, endpoint: &EndpointRef) -> Option<DrainRecord> {
        let group = self.groups.get(&endpoint.frontend);
        let latest = group
            .and_then(|group| group.tracks.get(&endpoint.address))
            .filter(|track| track.incarnation == endpoint.incarnation);
        let track = latest.or_else(|| self.past.get(endpoint))?;
        let service = group.and_then(|group| group.service_id);
        Some(DrainRecord::of(*endpoint, service, track))
    }

    /// Incarnations up to this one were given before and must not be given again: the kernel may
    /// still know them.
    pub fn number_after(&mut self, incarnation: u32) {
        self.last_incarnation = self.last_incarnation.max(incarnation);
    }

    /// Takes over from the agent before. To be called before the first snapshot; a life that is
    /// known already is left alone.
    pub fn import(&mut self, records: impl IntoIterator<Item = DrainRecord>, now: Duration) {
        let mut records: Vec<_> = records.into_iter().collect();
        records.sort_by_key(|record| record.endpoint);
        for record in records {
            let EndpointRef {
                frontend,
                address,
                incarnation,
            } = record.endpoint;
            self.last_incarnation = self.last_incarnation.max(incarnation);
            let group = self.groups.entry(frontend).or_default();
            group.service_id = record.service.or(group.service_id);
            let tracks = &mut group.tracks;
            if tracks
                .get(&address)
                .is_some_and(|known| known.incarnation >= incarnation)
            {
                continue;
            }
            let track = record.track(now);
            if let Some(at) = track.deadline {
                self.deadlines.insert((at, frontend, address));
            }
            if let Some(mut before) = tracks.insert(address, track) {
                if let Some(at) = before.deadline {
                    self.deadlines.remove(&(at, frontend, address));
                }
                let past = name(frontend, address, &before);
                if !before.gone() {
                    before.end(Cause::Replaced, now);
                    self.changed.insert(past);
                }
                self.past.insert(past, before);
            }
        }
    }
}
