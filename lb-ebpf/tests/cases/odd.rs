//! Frames that are not ours, and frames that are not as they should be.

use lb_common::Reason;

use super::case::{Case, case};
use super::node::{CLIENT, Node, PODS, VIP};
use super::packet::{ACK, NODE_MAC, P, RST, SYN};
use super::scenes::{
    DATA, ENDPOINT_ISN, at_client, at_pod, at_server, connected, connected_nat, data, from_pod,
    reset, syn,
};

pub fn cases() -> Vec<Case> {
    [others(), headers(), fragments(), lengths()].concat()
}

fn vlan(frame: &P) -> Vec<u8> {
    frame.patched(|bytes| drop(bytes.splice(12..12, [0x81, 0, 0, 5])))
}

fn others() -> Vec<Case> {
    let node = Node::local;
    let left = |name, frame: Vec<u8>, reason| case(name, node()).untouched(&frame, reason);
    let elsewhere = syn().to([192, 0, 2, 99], 80);
    let icmp =
        |kind, code| P::icmp(CLIENT, VIP, kind, code, [0; 4]).data(&data(DATA).bytes()[14..]);
    vec![
        left("another destination", elsewhere.bytes(), Reason::NotOurs),
        left(
            "another destination, however broken",
            elsewhere.patched(|bytes| bytes[14] = 0x41),
            Reason::NotOurs,
        ),
        left(
            "another destination's fragment",
            elsewhere.clone().fragment(0x2000).bytes(),
            Reason::NotOurs,
        ),
        left(
            "another station's frame",
            syn().macs([2, 9, 9, 9, 9, 9], NODE_MAC).bytes(),
            Reason::OtherStation,
        ),
        left(
            "a VIP's packet in a broadcast frame",
            syn().macs([0xff; 6], NODE_MAC).bytes(),
            Reason::OtherStation,
        ),
        left("a VLAN tag", vlan(&syn()), Reason::OtherProtocol),
        left(
            "IPv6",
            syn().patched(|bytes| bytes[12..14].copy_from_slice(&[0x86, 0xdd])),
            Reason::OtherProtocol,
        ),
        left(
            "an 802.3 length instead of a type",
            syn().patched(|bytes| bytes[12..14].copy_from_slice(&[0, 40])),
            Reason::OtherProtocol,
        ),
        case("ICMP errors are dropped", node())
            .dropped(&icmp(3, 4).bytes(), Reason::Icmp)
            .dropped(&icmp(3, 1).bytes(), Reason::Icmp)
            .dropped(&icmp(11, 0).bytes(), Reason::Icmp)
            .dropped(&icmp(0, 0).bytes(), Reason::Icmp)
            .dropped(&icmp(8, 1).bytes(), Reason::Icmp),
        case("other protocols are dropped", node())
            .dropped(
                &P::other(CLIENT, VIP, 47).data(&[0; 20]).bytes(),
                Reason::UnsupportedProtocol,
            )
            .dropped(
                &P::other(CLIENT, VIP, 132).data(&[0; 20]).bytes(),
                Reason::UnsupportedProtocol,
            ),
        case("what leaves and is no reply is left alone", node())
            .leaving_untouched(&vlan(&from_pod(DATA)), Reason::EgressOther)
            .leaving_untouched(
                &from_pod(DATA).fragment(0x2000).bytes(),
                Reason::EgressOther,
            )
            .leaving_untouched(
                &P::icmp(PODS[0], CLIENT, 3, 3, [0; 4])
                    .data(&[0; 28])
                    .bytes(),
                Reason::EgressOther,
            ),
    ]
}

fn headers() -> Vec<Case> {
    let node = Node::local;
    let bad = |name, frame: Vec<u8>, reason| case(name, node()).dropped(&frame, reason);
    let ihl = |value: u8| syn().patched(move |bytes| bytes[14] = 0x40 | value);
    let total = |value: u16| {
        syn().patched(move |bytes| bytes[16..18].copy_from_slice(&value.to_be_bytes()))
    };
    let offset = |value: u8| syn().patched(move |bytes| bytes[46] = value << 4);
    let options = syn().ip_options(3);
    let data_options = data(DATA).ip_options(10);
    vec![
        bad("header length 0", ihl(0), Reason::BadHeaderLength),
        bad("header length 16", ihl(4), Reason::BadHeaderLength),
        bad(
            "header length past the end",
            P::other(CLIENT, VIP, 6).patched(|bytes| bytes[14] = 0x46),
            Reason::BadHeaderLength,
        ),
        bad(
            "version 6 in an IPv4 frame",
            syn().patched(|bytes| bytes[14] = 0x65),
            Reason::BadHeaderLength,
        ),
        bad(
            "header longer than the packet says it is",
            total(19),
            Reason::BadTotalLength,
        ),
        bad("total length 0", total(0), Reason::BadTotalLength),
        bad(
            "total length past the frame",
            total(53),
            Reason::BadTotalLength,
        ),
        bad("total length 65535", total(65535), Reason::BadTotalLength),
        bad("no transport header", total(20), Reason::TruncatedTransport),
        bad(
            "half a transport header",
            total(39),
            Reason::TruncatedTransport,
        ),
        bad(
            "half a UDP header",
            P::other(CLIENT, VIP, 17).data(&[0; 7]).padded(20).bytes(),
            Reason::TruncatedTransport,
        ),
        bad(
            "half an ICMP header",
            P::other(CLIENT, VIP, 1)
                .data(&[8, 0, 0, 0, 0, 0, 0])
                .padded(20)
                .bytes(),
            Reason::TruncatedTransport,
        ),
        bad("data offset 0", offset(0), Reason::BadDataOffset),
        bad("data offset 4", offset(4), Reason::BadDataOffset),
        bad("data offset past the end", offset(9), Reason::BadDataOffset),
        case("IP options on a SYN", node()).edited(
            &options,
            Reason::NewLocal,
            &at_pod(&options, 0),
        ),
        connected("IP options on data", node()).edited(
            &data_options,
            Reason::FlowLocal,
            &at_pod(&data_options, 0),
        ),
        connected("IP options on a reply", node()).leaving(
            &from_pod(DATA).ip_options(4),
            Reason::ReplyLocal,
            &at_client(&from_pod(DATA).ip_options(4)),
        ),
        connected_nat("full NAT with IP options", Node::nat()).edited(
            &data_options,
            Reason::FlowNat,
            &at_server(&data_options, 0),
        ),
    ]
}

fn fragments() -> Vec<Case> {
    let fragment = |value| data(DATA).fragment(value).bytes();
    vec![
        connected(
            "fragments of a flow are dropped, first or later",
            Node::local(),
        )
        .dropped(&fragment(0x2000), Reason::Fragment)
        .dropped(&fragment(0x2003), Reason::Fragment)
        .dropped(&fragment(0x0003), Reason::Fragment)
        .edited(&data(DATA), Reason::FlowLocal, &at_pod(&data(DATA), 0)),
        case("a first fragment opens nothing", Node::local())
            .dropped(&syn().fragment(0x2000).bytes(), Reason::Fragment)
            .tables(|tables| assert_eq!(tables.counts(), [0; 4])),
        case("the reserved bit makes no fragment", Node::local()).edited(
            &syn().fragment(0x8000),
            Reason::NewLocal,
            &at_pod(&syn().fragment(0x8000), 0),
        ),
    ]
}

fn lengths() -> Vec<Case> {
    let short = P::tcp(syn().src, syn().dst, ACK, 0, ENDPOINT_ISN + 1);
    let short = short.padded(6);
    let every_length = (0..70).fold(
        connected_nat("every small length, odd and even", Node::nat()),
        |case, length| {
            let packet = data(DATA).data(&vec![0xee; length]).padded(3);
            case.edited(&packet, Reason::FlowNat, &at_server(&packet, 0))
        },
    );
    let unknown = P::tcp((CLIENT, 9), (VIP, 80), ACK, 0, 5).padded(6);
    vec![
        connected("short frames keep their padding", Node::local()).edited(
            &short,
            Reason::FlowLocal,
            &at_pod(&short, 0),
        ),
        connected_nat("also when sent on", Node::nat()).edited(
            &short,
            Reason::FlowNat,
            &at_server(&short, 0),
        ),
        case("a padded SYN", Node::local()).edited(
            &syn().padded(2),
            Reason::NewLocal,
            &at_pod(&syn().padded(2), 0),
        ),
        case(
            "a padded packet's RST acknowledges no padding",
            Node::local(),
        )
        .edited(
            &unknown,
            Reason::RefusedUnknownFlow,
            &reset(&unknown, RST, 5, 0),
        ),
        every_length,
        connected("a full frame", Node::local()).edited(
            &data(SYN | DATA).data(&[0x5a; 1448]),
            Reason::FlowLocal,
            &at_pod(&data(SYN | DATA).data(&[0x5a; 1448]), 0),
        ),
        connected(
            "a time to live of one is the stack's to judge",
            Node::local(),
        )
        .edited(
            &data(DATA).ttl(1),
            Reason::FlowLocal,
            &at_pod(&data(DATA).ttl(1), 0),
        ),
    ]
}
