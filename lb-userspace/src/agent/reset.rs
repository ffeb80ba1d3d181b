//! Ends the flows of endpoints that are gone: TCP by resets that both sides accept, UDP by
//! forgetting them, so that the next datagram chooses anew.
//!
//! What is to be done stands in map `endpoints`: whatever is marked gone there. A sweep inside the
//! kernel marks the flows first, so that every answer to what is sent here meets a data plane that
//! knows; then the flow table is walked in steps, between which the loop turns. Frames are paced,
//! for a dead pod may have had a hundred thousand connections.

mod frame;
mod jobs;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

use aya::maps::MapData;
use lb_common::V4;
use lb_common::abi::{
    self, Flow, FlowKey, Kind, STATE_FIN_CLIENT, STATE_FIN_ENDPOINT, STATE_RST, State,
};
use lb_common::wire::ipv4;

use super::{Agent, boot_clock};
use crate::netlink::{Links, local_hops};
use crate::observe::batch::Walk;
use crate::plan::{Applied, MapOp, Plan};
use frame::{Ask, Hop};
use jobs::Jobs;

/// How often a piece of the work is done, while there is any.
pub(super) const PACE: Duration = Duration::from_millis(20);
/// Frames sent at a time.
const FRAMES: usize = 1024;
/// Steps of the walk at a time, of some thousand flows each.
const STEPS: usize = 4;

/// Both sides have sent FIN.
const CLOSED: u8 = STATE_FIN_CLIENT | STATE_FIN_ENDPOINT;

/// Work under way.
pub(super) struct Resets {
    flows: MapData,
    jobs: Jobs,
    walk: Option<Walk>,
    /// How pods on this node are reached, by endpoint id; as of the walk's begin.
    pods: BTreeMap<u32, Hop>,
    frames: VecDeque<(u32, Vec<u8>)>,
}

impl Resets {
    /// Goes on with what an earlier agent may have left: endpoints that are marked gone.
    pub(super) fn new(flows: MapData, applied: &Applied, now: Duration) -> Self {
        let mut jobs = Jobs::default();
        for (id, endpoint) in &applied.endpoints {
            if State::from_u8(endpoint.state) == State::Gone {
                jobs.add(*id, now);
            }
        }
        Self {
            flows,
            jobs,
            walk: None,
            pods: BTreeMap::new(),
            frames: VecDeque::new(),
        }
    }

    /// Takes on what a plan has marked gone. A write that failed is in the next plan again.
    pub(super) fn follow(&mut self, plan: &Plan, now: Duration) {
        for op in &plan.ops {
            if let MapOp::PutEndpoint { id, value, .. } = op
                && State::from_u8(value.state) == State::Gone
            {
                self.jobs.add(*id, now);
            }
        }
    }

    /// True while flows of this endpoint are being reset.
    pub(super) fn concerns(&self, id: u32) -> bool {
        self.jobs.contains(id)
    }

    /// True while there is anything to do or to wait for.
    pub(super) fn is_busy(&self) -> bool {
        !self.jobs.is_empty() || !self.frames.is_empty()
    }

    /// Walks on, and draws up frames. True when a walk has ended.
    fn step(
        &mut self,
        endpoints: &Endpoints,
        links: &Links,
        other: impl Fn(&FlowKey<V4>) -> Option<Flow<V4>>,
        now: Duration,
    ) -> bool {
        let Some(walk) = &mut self.walk else {
            return false;
        };
        let (jobs, pods, frames) = (&mut self.jobs, &self.pods, &mut self.frames);
        let visit = |key: &FlowKey<V4>, flow: &Flow<V4>| {
            if key.protocol != ipv4::TCP {
                return;
            }
            // A RST that was seen may not have been taken: it gets its tries, but no more of them.
            let closed = flow.state & CLOSED == CLOSED;
            let open = !closed && flow.state & STATE_RST == 0;
            let Some(pass) = jobs.meet(flow.endpoint, open) else {
                return;
            };
            let ask = match pass {
                _ if closed => Ask::Nothing,
                0 => Ask::Once,
                _ => Ask::Again,
            };
            if let Some(hop) = to_sender(flow, endpoints, links) {
                let other = if flow.kind == Kind::Local as u8 {
                    None
                } else {
                    other(&partner(flow, key.protocol))
                };
                let heard = other.map_or(0, |other| other.ack.get());
                let sent = frame::to_sender(key, flow, heard, hop, ask);
                frames.extend(sent.into_iter().map(|frame| (hop.ifindex, frame)));
            }
            if flow.kind == Kind::Local as u8
                && !closed
                && let Some(hop) = pods.get(&flow.endpoint)
            {
                frames.push_back((hop.ifindex, frame::to_pod(flow, *hop, pass)));
            }
        };
        match walk.step(&self.flows, visit) {
            Ok(true) => false,
            Ok(false) => {
                self.walk = None;
                self.jobs.finish(now);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot walk the flows of endpoints that are gone");
                self.walk = None;
                self.jobs.finish(now);
                true
            }
        }
    }
}

type Endpoints = BTreeMap<u32, abi::Endpoint<V4>>;

/// Key of the other direction's entry.
fn partner(flow: &Flow<V4>, protocol: u8) -> FlowKey<V4> {
    FlowKey::new(flow.dst, flow.src, flow.ports.swapped(), protocol)
}

/// The way back to whoever sends by this entry: the client, or the endpoint behind full NAT.
fn to_sender(flow: &Flow<V4>, endpoints: &Endpoints, links: &Links) -> Option<Hop> {
    if flow.kind == Kind::NatReply as u8 {
        let endpoint = endpoints.get(&flow.endpoint)?;
        return (endpoint.ifindex != 0).then_some(Hop {
            ifindex: endpoint.ifindex,
            from: endpoint.own_mac.0,
            to: endpoint.next_hop.0,
        });
    }
    Some(Hop {
        ifindex: flow.ifindex,
        from: links.by_index(flow.ifindex)?.mac?,
        to: flow.mac.0,
    })
}

impl Agent {
    /// Does a piece of the work.
    pub(super) fn reset_some(&mut self) {
        let now = boot_clock();
        self.begin_resets(now);
        let endpoints = &self.planner.applied().endpoints;
        let mut ended = false;
        for _ in 0..STEPS {
            if self.resets.frames.len() >= FRAMES || ended {
                break;
            }
            let flows = &self.datapath.maps.flows;
            let other = |key: &FlowKey<V4>| flows.get(key, 0).ok();
            ended = self.resets.step(endpoints, &self.links, other, now);
        }
        let count = self.resets.frames.len().min(FRAMES);
        self.metrics.reset(count);
        for (ifindex, frame) in self.resets.frames.drain(..count) {
            // An interface that is gone takes nothing, and leads to nobody.
            if let Err(error) = self.datapath.emit(ifindex, &frame) {
                tracing::warn!(%error, "cannot send a reset");
            }
        }
        if ended {
            self.forget_gone(now);
        }
    }

    fn begin_resets(&mut self, now: Duration) {
        if self.resets.walk.is_some() {
            return;
        }
        let (due, new) = self.resets.jobs.begin(now);
        if due.is_empty() {
            return;
        }
        if new {
            self.sweep();
        }
        let endpoints = &self.planner.applied().endpoints;
        let local = due.iter().filter_map(|id| {
            let endpoint = endpoints.get(id)?;
            let address = Ipv4Addr::from(endpoint.address);
            (endpoint.via == Kind::Local as u8).then_some((*id, address))
        });
        self.resets.pods = hops(local.collect(), &self.links);
        self.resets.walk = Some(Walk::default());
    }
}

/// How these pods are reached, as far as the kernel knows.
fn hops(pods: BTreeMap<u32, Ipv4Addr>, links: &Links) -> BTreeMap<u32, Hop> {
    let addresses = pods.values().copied().collect();
    let reached = local_hops(&addresses).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot find the way to pods that are to be reset");
        BTreeMap::new()
    });
    pods.into_iter()
        .filter_map(|(id, address)| {
            let (ifindex, to) = *reached.get(&address)?;
            let from = links.by_index(ifindex)?.mac?;
            Some((id, Hop { ifindex, from, to }))
        })
        .collect()
}
