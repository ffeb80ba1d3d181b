//! Unused ports, echo requests, and how many are answered.

use lb_common::Reason;

use super::case::{Case, case};
use super::node::{CLIENT, Node, VIP, VIP2};
use super::packet::{ACK, FIN, NODE_MAC, P, RST, SYN, Sum};
use super::scenes::{PORT, reset, unreachable};

fn to_unused(flags: u8, seq: u32, ack: u32) -> P {
    P::tcp((CLIENT, PORT), (VIP, 81), flags, seq, ack)
}

fn echo() -> P {
    P::icmp(CLIENT, VIP, 8, 0, [0xab, 0xcd, 0, 1]).data(b"abcdefgh")
}

fn echoed(request: &P) -> P {
    let mut reply = P::icmp(VIP, CLIENT, 0, 0, [0xab, 0xcd, 0, 1])
        .data(&request.payload)
        .macs(request.src_mac, NODE_MAC);
    reply.ip_options.clone_from(&request.ip_options);
    reply.padding = request.padding;
    reply
}

pub fn cases() -> Vec<Case> {
    let node = Node::local;
    let refused =
        |name, packet: P, rst: P| case(name, node()).edited(&packet, Reason::RefusedPort, &rst);
    let plain = |flags, seq, ack| to_unused(flags, seq, ack);
    let syn = plain(SYN, 1000, 0);
    let syn_data = plain(SYN, 1000, 0).data(&[1; 10]);
    let with_ack = plain(ACK, 1000, 0x8000_0001);
    let fin = plain(FIN, 1000, 0);
    let fin_ack = plain(FIN | ACK, 1000, 77);
    let odd = plain(ACK, 1000, 77).data(b"odd");
    let without_flags = plain(0, u32::MAX, 0).data(b"12");
    let answer = RST | ACK;
    let datagram = P::udp((CLIENT, PORT), (VIP, 9999)).data(b"anybody?");
    let empty = P::udp((CLIENT, PORT), (VIP2, 9999));
    let long = P::udp((CLIENT, PORT), (VIP, 9999)).data(&[9; 1401]);
    let options = datagram.clone().ip_options(1);
    let syn_options = syn.clone().ip_options(2);
    let limited = |limit| Node::local().with(|node| node.refusals = limit);
    vec![
        refused(
            "a SYN: the RST acknowledges it",
            syn.clone(),
            reset(&syn, answer, 0, 1001),
        ),
        refused(
            "a SYN with data: all of it",
            syn_data.clone(),
            reset(&syn_data, answer, 0, 1011),
        ),
        refused(
            "an ACK: the RST begins there",
            with_ack.clone(),
            reset(&with_ack, RST, 0x8000_0001, 0),
        ),
        refused(
            "a FIN counts one",
            fin.clone(),
            reset(&fin, answer, 0, 1001),
        ),
        refused(
            "a FIN with ACK",
            fin_ack.clone(),
            reset(&fin_ack, RST, 77, 0),
        ),
        refused("data of odd length", odd.clone(), reset(&odd, RST, 77, 0)),
        refused(
            "data without ACK, and the number wraps",
            without_flags.clone(),
            reset(&without_flags, answer, 0, 1),
        ),
        refused(
            "padding is no data",
            syn.clone().padded(6),
            reset(&syn, answer, 0, 1001),
        ),
        refused(
            "IP options are not returned",
            syn_options.clone(),
            reset(&syn_options, answer, 0, 1001),
        ),
        case("a RST is never answered", node())
            .dropped(&plain(RST, 5, 0).bytes(), Reason::UnknownRst)
            .dropped(&plain(RST | ACK, 5, 5).bytes(), Reason::UnknownRst),
        case("nor is an impossible source", node())
            .dropped(
                &plain(SYN, 1, 0).from([224, 0, 0, 1], 5).bytes(),
                Reason::BadSource,
            )
            .dropped(&plain(SYN, 1, 0).from(VIP, 81).bytes(), Reason::BadSource)
            .dropped(&plain(SYN, 1, 0).from(VIP2, 81).bytes(), Reason::BadSource)
            .dropped(
                &plain(SYN, 1, 0).macs(NODE_MAC, [0xff; 6]).bytes(),
                Reason::BadSource,
            )
            .dropped(&datagram.clone().from([0; 4], 5).bytes(), Reason::BadSource),
        case("UDP: port unreachable, quoting it", node()).edited(
            &datagram,
            Reason::RefusedUdpPort,
            &unreachable(&datagram),
        ),
        case("an empty datagram makes the frame longer", node()).edited(
            &empty,
            Reason::RefusedUdpPort,
            &unreachable(&empty),
        ),
        case("a padded one loses its padding", node()).edited(
            &empty.clone().padded(18),
            Reason::RefusedUdpPort,
            &unreachable(&empty),
        ),
        case("a long one is quoted in part", node()).edited(
            &long,
            Reason::RefusedUdpPort,
            &unreachable(&long),
        ),
        case("without a checksum it is quoted without", node()).edited(
            &datagram.clone().sum(Sum::None),
            Reason::RefusedUdpPort,
            &unreachable(&datagram.clone().sum(Sum::None)),
        ),
        case("UDP behind IP options is met with silence", node())
            .dropped(&options.bytes(), Reason::CannotResize),
        case("an echo request is answered", node()).edited(
            &echo(),
            Reason::AnsweredEcho,
            &echoed(&echo()),
        ),
        case("however few hops it has left", node()).edited(
            &echo().ttl(1),
            Reason::AnsweredEcho,
            &echoed(&echo()),
        ),
        case("an echo request of odd length, padded", node()).edited(
            &echo().data(b"abc").padded(7),
            Reason::AnsweredEcho,
            &echoed(&echo().data(b"abc").padded(7)),
        ),
        case("an echo request with IP options", node()).edited(
            &echo().ip_options(1),
            Reason::AnsweredEcho,
            &echoed(&echo().ip_options(1)),
        ),
        case("an echo request from nowhere is not", node())
            .dropped(&echo().from([224, 0, 0, 1], 0).bytes(), Reason::BadSource)
            .dropped(&echo().from(VIP, 0).bytes(), Reason::BadSource)
            .dropped(&echo().from(VIP2, 0).bytes(), Reason::BadSource)
            .dropped(&echo().macs(NODE_MAC, [0xff; 6]).bytes(), Reason::BadSource),
        case("beyond the limit there is silence", limited(0))
            .dropped(&syn.bytes(), Reason::RateLimited)
            .dropped(&datagram.bytes(), Reason::RateLimited)
            .dropped(&echo().bytes(), Reason::RateLimited),
    ]
}
