//! The host's rig: the pipeline over plain collections.

use lb_common::abi::{Endpoint, Flow, FlowKey, Health, Kind, Reverse};
use lb_common::wire::l4::Ports;
use lb_common::wire::{Be16, Be32};
use lb_common::{Mac, V4};
use lb_ebpf::flow::partner;
use lb_ebpf::host::{HostFrame, HostSkb, HostWorld, run_egress, run_ingress};
use lb_ebpf::sweep::{Fate, judge, mark};
use lb_ebpf::world::{Entry, World};

use super::case::{Ran, Rig, Tables};
use super::node::{FLOWS, Node};

/// The pipeline on the host.
pub struct Host(pub HostWorld);

impl Host {
    pub fn new(node: &Node) -> Self {
        let world = HostWorld::new(node.link(), node.config());
        world.vips.borrow_mut().extend(node.vips());
        world.bitmap.borrow_mut().extend(node.bits());
        world.frontends.borrow_mut().extend(node.frontends());
        let endpoints = node.endpoints.iter().copied();
        world.endpoints.borrow_mut().extend(endpoints);
        world.tables.borrow_mut().extend(node.words());
        world.source_ranges.borrow_mut().extend(node.ranges());
        world.flows.limit(FLOWS);
        world.reverse.limit(FLOWS);
        Self(world)
    }
}

/// Keys and values of entries that only take room.
pub fn filler(index: usize) -> (FlowKey<V4>, Flow<V4>, Reverse<V4>) {
    let address = V4([255, 255, (index >> 8) as u8, index as u8]);
    let key = FlowKey::new(address, address, Ports::default(), 6);
    let flow = Flow {
        src: address,
        dst: address,
        ports: Ports::default(),
        address_delta: 0,
        port_delta: 0,
        endpoint: 0,
        frontend: 0,
        seen: 0,
        replied: 0,
        ack: Be32::new(0),
        ifindex: 0,
        mac: Mac([0; 6]),
        kind: Kind::Local as u8,
        state: 0,
    };
    let reverse = Reverse {
        vip: address,
        ports: Ports {
            src: Be16::new(0),
            dst: Be16::new(0),
        },
        seen: 0,
    };
    (key, flow, reverse)
}

/// True for a filler's key.
pub fn is_filler(key: &FlowKey<V4>) -> bool {
    key.src.0[..2] == [255, 255]
}

impl Rig for Host {
    fn set_up(&mut self, node: &Node) {
        *self = Self::new(node);
    }

    fn ingress(&mut self, frame: &[u8]) -> Ran {
        let mut frame = HostFrame::new(frame);
        self.0.redirected.set(None);
        let reason = run_ingress(&mut frame, &self.0);
        Ran {
            reason,
            frame: frame.bytes().to_vec(),
            redirect: self.0.redirected.get(),
        }
    }

    fn egress(&mut self, frame: &[u8], partial: bool) -> Ran {
        let mut skb = HostSkb::new(frame, partial);
        let reason = run_egress(&mut skb, &self.0);
        Ran {
            reason,
            frame: skb.bytes().to_vec(),
            redirect: None,
        }
    }

    fn sweep(&mut self) {
        let world = &self.0;
        for (key, flow) in world.flows.entries() {
            if is_filler(&key) {
                continue;
            }
            let other_key = partner(&flow, key.protocol);
            let local = flow.kind == Kind::Local as u8;
            let other = if local {
                None
            } else {
                world.flows.get(&other_key).map(|other| other.seen)
            };
            let endpoint = world.endpoint(flow.endpoint);
            match judge(&key, &flow, other, endpoint, world.tick()) {
                Fate::Keep => {}
                Fate::MarkGone => {
                    let mut marked = flow;
                    mark(&mut marked, world.tick());
                    (&world.flows).insert(&key, &marked);
                }
                Fate::Forget => {
                    if local {
                        (&world.reverse).remove(&other_key);
                    } else {
                        (&world.flows).remove(&other_key);
                    }
                    (&world.flows).remove(&key);
                }
            }
        }
    }

    fn wait(&mut self, millis: u32) {
        self.0.advance(u64::from(millis) << 20);
    }

    fn set_endpoint(&mut self, id: u32, endpoint: Endpoint<V4>) {
        self.0.endpoints.borrow_mut().insert(id, endpoint);
    }

    fn set_health(&mut self, id: u32, health: Health) {
        self.0.set_health(id, health);
    }

    fn fill(&mut self, flows: usize, reverse: usize) {
        let world = &self.0;
        for index in world.flows.entries().len()..FLOWS - flows {
            let (key, flow, _) = filler(index);
            (&world.flows).insert(&key, &flow);
        }
        for index in world.reverse.entries().len()..FLOWS - reverse {
            let (key, _, reverse) = filler(index);
            (&world.reverse).insert(&key, &reverse);
        }
    }

    fn tables(&self) -> Tables {
        let mut tables = Tables {
            flows: self.0.flows.entries(),
            reverse: self.0.reverse.entries(),
            handshakes: self.0.handshakes.entries(),
            answered: self.0.answered.entries(),
            affinity: self.0.affinity.entries(),
            conflicts: self.0.conflicts.entries(),
        };
        tables.flows.retain(|(key, _)| !is_filler(key));
        tables.reverse.retain(|(key, _)| !is_filler(key));
        tables
    }
}
