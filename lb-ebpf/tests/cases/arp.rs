//! ARP: who is asked, who answers, who claims what is ours.

use lb_common::Reason;

use super::case::{Case, Step, Want, case};
use super::node::{CLIENT, Node, VIP, VIP2};
use super::packet::{Arp, CLIENT_MAC, NODE_MAC};

fn answer(ask: &Arp) -> Vec<u8> {
    Arp {
        dst_mac: ask.src_mac,
        src_mac: NODE_MAC,
        operation: 2,
        sender: (NODE_MAC, ask.target.1),
        target: ask.sender,
        ..*ask
    }
    .bytes()
}

fn answered(name: &'static str, ask: Arp) -> Case {
    let want = Want::Bytes(answer(&ask));
    case(name, Node::local()).step(Step::Ingress(ask.bytes(), Reason::AnsweredArp, want))
}

fn left(name: &'static str, ask: Arp, reason: Reason) -> Case {
    case(name, Node::local()).untouched(&ask.bytes(), reason)
}

pub fn cases() -> Vec<Case> {
    let ask = Arp::ask(CLIENT, VIP);
    let other = [2, 0, 0, 0, 0, 0x66];
    let claim = Arp {
        src_mac: other,
        sender: (other, VIP),
        ..ask
    };
    let not_owned = Node::local().with(|node| node.vips = vec![(VIP, false), (VIP2, true)]);
    let odd = |sizes| Arp { sizes, ..ask };
    vec![
        answered("a question for a VIP is answered", ask),
        answered(
            "a unicast question is answered",
            Arp {
                dst_mac: NODE_MAC,
                ..ask
            },
        ),
        answered(
            "a probe is answered, or the VIP would be taken for free",
            Arp {
                sender: (CLIENT_MAC, [0; 4]),
                ..ask
            },
        ),
        left(
            "a unicast question to another station is that station's",
            Arp {
                dst_mac: other,
                ..ask
            },
            Reason::OtherStation,
        ),
        left(
            "questions for other addresses are the stack's",
            Arp::ask(CLIENT, [192, 0, 2, 99]),
            Reason::OtherArp,
        ),
        left(
            "a reply is no question",
            Arp {
                operation: 2,
                ..ask
            },
            Reason::OtherArp,
        ),
        left(
            "nobody is answered at a group address",
            Arp {
                src_mac: [0xff; 6],
                ..ask
            },
            Reason::OtherArp,
        ),
        left(
            "our own announcement, come back, is not answered",
            Arp {
                src_mac: NODE_MAC,
                sender: (NODE_MAC, VIP),
                ..ask
            },
            Reason::OtherArp,
        ),
        case(
            "a VIP of another node is not answered for",
            not_owned.clone(),
        )
        .dropped(&ask.bytes(), Reason::VipNotOwned),
        case(
            "the owner's announcement of a VIP we do not own is no conflict",
            not_owned,
        )
        .untouched(&claim.bytes(), Reason::OtherArp)
        .tables(|tables| assert!(tables.conflicts.is_empty())),
        left(
            "somebody's gratuitous request for our VIP is noted",
            claim,
            Reason::ArpConflict,
        )
        .untouched(&claim.bytes(), Reason::ArpConflict)
        .tables(|tables| {
            let [(vip, conflict)] = &tables.conflicts[..] else {
                panic!("{tables:?}");
            };
            assert_eq!((vip.0, conflict.count), (VIP, 2));
            assert_eq!(conflict.mac.0, [2, 0, 0, 0, 0, 0x66]);
        }),
        left(
            "so is somebody's gratuitous reply",
            Arp {
                operation: 2,
                ..claim
            },
            Reason::ArpConflict,
        ),
        left("hardware type", odd([0, 6, 8, 0, 6, 4]), Reason::OtherArp),
        left("protocol type", odd([0, 1, 8, 1, 6, 4]), Reason::OtherArp),
        left("hardware size", odd([0, 1, 8, 0, 8, 4]), Reason::OtherArp),
        left("protocol size", odd([0, 1, 8, 0, 6, 16]), Reason::OtherArp),
    ]
}
