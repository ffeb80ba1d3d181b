//! What is run, on which packets, and what must come of it.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use lb_common::Reason;

use super::frames::{self, Seen};
use super::harness::{Packets, Program, Ran};
use super::scene::{self, CLIENT_MAC, LOCAL, NAT, SERVER_MAC, SNAT, VIP};

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
    /// Whether it is over soon, for it needs no warm cache.
    pub(super) fn is_short(&self) -> bool {
        self.packets == Packets::Same
    }

    /// Runs of one measurement, and before it, to warm up.
    pub(super) const fn times(&self) -> (u32, u32) {
        match self.packets {
            Packets::Same => (20_000, 1_000),
            // Three runs for two sources: most entries have been used when it counts.
            Packets::Random => (100_000, 100_000),
            // With room left in a handshake map of 64k, and in the floor's table of a million
            // after all rounds.
            Packets::Fresh => (20_000, 2_000),
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

/// All cases, in the order of a round.
pub(super) fn all() -> Vec<Case> {
    use Becomes as To;
    use Handshakes::{Empty, Full};

    use Packets::{Fresh, Random, Same};
    let floor = |name, program, packets, becomes| Case {
        name,
        program,
        packets,
        frame: LOCAL.segment(),
        handshakes: Handshakes::Any,
        becomes,
        reason: None,
    };
    let product = |name, packets, frame, becomes, reason| Case {
        name,
        program: Program::Product,
        packets,
        frame,
        handshakes: Handshakes::Any,
        becomes,
        reason: Some(reason),
    };
    let new = |name, frame, becomes, reason, handshakes| Case {
        handshakes,
        ..product(name, Fresh, frame, becomes, reason)
    };
    let fresh = |name, program, becomes| Case {
        frame: LOCAL.syn(),
        ..floor(name, program, Fresh, becomes)
    };
    let (local, nat, reply, other) = (
        LOCAL.segment(),
        NAT.segment(),
        scene::reply(),
        scene::not_ours(),
    );
    vec![
        floor("tx", Program::Tx, Same, To::Sent),
        floor("f1", Program::F1, Same, To::Floor),
        product("local", Same, local.clone(), To::Local, Reason::FlowLocal),
        product("nat", Same, nat.clone(), To::Nat, Reason::FlowNat),
        product("reply", Same, reply.clone(), To::Reply, Reason::ReplyNat),
        product("other", Same, other.clone(), To::Passed, Reason::NotOurs),
        floor("tx64k", Program::Tx, Random, To::Sent),
        product("other64k", Random, other, To::Passed, Reason::NotOurs),
        floor("f2", Program::F2, Random, To::Floor),
        product("local64k", Random, local, To::Local, Reason::FlowLocal),
        product("nat64k", Random, nat, To::Nat, Reason::FlowNat),
        product("reply64k", Random, reply, To::Reply, Reason::ReplyNat),
        fresh("txnew", Program::Tx, To::Sent),
        fresh("f3", Program::F3, To::Floor),
        new("newlocal", LOCAL.syn(), To::Local, Reason::NewLocal, Empty),
        new("newnat", NAT.syn(), To::Nat, Reason::NewNat, Empty),
        new(
            "newlocal full",
            LOCAL.syn(),
            To::Local,
            Reason::NewLocal,
            Full,
        ),
        new("newnat full", NAT.syn(), To::Nat, Reason::NewNat, Full),
    ]
}
