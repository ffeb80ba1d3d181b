//! Which endpoint a new connection gets: repeated SYNs, failover, affinity, taken tuples, source
//! ranges, verdicts.

use lb_common::Reason;
use lb_common::V4;
use lb_common::abi::{Endpoint, Health, State, verdict};

use super::case::{Case, Step, Want, case};
use super::node::{
    CLIENT, CLIENT2, IMPATIENT, Node, PODS, SNAT_PORT, Service, TCP, UDP, VIP, VIP2, pod,
    port_in_row,
};
use super::packet::{ACK, CLIENT_MAC, NODE_MAC, P, RST, SYN};
use super::scenes::{
    DATA, ENDPOINT_ISN, ISN, PORT, ack, at_client, at_pod, connected, data, from_pod, reset, syn,
    unreachable,
};

/// Pods 0 to `count` in rows of their own, each with the next as secondary.
fn pods(count: usize, rows: usize) -> Node {
    let ids: Vec<u32> = (1..=count as u32).collect();
    let mut service = Service::new(1, VIP, 80, TCP, &ids);
    let row = |row: usize| {
        let primary = row % count;
        (
            primary as u32,
            (count > 1).then_some(((primary + 1) % count) as u32),
        )
    };
    service.rows = (0..rows).map(row).collect();
    let mut node = Node::bare().service(service);
    for index in 0..count {
        node = node.endpoint(index as u32 + 1, pod(1, index, 8080));
    }
    node
}

fn failing_over(count: usize) -> Node {
    pods(count, 1).with(|node| node.failover = true)
}

fn in_state(index: usize, state: State) -> Endpoint<V4> {
    Endpoint {
        state: state as u8,
        ..pod(1, index, 8080)
    }
}

fn from_second(flags: u8, seq: u32) -> P {
    P::tcp(
        (PODS[1], 8080),
        (CLIENT, PORT),
        flags,
        seq,
        ISN.wrapping_add(1),
    )
    .macs(CLIENT_MAC, NODE_MAC)
}

pub fn cases() -> Vec<Case> {
    [repeated(), chosen(), sticky(), taken()].concat()
}

fn repeated() -> Vec<Case> {
    let again = |node, reason, index| {
        case("", node)
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .edited(&syn(), reason, &at_pod(&syn(), index))
    };
    let named = |name, mut case: Case| {
        case.name = name;
        case
    };
    let answer = from_pod(SYN | ACK);
    let second = from_second(SYN | ACK, 99);
    let moved = || {
        case("", failing_over(2))
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .wait(IMPATIENT)
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 1))
    };
    vec![
        named(
            "a SYN repeated at once goes to the same endpoint",
            again(failing_over(2), Reason::RepeatedSyn, 0),
        ),
        case("without failover it always does", pods(2, 1))
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .wait(IMPATIENT)
            .edited(&syn(), Reason::RepeatedSyn, &at_pod(&syn(), 0)),
        case("an answered SYN is never moved", failing_over(2))
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
            .wait(IMPATIENT)
            .edited(&syn(), Reason::RepeatedSyn, &at_pod(&syn(), 0)),
        named("a silent endpoint loses the connection", moved()).edited(
            &syn(),
            Reason::RepeatedSyn,
            &at_pod(&syn(), 1),
        ),
        case(
            "the only endpoint may be silent and get the SYN again",
            failing_over(1),
        )
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .wait(IMPATIENT)
        .edited(&syn(), Reason::RepeatedSyn, &at_pod(&syn(), 0)),
        named("all are silent: one of them gets the SYN again", moved())
            .wait(IMPATIENT)
            .edited(&syn(), Reason::RepeatedSyn, &at_pod(&syn(), 1)),
        named("the first answer wins, the second is too late", moved())
            .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
            .step(Step::Egress(
                second.bytes(),
                false,
                Reason::AnswerTooLate,
                Want::Dropped,
            ))
            .edited(&ack(), Reason::FlowLocal, &at_pod(&ack(), 0)),
        named("also when the second endpoint's is the first", moved())
            .leaving(&second, Reason::ReplyLocal, &at_client(&second))
            .step(Step::Egress(
                answer.bytes(),
                false,
                Reason::AnswerTooLate,
                Want::Dropped,
            ))
            .edited(
                &ack(),
                Reason::RefusedUnknownFlow,
                &reset(&ack(), RST, ENDPOINT_ISN + 1, 0),
            ),
        case(
            "another SYN of the tuple is another connection",
            failing_over(2),
        )
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .wait(IMPATIENT)
        .edited(
            &P::tcp((CLIENT, PORT), (VIP, 80), SYN, 7, 0),
            Reason::NewLocal,
            &at_pod(&P::tcp((CLIENT, PORT), (VIP, 80), SYN, 7, 0), 0),
        ),
    ]
}

fn chosen() -> Vec<Case> {
    let refused = |packet: &P| reset(packet, RST | ACK, 0, ISN.wrapping_add(1));
    let three_rows = {
        let node = pods(3, 4);
        let port = port_in_row(CLIENT, (VIP, 80), TCP, 0, 4);
        (node, syn().from(CLIENT, port))
    };
    let (node, first) = three_rows;
    let ejected = Health {
        ejected_until: u32::MAX,
        ..Health::default()
    };
    let with_verdict = |code| {
        let mut service = Service::new(1, VIP, 80, TCP, &[]);
        service.verdict = code;
        let mut datagrams = Service::new(2, VIP, 53, UDP, &[]);
        datagrams.verdict = code;
        Node::bare().service(service).service(datagrams)
    };
    let question = P::udp((CLIENT, PORT), (VIP, 53)).data(b"q");
    let ranges = Node::local().with(|node| {
        node.frontends[0].ranges = vec![([198, 51, 100, 0], 24), ([203, 0, 113, 9], 32)];
    });
    let from = |address| syn().from(address, PORT);
    vec![
        case("a draining primary: the secondary", node.clone())
            .step(Step::Endpoint(1, in_state(0, State::Draining)))
            .edited(&first, Reason::NewLocal, &at_pod(&first, 1)),
        case("both draining: the next row's", node.clone())
            .step(Step::Endpoint(1, in_state(0, State::Draining)))
            .step(Step::Endpoint(2, in_state(1, State::Gone)))
            .edited(&first, Reason::NewLocal, &at_pod(&first, 2)),
        case("an ejected primary: the secondary", node.clone())
            .step(Step::Health(1, ejected))
            .edited(&first, Reason::NewLocal, &at_pod(&first, 1)),
        case("nobody takes it: refused", pods(1, 1))
            .step(Step::Endpoint(1, in_state(0, State::Draining)))
            .edited(&syn(), Reason::RefusedNoEndpoint, &refused(&syn())),
        case("an endpoint of another frontend is never used", pods(1, 1))
            .step(Step::Endpoint(1, pod(9, 0, 8080)))
            .edited(&syn(), Reason::RefusedNoEndpoint, &refused(&syn())),
        case("verdict drop is silent", with_verdict(verdict::DROP))
            .dropped(&syn().bytes(), Reason::NoLocalEndpoint)
            .dropped(&question.bytes(), Reason::NoLocalEndpoint),
        case("verdict reject refuses", with_verdict(verdict::REJECT))
            .edited(&syn(), Reason::RefusedNoEndpoint, &refused(&syn()))
            .edited(
                &question,
                Reason::RefusedUdpNoEndpoint,
                &unreachable(&question),
            ),
        case("clients outside the source ranges are dropped", ranges)
            .dropped(&syn().bytes(), Reason::SourceRange)
            .dropped(&from([198, 51, 101, 1]).bytes(), Reason::SourceRange)
            .dropped(&from([203, 0, 113, 8]).bytes(), Reason::SourceRange)
            .edited(&from(CLIENT2), Reason::NewLocal, &at_pod(&from(CLIENT2), 0))
            .edited(
                &from([203, 0, 113, 9]),
                Reason::NewLocal,
                &at_pod(&from([203, 0, 113, 9]), 0),
            ),
        case("impossible sources are dropped", Node::local())
            .dropped(&from(VIP).bytes(), Reason::BadSource)
            .dropped(&from(VIP2).bytes(), Reason::BadSource)
            .dropped(&from([224, 0, 0, 5]).bytes(), Reason::BadSource)
            .dropped(&from([255; 4]).bytes(), Reason::BadSource)
            .dropped(&from([0; 4]).bytes(), Reason::BadSource)
            .dropped(&from([127, 0, 0, 1]).bytes(), Reason::BadSource)
            .dropped(&syn().macs(NODE_MAC, [0xff; 6]).bytes(), Reason::BadSource),
    ]
}

fn sticky() -> Vec<Case> {
    let node = pods(2, 2).with(|node| node.frontends[0].affinity = 100);
    let row = |row| syn().from(CLIENT, port_in_row(CLIENT, (VIP, 80), TCP, row, 2));
    let (first, second) = (row(0), row(1));
    let other = syn().from(CLIENT2, port_in_row(CLIENT2, (VIP, 80), TCP, 1, 2));
    let begun =
        |name| case(name, node.clone()).edited(&first, Reason::NewLocal, &at_pod(&first, 0));
    vec![
        begun("a client stays with its endpoint")
            .tables(|tables| assert_eq!(tables.affinity.len(), 1))
            .edited(&second, Reason::NewLocal, &at_pod(&second, 0))
            .edited(&other, Reason::NewLocal, &at_pod(&other, 1)),
        begun("until its time is over").wait(102 * 1024).edited(
            &second,
            Reason::NewLocal,
            &at_pod(&second, 1),
        ),
        begun("every connection counts anew")
            .wait(80 * 1024)
            .edited(&second, Reason::NewLocal, &at_pod(&second, 0))
            .wait(80 * 1024)
            .edited(&second, Reason::RepeatedSyn, &at_pod(&second, 0)),
        begun("never with a draining one")
            .step(Step::Endpoint(1, in_state(0, State::Draining)))
            .edited(&second, Reason::NewLocal, &at_pod(&second, 1))
            .tables(|tables| assert_eq!(tables.affinity[0].1.endpoint, 2)),
        begun("nor with one of another frontend")
            .step(Step::Endpoint(1, pod(9, 0, 8080)))
            .edited(&second, Reason::NewLocal, &at_pod(&second, 1)),
    ]
}

/// Two VIPs, one client port, one pod: one and the same tuple at the pod.
fn taken() -> Vec<Case> {
    let shared = |others: &[u32]| {
        Node::bare()
            .service(Service::new(1, VIP, 80, TCP, &[1]))
            .service(Service::new(2, VIP2, 80, TCP, others))
            .endpoint(1, pod(1, 0, 8080))
            .endpoint(2, pod(2, 0, 8080))
            .endpoint(3, pod(2, 1, 8080))
    };
    let other = syn().to(VIP2, 80);
    let rewritten = |packet: &P| at_pod(&packet.clone().from(CLIENT, SNAT_PORT), 0);
    let answer = P::tcp(
        (PODS[0], 8080),
        (CLIENT, SNAT_PORT),
        SYN | ACK,
        ENDPOINT_ISN,
        ISN.wrapping_add(1),
    )
    .macs(CLIENT_MAC, NODE_MAC);
    let reply = P::tcp((PODS[0], 8080), (CLIENT, SNAT_PORT), ACK, 1, 2)
        .data(b"mine")
        .macs(CLIENT_MAC, NODE_MAC);
    let restored = |packet: &P| packet.clone().from(VIP2, 80).to(CLIENT, PORT);
    let other_ack = ack().to(VIP2, 80);
    let other_data = data(DATA).to(VIP2, 80);
    let in_handshake = case("while the first is only a handshake, too", shared(&[2]))
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .edited(&other, Reason::NewLocal, &rewritten(&other))
        .tables(|tables| assert_eq!(tables.counts(), [0, 0, 2, 0]));
    vec![
        connected("the tuple is taken: the next endpoint", shared(&[2, 3]))
            .edited(&other, Reason::NewLocal, &at_pod(&other, 1))
            .edited(&data(DATA), Reason::FlowLocal, &at_pod(&data(DATA), 0)),
        connected(
            "no other endpoint: the client's port is rewritten",
            shared(&[2]),
        )
        .edited(&other, Reason::NewLocal, &rewritten(&other))
        .edited(&other, Reason::RepeatedSyn, &rewritten(&other))
        .leaving(&answer, Reason::ReplyLocal, &restored(&answer))
        .edited(&other_ack, Reason::FlowLocal, &rewritten(&other_ack))
        .edited(&other_data, Reason::FlowLocal, &rewritten(&other_data))
        .leaving(&reply, Reason::ReplyLocal, &restored(&reply))
        .edited(&data(DATA), Reason::FlowLocal, &at_pod(&data(DATA), 0))
        .leaving(
            &from_pod(DATA),
            Reason::ReplyLocal,
            &at_client(&from_pod(DATA)),
        )
        .tables(|tables| assert_eq!(tables.counts(), [2, 2, 0, 0])),
        in_handshake,
        connected(
            "taken here, no next hop there: still rewritten",
            shared(&[2, 4]),
        )
        .step(Step::Endpoint(4, unresolved()))
        .edited(&other, Reason::NewLocal, &rewritten(&other)),
    ]
}

fn unresolved() -> Endpoint<V4> {
    Endpoint {
        ifindex: 0,
        ..super::node::server(2, 0, 8080)
    }
}
