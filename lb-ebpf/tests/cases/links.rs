//! The three kinds of checksum on virtual links, native and generic.

use lb_common::Reason;
use lb_common::abi::{LINK_GENERIC, LINK_NONE, LINK_VIRTUAL, STATE_PARTIAL};

use super::case::{Case, Step, Want, case};
use super::node::{CLIENT, Node, PODS, SERVERS, SNAT, SNAT_PORT, VIP};
use super::packet::{ACK, CLIENT_MAC, NODE_MAC, P, RST, SERVER_MAC, SYN, Sum, sum};
use super::scenes::{
    DATA, ISN, PORT, ack, at_client, at_pod, at_server, back_at_client, connected, connected_nat,
    data, from_pod, from_server, reset, syn, unreachable,
};

const GENERIC: u8 = LINK_VIRTUAL | LINK_GENERIC;

pub fn cases() -> Vec<Case> {
    [passed(), sent(), refused(), leaving()].concat()
}

fn partial(packet: P) -> P {
    packet.sum(Sum::Partial)
}

/// What the stack gets keeps its kind.
fn passed() -> Vec<Case> {
    let mut cases = vec![];
    for (flags, names) in [
        // GRO leaves its packets unfinished on real links, too.
        (
            LINK_GENERIC,
            [
                "generic on a real link: partial is kept",
                "generic on a real link: full that looks partial is full",
            ],
        ),
        (
            LINK_VIRTUAL,
            [
                "virtual: partial is kept",
                "virtual: full that looks partial is full",
            ],
        ),
        (
            GENERIC,
            [
                "generic: partial is kept",
                "generic: full that looks partial is full",
            ],
        ),
    ] {
        let node = || Node::local().flags(flags);
        let open = partial(syn());
        let datagram = partial(P::udp((CLIENT, PORT), (VIP, 53)).data(b"odd"));
        let late = partial(data(DATA));
        let tricky = syn().data(b"").looking_partial();
        let tricky_data = data(DATA).data(b"1234").looking_partial();
        cases.push(
            case(names[0], node())
                .edited(&open, Reason::NewLocal, &at_pod(&open, 0))
                .leaving(
                    &from_pod(SYN | ACK),
                    Reason::ReplyLocal,
                    &at_client(&from_pod(SYN | ACK)),
                )
                .edited(&ack(), Reason::FlowLocal, &at_pod(&ack(), 0))
                .edited(&late, Reason::FlowLocal, &at_pod(&late, 0))
                .tables(|tables| assert_eq!(tables.flows[0].1.state, STATE_PARTIAL))
                .edited(&late, Reason::FlowLocal, &at_pod(&late, 0))
                .edited(&data(DATA), Reason::FlowLocal, &at_pod(&data(DATA), 0))
                .tables(|tables| assert_eq!(tables.flows[0].1.state, 0))
                .edited(
                    &datagram,
                    Reason::NewLocal,
                    &datagram.clone().to(PODS[0], 5353),
                ),
        );
        cases.push(
            case(names[1], node())
                .edited(&tricky, Reason::NewLocal, &at_pod(&tricky, 0))
                .leaving(
                    &from_pod(SYN | ACK),
                    Reason::ReplyLocal,
                    &at_client(&from_pod(SYN | ACK)),
                )
                .edited(&ack(), Reason::FlowLocal, &at_pod(&ack(), 0))
                .edited(&tricky_data, Reason::FlowLocal, &at_pod(&tricky_data, 0))
                .tables(|tables| assert_eq!(tables.flows[0].1.state, 0)),
        );
    }
    let wrong = data(DATA).sum(Sum::Wrong(0x0101));
    for (flags, name) in [
        (LINK_NONE, "a damaged packet stays damaged"),
        (LINK_VIRTUAL, "virtual: a damaged packet stays damaged"),
        (GENERIC, "generic: a damaged packet stays damaged"),
    ] {
        let (local, nat) = (Node::local().flags(flags), Node::nat().flags(flags));
        cases.push(connected(name, local).edited(&wrong, Reason::FlowLocal, &at_pod(&wrong, 0)));
        cases.push(connected_nat(name, nat).edited(&wrong, Reason::FlowNat, &at_server(&wrong, 0)));
    }
    cases
}

/// What we send ourselves is finished, except by generic XDP.
fn sent() -> Vec<Case> {
    let question = partial(P::udp((CLIENT, PORT), (VIP, 53)).data(b"odd"));
    let at_server_udp = |packet: &P| {
        packet
            .clone()
            .from(SNAT, SNAT_PORT)
            .to(SERVERS[0], 5353)
            .macs(SERVER_MAC, NODE_MAC)
            .ttl(63)
    };
    let zero = at_server_udp(&question.clone().data(b"")).summing_to_zero();
    let zero = question.clone().data(&zero.payload);
    let tricky = syn().data(b"").looking_partial();
    let tricky_data = data(DATA).data(b"1234").looking_partial();
    let options = partial(data(DATA).ip_options(2)).padded(9);
    let mut cases = vec![];
    for (flags, name, kind) in [
        (LINK_VIRTUAL, "native: what is sent is finished", Sum::Full),
        (
            GENERIC,
            "generic: what is sent stays unfinished",
            Sum::Partial,
        ),
    ] {
        let node = || Node::nat().flags(flags);
        let answer = partial(from_server(SYN | ACK));
        let there = |packet: &P| at_server(packet, 0).sum(kind);
        let back = |packet: &P| back_at_client(packet).sum(kind);
        let mut case = case(name, node())
            .edited(&partial(syn()), Reason::NewNat, &there(&syn()))
            .edited(&answer, Reason::ReplyNat, &back(&answer))
            .edited(&partial(ack()), Reason::FlowNat, &there(&ack()));
        for length in [0, 1, 2, 17, 31, 32, 33, 64, 95, 1447, 1448, 4076] {
            let packet = partial(data(DATA).data(&vec![0xd7; length]));
            let reply = partial(from_server(DATA).data(&vec![0x7d; length]));
            case = case
                .edited(&packet, Reason::FlowNat, &there(&packet))
                .edited(&reply, Reason::ReplyNat, &back(&reply));
        }
        case = case
            .edited(&options, Reason::FlowNat, &there(&options))
            .edited(&data(DATA), Reason::FlowNat, &at_server(&data(DATA), 0))
            .edited(
                &question,
                Reason::NewNat,
                &at_server_udp(&question).sum(kind),
            )
            .edited(
                &zero,
                Reason::RepeatedSynNat,
                &at_server_udp(&zero).sum(kind),
            );
        cases.push(case);
    }
    cases.push(
        connected_nat(
            "native: too long to finish",
            Node::nat().flags(LINK_VIRTUAL),
        )
        .dropped(
            &partial(data(DATA).data(&[1; 4077])).bytes(),
            Reason::TooLongToSum,
        ),
    );
    for (flags, name) in [
        (LINK_VIRTUAL, "native: full that looks partial is full"),
        (GENERIC, "generic, sent: full that looks partial is full"),
    ] {
        let node = Node::nat().flags(flags);
        let answer = from_server(SYN | ACK);
        cases.push(
            case(name, node)
                .edited(&tricky, Reason::NewNat, &at_server(&tricky, 0))
                .edited(&answer, Reason::ReplyNat, &back_at_client(&answer))
                .edited(&ack(), Reason::FlowNat, &at_server(&ack(), 0))
                .edited(&tricky_data, Reason::FlowNat, &at_server(&tricky_data, 0)),
        );
    }
    cases
}

fn refused() -> Vec<Case> {
    let unused = partial(P::tcp((CLIENT, PORT), (VIP, 81), SYN, ISN, 0));
    let rst = reset(&unused, RST | ACK, 0, ISN.wrapping_add(1));
    let options = unused.clone().ip_options(1);
    let datagram = partial(P::udp((CLIENT, PORT), (VIP, 9999)).data(b"hello"));
    let error = unreachable(&datagram);
    // The kernel sums the message as it stands from the transport header on and writes the
    // complement at the UDP checksum's offset: that must make the message right.
    let unfinished = error.patched(|bytes| bytes[36..38].fill(0));
    let mut finished = unfinished.clone();
    let complement = !sum(&finished[34..]);
    finished[40..42].copy_from_slice(&complement.to_be_bytes());
    assert_eq!(sum(&finished[34..]), 0xffff);
    vec![
        case(
            "native: refusals are finished",
            Node::local().flags(LINK_VIRTUAL),
        )
        .edited(&unused, Reason::RefusedPort, &rst)
        .edited(&options, Reason::RefusedPort, &rst)
        .edited(&datagram, Reason::RefusedUdpPort, &error),
        case("generic: refusals of unfinished packets are unfinished", {
            Node::local().flags(GENERIC)
        })
        .edited(&unused, Reason::RefusedPort, &rst.clone().sum(Sum::Partial))
        .dropped(&options.bytes(), Reason::CannotResize)
        .step(Step::Ingress(
            datagram.bytes(),
            Reason::RefusedUdpPort,
            Want::Unfinished(unfinished),
        )),
        case("generic: refusals of finished packets are finished", {
            Node::local().flags(GENERIC)
        })
        .edited(&unused.clone().sum(Sum::Full), Reason::RefusedPort, &rst)
        .edited(
            &datagram.clone().sum(Sum::Full),
            Reason::RefusedUdpPort,
            &unreachable(&datagram.sum(Sum::Full)),
        ),
    ]
}

/// Replies of local endpoints, whose checksums the kernel's helpers edit.
fn leaving() -> Vec<Case> {
    let answer = partial(from_pod(SYN | ACK));
    let question = P::udp((CLIENT, PORT), (VIP, 53));
    let datagram = partial(
        P::udp((PODS[0], 5353), (CLIENT, PORT))
            .data(b"answer!")
            .macs(CLIENT_MAC, NODE_MAC),
    );
    vec![
        case("unfinished replies stay unfinished", Node::local())
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
            .edited(&ack(), Reason::FlowLocal, &at_pod(&ack(), 0))
            .leaving(
                &partial(from_pod(DATA).data(b"odd")),
                Reason::ReplyLocal,
                &at_client(&partial(from_pod(DATA).data(b"odd"))),
            ),
        case("unfinished datagrams stay unfinished", Node::local())
            .edited(
                &question,
                Reason::NewLocal,
                &question.clone().to(PODS[0], 5353),
            )
            .leaving(
                &datagram,
                Reason::ReplyLocal,
                &datagram.clone().from(VIP, 53),
            ),
    ]
}
