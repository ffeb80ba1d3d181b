//! UDP: one-way, answered, with and without a checksum.

use lb_common::abi::{Endpoint, State};
use lb_common::{Reason, V4, limits};

use super::case::{Case, Step, Want, case};
use super::node::{CLIENT, Node, PODS, SERVERS, SNAT, SNAT_PORT, Service, UDP, VIP, pod, server};
use super::packet::{CLIENT_MAC, NODE_MAC, P, SERVER_MAC, Sum};
use super::scenes::PORT;

fn question() -> P {
    P::udp((CLIENT, PORT), (VIP, 53)).data(b"question")
}

fn at_pod(packet: &P) -> P {
    packet.clone().to(PODS[0], 5353)
}

fn from_pod() -> P {
    P::udp((PODS[0], 5353), (CLIENT, PORT))
        .data(b"an answer")
        .macs(CLIENT_MAC, NODE_MAC)
}

fn at_client(packet: &P) -> P {
    packet.clone().from(VIP, 53)
}

fn at_server(packet: &P) -> P {
    packet
        .clone()
        .from(SNAT, SNAT_PORT)
        .to(SERVERS[0], 5353)
        .macs(SERVER_MAC, NODE_MAC)
        .ttl(63)
}

fn from_server() -> P {
    P::udp((SERVERS[0], 5353), (SNAT, SNAT_PORT))
        .data(b"an answer")
        .macs(NODE_MAC, SERVER_MAC)
}

fn back_at_client(packet: &P) -> P {
    packet
        .clone()
        .from(VIP, 53)
        .to(CLIENT, PORT)
        .macs(CLIENT_MAC, NODE_MAC)
        .ttl(63)
}

fn answered(name: &'static str) -> Case {
    case(name, Node::local())
        .edited(&question(), Reason::NewLocal, &at_pod(&question()))
        .leaving(&from_pod(), Reason::ReplyLocal, &at_client(&from_pod()))
}

fn answered_nat(name: &'static str) -> Case {
    case(name, Node::nat())
        .edited(&question(), Reason::NewNat, &at_server(&question()))
        .edited(
            &from_server(),
            Reason::ReplyNat,
            &back_at_client(&from_server()),
        )
}

fn gone() -> Endpoint<V4> {
    Endpoint {
        state: State::Gone as u8,
        ..pod(2, 0, 5353)
    }
}

/// The port unreachable that a host sends about what it got.
fn refusal(about: &P, to: [u8; 6]) -> P {
    let quoted = &about.bytes()[14..14 + 20 + 8];
    P::icmp(about.dst.0, about.src.0, 3, 3, [0; 4])
        .data(quoted)
        .macs(to, NODE_MAC)
}

/// The row's first choice is endpoint 4, the other one is 5.
fn two(kind: fn(u32, usize, u16) -> Endpoint<V4>) -> Node {
    Node::bare()
        .service(Service::new(2, VIP, 53, UDP, &[4, 5]))
        .endpoint(4, kind(2, 0, 5353))
        .endpoint(5, kind(2, 1, 5353))
}

fn closed_ports() -> Vec<Case> {
    let swallowed =
        |error: &P| Step::Egress(error.bytes(), false, Reason::SwallowedError, Want::Dropped);
    let other = |packet: &P| packet.clone().to(PODS[1], 5353);
    let error = refusal(&at_pod(&question()), CLIENT_MAC);
    let local = case("a closed port moves an exchange", two(pod))
        .edited(&question(), Reason::NewLocal, &at_pod(&question()))
        .leaving(&from_pod(), Reason::ReplyLocal, &at_client(&from_pod()))
        .edited(&question(), Reason::FlowLocal, &at_pod(&question()))
        .step(swallowed(&error))
        .tables(|tables| assert_eq!(tables.counts(), [0, 0, 1, 0]))
        .edited(&question(), Reason::NewLocal, &other(&question()))
        .edited(&question(), Reason::RepeatedSyn, &other(&question()))
        // What the first one says later is no answer to anybody.
        .step(Step::Egress(
            from_pod().bytes(),
            false,
            Reason::AnswerTooLate,
            Want::Dropped,
        ));
    let unanswered = case(
        "a closed port moves the first datagram's exchange",
        two(pod),
    )
    .edited(&question(), Reason::NewLocal, &at_pod(&question()))
    .step(swallowed(&error))
    .edited(&question(), Reason::NewLocal, &other(&question()));
    let nobody_else = case(
        "with nobody else a closed port is asked again",
        Node::local(),
    )
    .edited(&question(), Reason::NewLocal, &at_pod(&question()))
    .step(swallowed(&error))
    .edited(&question(), Reason::NewLocal, &at_pod(&question()))
    .leaving(&from_pod(), Reason::ReplyLocal, &at_client(&from_pod()));
    let later = case("a refusal is forgotten after a while", two(pod))
        .edited(&question(), Reason::NewLocal, &at_pod(&question()))
        .step(swallowed(&error))
        .wait((limits::UDP_ONE_WAY + 2) * 1024)
        .edited(&question(), Reason::NewLocal, &at_pod(&question()))
        .leaving(&from_pod(), Reason::ReplyLocal, &at_client(&from_pod()));
    let of_another = case(
        "an error about somebody else's datagram is passed",
        two(pod),
    )
    .edited(&question(), Reason::NewLocal, &at_pod(&question()))
    .step(Step::Egress(
        refusal(&at_pod(&question()).from(CLIENT, PORT + 1), CLIENT_MAC).bytes(),
        false,
        Reason::EgressOther,
        Want::Same,
    ));
    let error = refusal(&at_server(&question()), NODE_MAC).macs(NODE_MAC, SERVER_MAC);
    let at_other = |packet: &P| at_server(packet).to(SERVERS[1], 5353);
    let ports = |node: &mut Node| node.snat_ports = [SNAT_PORT, SNAT_PORT];
    let nat = case(
        "full NAT: a closed port moves an exchange",
        two(server).with(ports),
    )
    .edited(&question(), Reason::NewNat, &at_server(&question()))
    .edited(
        &from_server(),
        Reason::ReplyNat,
        &back_at_client(&from_server()),
    )
    .dropped(&error.bytes(), Reason::SwallowedError)
    .tables(|tables| assert_eq!(tables.counts(), [0, 0, 1, 0]))
    .edited(&question(), Reason::NewNat, &at_other(&question()));
    let forged = case("full NAT: only the server itself can refuse", two(server))
        .edited(&question(), Reason::NewNat, &at_server(&question()))
        .untouched(&error.clone().from(CLIENT, 0).bytes(), Reason::NotOurs);
    vec![
        local,
        unanswered,
        nobody_else,
        later,
        of_another,
        nat,
        forged,
    ]
}

pub fn cases() -> Vec<Case> {
    let mut cases = exchanges();
    cases.extend(closed_ports());
    cases
}

fn exchanges() -> Vec<Case> {
    let none = question().sum(Sum::None);
    let reply_none = from_pod().sum(Sum::None);
    let server_none = from_server().sum(Sum::None);
    // Its checksum comes to zero once it is rewritten.
    let zero = |wanted: P, packet: P| packet.data(&wanted.summing_to_zero().payload);
    let zero_in = zero(at_pod(&question()), question());
    let zero_nat = zero(at_server(&question()), question());
    let zero_out = zero(at_client(&from_pod().data(b"")), from_pod().data(b""));
    let zero_back = zero(
        back_at_client(&from_server().data(b"")),
        from_server().data(b""),
    );
    let ones = question().summing_to_zero();
    vec![
        answered("an exchange that is answered is a flow")
            .tables(|tables| assert_eq!(tables.counts(), [1, 1, 0, 0]))
            .edited(&question(), Reason::FlowLocal, &at_pod(&question())),
        case(
            "one-way traffic pins nothing and stays where it is",
            Node::local(),
        )
        .edited(&question(), Reason::NewLocal, &at_pod(&question()))
        .edited(&question(), Reason::RepeatedSyn, &at_pod(&question()))
        .tables(|tables| assert_eq!(tables.counts(), [0, 0, 1, 0])),
        answered("a flow without answers ends, whatever the client sends")
            .wait(limits::UDP_ANSWERED * 1024 / 2)
            .edited(&question(), Reason::FlowLocal, &at_pod(&question()))
            .wait(limits::UDP_ANSWERED * 1024 / 2 + 2048)
            .step(Step::Sweep)
            .tables(|tables| assert_eq!(tables.counts(), [0, 0, 0, 0])),
        answered("answers keep a flow")
            .wait(limits::UDP_ANSWERED * 1024 / 2)
            .leaving(&from_pod(), Reason::ReplyLocal, &at_client(&from_pod()))
            .wait(limits::UDP_ANSWERED * 1024 / 2 + 2048)
            .step(Step::Sweep)
            .tables(|tables| assert_eq!(tables.counts(), [1, 1, 0, 0])),
        answered("a flow of an endpoint that is gone is forgotten")
            .step(Step::Endpoint(4, gone()))
            .step(Step::Sweep)
            .tables(|tables| assert_eq!(tables.counts(), [0, 0, 0, 0])),
        answered_nat("full NAT: an exchange that is answered is two flows")
            .tables(|tables| assert_eq!(tables.counts(), [2, 0, 0, 0]))
            .edited(&question(), Reason::FlowNat, &at_server(&question()))
            .edited(
                &from_server(),
                Reason::ReplyNat,
                &back_at_client(&from_server()),
            ),
        answered_nat("full NAT: answers keep both flows, questions do not")
            .wait(limits::UDP_ANSWERED * 1024 / 2)
            .edited(
                &from_server(),
                Reason::ReplyNat,
                &back_at_client(&from_server()),
            )
            .wait(limits::UDP_ANSWERED * 1024 / 2 + 2048)
            .step(Step::Sweep)
            .tables(|tables| assert_eq!(tables.counts(), [2, 0, 0, 0]))
            .edited(&question(), Reason::FlowNat, &at_server(&question()))
            .wait(limits::UDP_ANSWERED * 1024 / 2 + 2048)
            .step(Step::Sweep)
            .tables(|tables| assert_eq!(tables.counts(), [0, 0, 0, 0])),
        case("without a checksum: none is made up", Node::local())
            .edited(&none, Reason::NewLocal, &at_pod(&none))
            .leaving(&reply_none, Reason::ReplyLocal, &at_client(&reply_none))
            .edited(&none, Reason::FlowLocal, &at_pod(&none))
            .leaving(&reply_none, Reason::ReplyLocal, &at_client(&reply_none)),
        case("full NAT without a checksum: none is made up", Node::nat())
            .edited(&none, Reason::NewNat, &at_server(&none))
            .edited(
                &server_none,
                Reason::ReplyNat,
                &back_at_client(&server_none),
            )
            .edited(&none, Reason::FlowNat, &at_server(&none)),
        case("a computed zero is sent as ones", Node::local())
            .edited(&zero_in, Reason::NewLocal, &at_pod(&zero_in))
            .leaving(&zero_out, Reason::ReplyLocal, &at_client(&zero_out))
            .edited(&zero_in, Reason::FlowLocal, &at_pod(&zero_in))
            .leaving(&zero_out, Reason::ReplyLocal, &at_client(&zero_out)),
        case("full NAT: a computed zero is sent as ones", Node::nat())
            .edited(&zero_nat, Reason::NewNat, &at_server(&zero_nat))
            .edited(&zero_back, Reason::ReplyNat, &back_at_client(&zero_back))
            .edited(&zero_nat, Reason::FlowNat, &at_server(&zero_nat)),
        case("ones come in and are summed on", Node::local()).edited(
            &ones,
            Reason::NewLocal,
            &at_pod(&ones),
        ),
        case(
            "the flow table is full: the answer is dropped",
            Node::local(),
        )
        .edited(&question(), Reason::NewLocal, &at_pod(&question()))
        .step(Step::Fill(0, 1))
        .step(Step::Egress(
            from_pod().bytes(),
            false,
            Reason::TableFull,
            Want::Dropped,
        ))
        .tables(|tables| assert_eq!(tables.counts(), [0, 0, 1, 0])),
        case(
            "full NAT, the flow table is full: the answer is dropped",
            Node::nat(),
        )
        .edited(&question(), Reason::NewNat, &at_server(&question()))
        .step(Step::Fill(1, 0))
        .dropped(&from_server().bytes(), Reason::TableFull)
        .tables(|tables| assert_eq!(tables.counts(), [0, 0, 1, 0])),
    ]
}
