//! What is run, on which packets, and what must come of it.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use lb_common::Reason;

use super::frames::{self, Seen};
use super::harness::{Packets, Program, Ran};
use super::scene::{self, CLIENT_MAC, FlowKind, LOCAL, NAT, SERVER_MAC, SNAT, Service, VIP};

const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;

/// One case.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) program: Program,
    pub(super) packets: Packets,
    pub(super) frame: Vec<u8>,
    pub(super) handshakes: Handshakes,
    becomes: Becomes,
    /// The product's reason for each of its packets.
    pub(super) reason: Option<Reason>,
}

/// How full the handshake map must be before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Handshakes {
    /// No matter.
    Any,
    /// Empty.
    Empty,
    /// So full that each new one takes another's place.
    Full,
}

/// What a packet becomes.
#[derive(Clone, Copy, Debug)]
enum Becomes {
    /// What it was, sent back.
    Sent,
    /// What it was, passed.
    Passed,
    /// A packet to a local endpoint, by the floor.
    Floor,
    /// A packet to a local endpoint.
    Local,
    /// A packet to an endpoint by full NAT.
    Nat,
    /// A packet of the VIP to the client.
    Reply,
}

impl Case {
    /// A floor's program, on packets of the local frontend.
    pub(super) fn floor(name: &'static str, program: Program, packets: Packets) -> Self {
        let frame = match packets {
            Packets::Fresh => LOCAL.syn(),
            Packets::Same | Packets::Random => LOCAL.segment(),
        };
        Self {
            name,
            program,
            packets,
            frame,
            handshakes: Handshakes::Any,
            becomes: match program {
                Program::Tx => Becomes::Sent,
                Program::F1 | Program::F2 | Program::F3 | Program::Product => Becomes::Floor,
            },
            reason: None,
        }
    }

    /// The product on packets of established flows.
    pub(super) fn established(name: &'static str, packets: Packets, flows: FlowKind) -> Self {
        let (frame, becomes, reason) = match flows {
            FlowKind::Local => (LOCAL.segment(), Becomes::Local, Reason::FlowLocal),
            FlowKind::Nat => (NAT.segment(), Becomes::Nat, Reason::FlowNat),
            FlowKind::Reply => (scene::reply(), Becomes::Reply, Reason::ReplyNat),
        };
        Self::product(name, packets, frame, becomes, reason)
    }

    /// The product on new connections.
    pub(super) fn new(name: &'static str, service: Service, handshakes: Handshakes) -> Self {
        let (becomes, reason) = if service.is_local() {
            (Becomes::Local, Reason::NewLocal)
        } else {
            (Becomes::Nat, Reason::NewNat)
        };
        Self {
            handshakes,
            ..Self::product(name, Packets::Fresh, service.syn(), becomes, reason)
        }
    }

    /// The product on packets that are not ours.
    pub(super) fn not_ours(name: &'static str, packets: Packets) -> Self {
        let frame = scene::not_ours();
        Self::product(name, packets, frame, Becomes::Passed, Reason::NotOurs)
    }

    fn product(
        name: &'static str,
        packets: Packets,
        frame: Vec<u8>,
        becomes: Becomes,
        reason: Reason,
    ) -> Self {
        Self {
            name,
            program: Program::Product,
            packets,
            frame,
            handshakes: Handshakes::Any,
            becomes,
            reason: Some(reason),
        }
    }

    /// Whether a run did what it is measured for.
    pub(super) fn check(&self, ran: &Ran) -> Result<()> {
        let action = match self.becomes {
            Becomes::Local | Becomes::Passed => XDP_PASS,
            Becomes::Sent | Becomes::Floor | Becomes::Nat | Becomes::Reply => XDP_TX,
        };
        ensure!(ran.action == action, "action {}, not {action}", ran.action);
        let (old, new) = (frames::read(&self.frame)?, frames::read(&ran.frame)?);
        ensure!(self.is_right(old, new), "the packet became {new:?}");
        Ok(())
    }

    fn is_right(&self, old: Seen, new: Seen) -> bool {
        let net = |address: &Ipv4Addr| [address.octets()[0], address.octets()[1]];
        let same_source = net(new.src.ip()) == net(old.src.ip())
            && (new.src.port() == old.src.port() || self.packets == Packets::Fresh);
        let forwarded = |second| net(new.dst.ip()) == [10, second] && new.dst.port() == 8080;
        match self.becomes {
            Becomes::Sent | Becomes::Passed => {
                same_source
                    && new.dst == old.dst
                    && new.ttl == old.ttl
                    && new.next_hop == old.next_hop
            }
            Becomes::Floor => {
                same_source && forwarded(244) && new.ttl == old.ttl && new.next_hop == SERVER_MAC
            }
            Becomes::Local => same_source && forwarded(244) && new.ttl == old.ttl,
            Becomes::Nat => {
                *new.src.ip() == SNAT
                    && forwarded(96)
                    && new.ttl == old.ttl - 1
                    && new.next_hop == SERVER_MAC
            }
            Becomes::Reply => {
                *new.src.ip() == VIP && new.ttl == old.ttl - 1 && new.next_hop == CLIENT_MAC
            }
        }
    }
}
