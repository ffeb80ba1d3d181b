//! TCP to endpoints on this node.

use lb_common::Reason;
use lb_common::abi::{Endpoint, STATE_FIN_CLIENT, STATE_FIN_ENDPOINT, STATE_RST, State};
use lb_common::{V4, limits};

use super::case::{Case, Step, case};
use super::node::{CLIENT, Node, PODS, Service, TCP, VIP, pod};
use super::packet::{ACK, FIN, NODE_MAC, P, RST, SYN};
use super::scenes::{
    DATA, ENDPOINT_ISN, ISN, PORT, ack, at_client, at_pod, connected, data, from_pod, reset, syn,
};

fn two_pods() -> Node {
    Node::bare()
        .service(Service::new(1, VIP, 80, TCP, &[1, 2]))
        .endpoint(1, pod(1, 0, 8080))
        .endpoint(2, pod(1, 1, 8080))
}

fn in_state(state: State) -> Endpoint<V4> {
    Endpoint {
        state: state as u8,
        ..pod(1, 0, 8080)
    }
}

pub fn cases() -> Vec<Case> {
    let answer = from_pod(SYN | ACK);
    let refusal = from_pod(RST | ACK);
    let wrong = P::tcp((CLIENT, PORT), (VIP, 80), ACK, ISN.wrapping_add(1), 77);
    let fast_open = syn().data(&[7; 100]);
    let fast_answer = P::tcp(
        (PODS[0], 8080),
        (CLIENT, PORT),
        SYN | ACK,
        ENDPOINT_ISN,
        ISN.wrapping_add(101),
    )
    .macs(answer.dst_mac, NODE_MAC);
    vec![
        connected(
            "a connection opens, carries data and is one flow",
            Node::local(),
        )
        .edited(&data(DATA), Reason::FlowLocal, &at_pod(&data(DATA), 0))
        .leaving(
            &from_pod(DATA).data(b"200"),
            Reason::ReplyLocal,
            &at_client(&from_pod(DATA).data(b"200")),
        )
        .tables(|tables| assert_eq!(tables.counts(), [1, 1, 0, 0])),
        case(
            "a SYN is remembered with what a failover needs",
            Node::local(),
        )
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .tables(|tables| {
            assert_eq!(tables.counts(), [0, 0, 1, 0]);
            let (_, handshake) = tables.handshakes[0];
            assert_eq!(handshake.isn.get(), ISN);
            assert_eq!(handshake.window.get(), 64240);
            assert_eq!((handshake.ttl, handshake.option_words), (64, 3));
            assert_eq!(handshake.options[0].to_ne_bytes(), [2, 4, 5, 0xb4]);
            assert_eq!(handshake.endpoint, 1);
        }),
        case("a SYN-ACK alone pins nothing", Node::local())
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
            .tables(|tables| assert_eq!(tables.counts(), [0, 0, 1, 1])),
        case("a guessed acknowledgement pins nothing", Node::local())
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
            .edited(
                &wrong,
                Reason::RefusedUnknownFlow,
                &reset(&wrong, RST, 77, 0),
            )
            .tables(|tables| assert_eq!(tables.counts(), [0, 0, 1, 1]))
            .edited(&ack(), Reason::FlowLocal, &at_pod(&ack(), 0)),
        case(
            "an acknowledgement without an answer pins nothing",
            Node::local(),
        )
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .edited(
            &ack(),
            Reason::RefusedUnknownFlow,
            &reset(&ack(), RST, ENDPOINT_ISN + 1, 0),
        ),
        case(
            "data completes a handshake whose ACK was lost",
            Node::local(),
        )
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
        .edited(&data(DATA), Reason::FlowLocal, &at_pod(&data(DATA), 0)),
        case(
            "a SYN with data (fast open) opens a connection",
            Node::local(),
        )
        .edited(&fast_open, Reason::NewLocal, &at_pod(&fast_open, 0))
        .leaving(&fast_answer, Reason::ReplyLocal, &at_client(&fast_answer))
        .edited(&ack(), Reason::FlowLocal, &at_pod(&ack(), 0)),
        case(
            "a refusal by the pod reaches the client as the VIP's",
            Node::local(),
        )
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .leaving(&refusal, Reason::ReplyLocal, &at_client(&refusal)),
        case("the pod's other traffic leaves as it is", Node::local())
            .leaving_untouched(&from_pod(DATA).bytes(), Reason::EgressOther)
            .leaving_untouched(&from_pod(SYN).to(CLIENT, 80).bytes(), Reason::EgressOther),
        connected("a SYN-ACK seen again is the flow's", Node::local()).leaving(
            &answer,
            Reason::ReplyLocal,
            &at_client(&answer),
        ),
        connected(
            "FINs of both sides end a flow within a minute",
            Node::local(),
        )
        .edited(
            &data(FIN | ACK),
            Reason::FlowLocal,
            &at_pod(&data(FIN | ACK), 0),
        )
        .tables(|tables| assert_eq!(tables.flows[0].1.state, STATE_FIN_CLIENT))
        .wait(120 * 1024)
        .step(Step::Sweep)
        .tables(|tables| assert_eq!(tables.counts(), [1, 1, 0, 0]))
        .leaving(
            &from_pod(FIN | ACK),
            Reason::ReplyLocal,
            &at_client(&from_pod(FIN | ACK)),
        )
        .tables(|tables| {
            let both = STATE_FIN_CLIENT | STATE_FIN_ENDPOINT;
            assert_eq!(tables.flows[0].1.state, both);
        })
        .edited(&ack(), Reason::FlowLocal, &at_pod(&ack(), 0))
        .wait((limits::TCP_CLOSING + 2) * 1024)
        .step(Step::Sweep)
        .tables(|tables| assert_eq!(tables.counts(), [0, 0, 0, 0])),
        connected("the client's RST ends a flow within seconds", Node::local())
            .edited(&data(RST), Reason::FlowLocal, &at_pod(&data(RST), 0))
            .tables(|tables| assert_eq!(tables.flows[0].1.state, STATE_RST))
            .wait((limits::TCP_RESET + 2) * 1024)
            .step(Step::Sweep)
            .tables(|tables| assert_eq!(tables.counts(), [0, 0, 0, 0])),
        connected("a RST that was not taken is taken back", Node::local())
            .edited(&data(RST), Reason::FlowLocal, &at_pod(&data(RST), 0))
            .edited(&data(DATA), Reason::FlowLocal, &at_pod(&data(DATA), 0))
            .tables(|tables| assert_eq!(tables.flows[0].1.state, 0)),
        connected("the pod's RST ends a flow within seconds", Node::local())
            .leaving(&refusal, Reason::ReplyLocal, &at_client(&refusal))
            .wait((limits::TCP_RESET + 2) * 1024)
            .step(Step::Sweep)
            .tables(|tables| assert_eq!(tables.counts(), [0, 0, 0, 0])),
        live_flow_and_a_syn(),
        closed_flow_and_a_syn(),
        live_flow_and_another_endpoint(State::Draining),
        live_flow_and_another_endpoint(State::Gone),
        case("an ACK from a group address is nobody's", Node::local())
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
            .dropped(&ack().macs(NODE_MAC, [0xff; 6]).bytes(), Reason::BadSource),
        connected("a flow whose endpoint is gone is reset", Node::local())
            .step(Step::Endpoint(1, in_state(State::Gone)))
            .step(Step::Sweep)
            .edited(
                &data(DATA),
                Reason::RefusedGone,
                &reset(&data(DATA), RST, ENDPOINT_ISN + 1, 0),
            )
            .edited(&data(RST), Reason::FlowLocal, &at_pod(&data(RST), 0))
            .wait((limits::TCP_RESET + 2) * 1024)
            .step(Step::Sweep)
            .tables(|tables| assert_eq!(tables.counts(), [0, 0, 0, 0])),
        connected("an idle flow waits for its reset", Node::local())
            .wait(3600 * 1024)
            .step(Step::Endpoint(1, in_state(State::Gone)))
            .step(Step::Sweep)
            .step(Step::Sweep)
            .edited(
                &data(ACK),
                Reason::RefusedGone,
                &reset(&data(ACK), RST, ENDPOINT_ISN + 1, 0),
            )
            .wait((limits::TCP_RESET + 2) * 1024)
            .step(Step::Sweep)
            .tables(|tables| assert_eq!(tables.counts(), [0, 0, 0, 0])),
        connected(
            "resets of a gone endpoint's flows wait for no budget",
            Node::local().with(|node| node.refusals = 0),
        )
        .step(Step::Endpoint(1, in_state(State::Gone)))
        .step(Step::Sweep)
        .edited(
            &data(ACK),
            Reason::RefusedGone,
            &reset(&data(ACK), RST, ENDPOINT_ISN + 1, 0),
        ),
        connected("a flow of a draining endpoint stays", Node::local())
            .step(Step::Endpoint(1, in_state(State::Draining)))
            .step(Step::Sweep)
            .edited(&data(DATA), Reason::FlowLocal, &at_pod(&data(DATA), 0)),
        case(
            "a handshake whose endpoint is gone before the ACK is reset",
            Node::local(),
        )
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
        .step(Step::Endpoint(1, in_state(State::Gone)))
        .edited(
            &ack(),
            Reason::RefusedGone,
            &reset(&ack(), RST, ENDPOINT_ISN + 1, 0),
        )
        .tables(|tables| assert_eq!(tables.counts()[..2], [0, 0])),
        case(
            "the flow table is full: refused, not forgotten",
            Node::local(),
        )
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
        .step(Step::Fill(0, 1))
        .edited(
            &ack(),
            Reason::RefusedTableFull,
            &reset(&ack(), RST, ENDPOINT_ISN + 1, 0),
        )
        .tables(|tables| assert_eq!(tables.counts(), [0, 0, 1, 1])),
        case("the reverse table is full: refused", Node::local())
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
            .step(Step::Fill(1, 0))
            .edited(
                &ack(),
                Reason::RefusedTableFull,
                &reset(&ack(), RST, ENDPOINT_ISN + 1, 0),
            )
            .tables(|tables| assert_eq!(tables.counts(), [0, 0, 1, 1])),
        connected(
            "a full flow table leaves existing flows alone",
            Node::local(),
        )
        .step(Step::Fill(0, 0))
        .edited(&data(DATA), Reason::FlowLocal, &at_pod(&data(DATA), 0))
        .leaving(
            &from_pod(DATA),
            Reason::ReplyLocal,
            &at_client(&from_pod(DATA)),
        ),
    ]
}

/// The client reuses its port before the old connection has ended.
fn live_flow_and_a_syn() -> Case {
    let again = P::tcp((CLIENT, PORT), (VIP, 80), SYN, 5, 0);
    let answer = P::tcp((PODS[0], 8080), (CLIENT, PORT), SYN | ACK, 900, 6)
        .macs(super::packet::CLIENT_MAC, NODE_MAC);
    let done = P::tcp((CLIENT, PORT), (VIP, 80), ACK, 6, 901);
    connected("a SYN on a live flow leaves the flow alone", Node::local())
        .edited(&again, Reason::NewLocal, &at_pod(&again, 0))
        .tables(|tables| assert_eq!(tables.counts(), [1, 1, 1, 0]))
        .edited(&data(DATA), Reason::FlowLocal, &at_pod(&data(DATA), 0))
        .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
        .edited(&data(DATA), Reason::FlowLocal, &at_pod(&data(DATA), 0))
        .tables(|tables| assert_eq!(tables.counts(), [1, 1, 1, 1]))
        .edited(&done, Reason::FlowLocal, &at_pod(&done, 0))
        .tables(|tables| assert_eq!(tables.counts(), [1, 1, 0, 0]))
}

/// A port used again while its closed flow lingers: the new connection must not inherit the old
/// one's end, or it would be forgotten after a minute's silence.
fn closed_flow_and_a_syn() -> Case {
    let (client_fin, pod_fin) = (data(FIN | ACK), from_pod(FIN | ACK));
    let again = P::tcp((CLIENT, PORT), (VIP, 80), SYN, 5, 0);
    let answer = P::tcp((PODS[0], 8080), (CLIENT, PORT), SYN | ACK, 900, 6)
        .macs(super::packet::CLIENT_MAC, NODE_MAC);
    let done = P::tcp((CLIENT, PORT), (VIP, 80), ACK, 6, 901);
    connected("a port used again begins a fresh flow", Node::local())
        .edited(&client_fin, Reason::FlowLocal, &at_pod(&client_fin, 0))
        .leaving(&pod_fin, Reason::ReplyLocal, &at_client(&pod_fin))
        .edited(&again, Reason::NewLocal, &at_pod(&again, 0))
        .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
        .edited(&done, Reason::FlowLocal, &at_pod(&done, 0))
        .tables(|tables| {
            assert_eq!(tables.counts(), [1, 1, 0, 0]);
            assert_eq!(tables.flows[0].1.state, 0);
        })
}

/// The same, and the new connection goes elsewhere: the old reply tuple must not be kept, for no
/// sweep would find it.
fn live_flow_and_another_endpoint(old: State) -> Case {
    let again = P::tcp((CLIENT, PORT), (VIP, 80), SYN, 5, 0);
    let answer = P::tcp((PODS[1], 8080), (CLIENT, PORT), SYN | ACK, 900, 6)
        .macs(super::packet::CLIENT_MAC, NODE_MAC);
    let done = P::tcp((CLIENT, PORT), (VIP, 80), ACK, 6, 901);
    connected("a new connection takes the old flow's place", two_pods())
        .step(Step::Endpoint(1, in_state(old)))
        .step(Step::Sweep)
        .edited(&again, Reason::NewLocal, &at_pod(&again, 1))
        .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
        .edited(&done, Reason::FlowLocal, &at_pod(&done, 1))
        .tables(|tables| {
            assert_eq!(tables.counts(), [1, 1, 0, 0]);
            assert_eq!(tables.flows[0].1.endpoint, 2);
            assert_eq!(tables.reverse[0].0.src.0, PODS[1]);
        })
}
