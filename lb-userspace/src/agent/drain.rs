//! Draining, as the agent carries it out: what the timers say is written down before anything else
//! follows from it, and what was written down is where the next agent goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use anyhow::Context as _;
use lb_common::abi::{Kind, State};

use super::{Agent, lives};
use crate::apply::{DrainBook, KernelStore, drain_entries, frontend_key};
use crate::desired::{EndpointState, FrontendKey, ServiceId, Via};
use crate::load::Maps;
use crate::model::Allocations;
use crate::netlink::Node;
use crate::observe::metrics::Metrics;
use crate::plan::{Applied, Scope};
use crate::timer::drain::{DrainRecord, DrainSettings, Drains, Effect, EndpointRef};

/// Services that had a VIP before this agent started: not all of them have records.
pub(super) type Had = BTreeMap<IpAddr, BTreeSet<ServiceId>>;

/// Takes over what the agent before knew. Endpoints that are in the maps without a record are
/// taken as they are found.
pub(super) fn restore(
    settings: DrainSettings,
    maps: &Maps,
    applied: &Applied,
    now: Duration,
) -> anyhow::Result<(Drains, DrainBook)> {
    let entries = drain_entries(maps).context("reading what an earlier agent knew of draining")?;
    let (book, mut records, errors) = DrainBook::adopt(entries);
    for error in errors {
        tracing::warn!(%error, "a record of a draining endpoint cannot be read and is passed over");
    }
    let recorded: BTreeSet<_> = records.iter().map(|record| record.endpoint).collect();
    let unrecorded = unrecorded(applied).filter(|(endpoint, _)| !recorded.contains(endpoint));
    records
        .extend(unrecorded.map(|(endpoint, via)| DrainRecord::of_unrecorded(endpoint, via, now)));
    let mut drains = Drains::new(settings);
    drains.import(records, now);
    let known = applied.endpoints.values();
    drains.number_after(
        known
            .map(|endpoint| endpoint.incarnation)
            .max()
            .unwrap_or(0),
    );
    Ok((drains, book))
}

/// Endpoints whose life is not over, as the maps have them.
fn unrecorded(applied: &Applied) -> impl Iterator<Item = (EndpointRef, Via)> {
    let frontends: BTreeMap<u32, FrontendKey> = applied
        .frontends
        .iter()
        .filter_map(|(key, frontend)| Some((frontend.value.id, frontend_key(*key)?)))
        .collect();
    let alive = |state: u8| matches!(State::from_u8(state), State::Active | State::Draining);
    let endpoints = applied.endpoints.values();
    endpoints
        .filter(move |endpoint| alive(endpoint.state) && endpoint.incarnation != 0)
        .filter_map(move |endpoint| {
            let address = SocketAddrV4::new(endpoint.address.into(), endpoint.port);
            let via = match Kind::from_u8(endpoint.via) {
                Kind::Local => Via::Local,
                Kind::Nat | Kind::NatReply => Via::Nat,
            };
            let endpoint = EndpointRef {
                frontend: *frontends.get(&endpoint.frontend)?,
                address: SocketAddr::V4(address),
                incarnation: endpoint.incarnation,
            };
            Some((endpoint, via))
        })
}

/// Who had which VIP, by VIP.
pub(super) fn had(prior: &Allocations) -> Had {
    let mut had = Had::new();
    for (service, addresses) in prior.services() {
        for address in addresses {
            let had = had.entry(*address).or_default();
            had.insert(ServiceId::of(service));
        }
    }
    had
}

impl Agent {
    /// Keeps VIPs on which connections drain from being given to somebody else. Before a snapshot
    /// is taken, and after the last of them has ended. True when that may change the snapshot.
    pub(super) fn reserve(&mut self) -> bool {
        let mut leaving = self.drains.leaving_vips(self.world.desired());
        for (vip, reservation) in &mut leaving {
            let had = self.had.get(vip).into_iter().flatten();
            reservation.services.extend(had.copied());
        }
        if leaving.is_empty() && self.world.is_complete() {
            self.had.clear();
        }
        let changed = leaving != self.world.context().reserved;
        self.world.reserve(leaving);
        changed
    }

    /// Writes down what changed, and follows up on it; returns the frontends concerned.
    pub(super) fn follow(&mut self, effects: &[Effect]) -> BTreeSet<FrontendKey> {
        let changed = self.drains.take_changed();
        let mut keys: BTreeSet<_> = changed.iter().map(|(e, _)| e.frontend).collect();
        self.write_records(changed);
        // Before the first complete list, a life that nobody lists means nothing.
        if self.world.desired().complete {
            if self.lives.is_empty() {
                keys.extend(self.drains.frontends());
            }
            for key in &keys {
                lives::renew(&mut self.lives, &self.drains, *key);
            }
        }
        for effect in effects {
            tell(effect, &self.metrics);
            if let Effect::Probe {
                address: IpAddr::V4(pod),
            } = effect
            {
                self.pods.probe(*pod, &Node);
            }
        }
        keys
    }

    /// Lets go of lives that are over and whose flows are settled.
    pub(super) fn forget_gone(&mut self, now: Duration) {
        let settled = |endpoint: &EndpointRef| {
            let SocketAddr::V4(address) = endpoint.address else {
                return true;
            };
            let life = endpoint.incarnation;
            let Some(id) = self.planner.id_of_life(&endpoint.frontend, address, life) else {
                return true;
            };
            let applied = self.planner.applied().endpoints.get(&id);
            let told = applied.is_none_or(|value| State::from_u8(value.state) == State::Gone);
            told && !self.resets.concerns(id)
        };
        let over: Vec<_> = self
            .drains
            .iter()
            .filter(|(_, life)| life.state == EndpointState::Gone)
            .map(|(endpoint, _)| endpoint)
            .filter(settled)
            .collect();
        if over.is_empty() {
            return;
        }
        for endpoint in &over {
            self.drains.forget(endpoint);
        }
        self.follow(&[]);
        if self.reserve() {
            self.told(Vec::new());
        }
        self.round(Scope::All, now);
    }

    /// Writes records, and those that could not be written before.
    pub(super) fn write_records(&mut self, changed: Vec<(EndpointRef, Option<DrainRecord>)>) {
        let before = self.book.unwritten().is_some();
        let mut store = KernelStore::new(&mut self.datapath.maps);
        if !self.book.write(changed, &mut store)
            && !before
            && let Some((count, error)) = self.book.unwritten()
        {
            tracing::warn!(
                count,
                error,
                "records of draining endpoints are not written: a restart would begin their deadlines anew"
            );
        }
    }
}

fn tell(effect: &Effect, metrics: &Metrics) {
    if let Effect::State { to, cause, .. } = effect {
        metrics.changed(to.as_str(), cause.as_str());
    }
    match effect {
        Effect::State {
            endpoint,
            from: Some(from),
            to,
            cause,
        } => {
            let FrontendKey {
                address,
                port,
                protocol,
            } = endpoint.frontend;
            tracing::info!(endpoint = %endpoint.address, frontend = %format_args!("{address}:{port}/{protocol}"),
                from = from.as_str(), to = to.as_str(), %cause, "an endpoint's state");
        }
        Effect::State { .. }
        | Effect::Selection { .. }
        | Effect::MoveUdp { .. }
        | Effect::Reset { .. }
        | Effect::Probe { .. } => {}
    }
}
