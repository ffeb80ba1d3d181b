//! Refused connections: moved to the next endpoint, byte for byte the client's SYN, and nothing but
//! a sound refusal of a pending handshake moves one.

use lb_common::Reason;
use lb_common::V4;
use lb_common::abi::{Endpoint, State};

use super::case::{Case, Step, case};
use super::node::{CLIENT, Node, PODS, SERVERS, SNAT, SNAT_PORT, Service, TCP, VIP, pod, server};
use super::packet::{ACK, CLIENT_MAC, L4, NODE_MAC, P, RST, SERVER_MAC, SYN, Sum};
use super::scenes::{
    DATA, ISN, PORT, ack, at_client, at_pod, at_server, back_at_client, connected, data, from_pod,
    from_server, syn,
};

pub fn cases() -> Vec<Case> {
    [
        local(),
        by_full_nat(),
        unmoved(),
        port_used_again(),
        errors(),
    ]
    .concat()
}

/// So many pods behind one row; each is the next one's secondary.
fn pods(count: usize) -> Node {
    let ids: Vec<u32> = (1..=count as u32).collect();
    let node = Node::bare().service(Service::new(1, VIP, 80, TCP, &ids));
    let node = (0..count).fold(node, |node, index| {
        node.endpoint(index as u32 + 1, pod(1, index, 8080))
    });
    node.with(|node| node.failover = true)
}

fn servers(count: usize) -> Node {
    let ids: Vec<u32> = (1..=count as u32).collect();
    let node = Node::bare().service(Service::new(1, VIP, 80, TCP, &ids));
    let node = (0..count).fold(node, |node, index| {
        node.endpoint(index as u32 + 1, server(1, index, 8080))
    });
    node.with(|node| node.failover = true)
}

/// A pod's RST to the SYN, as Linux sends it.
fn refusal(index: usize) -> P {
    bare(
        P::tcp(
            (PODS[index], 8080),
            (CLIENT, PORT),
            RST | ACK,
            0,
            ISN.wrapping_add(1),
        )
        .macs(CLIENT_MAC, NODE_MAC),
    )
}

fn bare(mut packet: P) -> P {
    if let L4::Tcp { window, .. } = &mut packet.l4 {
        *window = 0;
    }
    packet
}

/// A server's.
fn server_refusal(index: usize) -> P {
    refusal(0)
        .from(SERVERS[index], 8080)
        .to(SNAT, SNAT_PORT)
        .macs(NODE_MAC, SERVER_MAC)
}

/// The client's SYN as it enters again, for this pod.
fn again(syn: &P, index: usize) -> P {
    let mut packet = at_pod(syn, index).macs(NODE_MAC, NODE_MAC);
    packet.id = 0;
    packet
}

/// A SYN with every option that matters: MSS, SACK, timestamps, window scale.
fn rich() -> P {
    let mut packet = syn().ttl(57);
    packet.tos = 0x28;
    if let L4::Tcp {
        window, options, ..
    } = &mut packet.l4
    {
        *window = 0xfaf0;
        *options = vec![
            2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 10,
        ];
    }
    packet
}

fn local() -> Vec<Case> {
    let second = P::tcp(
        (PODS[1], 8080),
        (CLIENT, PORT),
        SYN | ACK,
        99,
        ISN.wrapping_add(1),
    )
    .macs(CLIENT_MAC, NODE_MAC);
    let done = P::tcp((CLIENT, PORT), (VIP, 80), ACK, ISN.wrapping_add(1), 100);
    vec![
        case(
            "a refused SYN goes to the secondary, and the connection stays there",
            pods(2),
        )
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .leaving(&refusal(0), Reason::FailoverReinjected, &again(&syn(), 1))
        .leaving(&second, Reason::ReplyLocal, &at_client(&second))
        .edited(&done, Reason::FlowLocal, &at_pod(&done, 1))
        .tables(|tables| {
            assert_eq!(tables.counts(), [1, 1, 0, 0]);
            assert_eq!(tables.flows[0].1.endpoint, 2);
        }),
        case("options, window, TOS and TTL are the client's", pods(2))
            .edited(&rich(), Reason::NewLocal, &at_pod(&rich(), 0))
            .leaving(&refusal(0), Reason::FailoverReinjected, &again(&rich(), 1)),
        case("three endpoints, then the truth", pods(3))
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .leaving(&refusal(0), Reason::FailoverReinjected, &again(&syn(), 1))
            .leaving(&refusal(1), Reason::FailoverReinjected, &again(&syn(), 2))
            .leaving(&refusal(2), Reason::ReplyLocal, &at_client(&refusal(2))),
        case("nobody else: the truth at once", pods(1))
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .leaving(&refusal(0), Reason::ReplyLocal, &at_client(&refusal(0))),
        case("who drains is not asked", pods(3))
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .step(Step::Endpoint(2, draining(1)))
            .leaving(&refusal(0), Reason::FailoverReinjected, &again(&syn(), 2)),
        case(
            "a pod's route is gone: its SYN, on the way out again, turns back",
            pods(2),
        )
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .leaving(
            &at_pod(&syn(), 0),
            Reason::FailoverReinjected,
            &at_pod(&syn(), 1).macs(NODE_MAC, NODE_MAC),
        ),
    ]
}

fn draining(index: usize) -> Endpoint<V4> {
    Endpoint {
        state: State::Draining as u8,
        ..pod(1, index, 8080)
    }
}

fn by_full_nat() -> Vec<Case> {
    let again = |index| {
        let mut packet = at_server(&syn(), index);
        packet.id = 0;
        packet
    };
    vec![
        case(
            "a server's refusal becomes the SYN to the next server",
            servers(2),
        )
        .edited(&syn(), Reason::NewNat, &at_server(&syn(), 0))
        .edited(&server_refusal(0), Reason::FailoverNat, &again(1)),
        case("servers: three, then the truth", servers(3))
            .edited(&syn(), Reason::NewNat, &at_server(&syn(), 0))
            .edited(&server_refusal(0), Reason::FailoverNat, &again(1))
            .edited(&server_refusal(1), Reason::FailoverNat, &again(2))
            .edited(
                &server_refusal(2),
                Reason::ReplyNat,
                &back_at_client(&server_refusal(2)),
            ),
        case("a refusal that was damaged moves nothing", servers(2))
            .edited(&syn(), Reason::NewNat, &at_server(&syn(), 0))
            .dropped(
                &server_refusal(0).sum(Sum::Wrong(1)).bytes(),
                Reason::BadChecksum,
            )
            .tables(|tables| assert_eq!(tables.handshakes[0].1.endpoint, 1)),
    ]
}

/// What looks like a refusal and is none.
fn unmoved() -> Vec<Case> {
    let begun = |name| case(name, pods(2)).edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0));
    let told = |name, packet: P| {
        begun(name)
            .leaving(&packet, Reason::ReplyLocal, &at_client(&packet))
            .tables(|tables| {
                assert_eq!(tables.handshakes.len(), 1);
                assert_eq!(tables.handshakes[0].1.endpoint, 1);
            })
    };
    let with = |flags, ack: u32| {
        bare(P::tcp((PODS[0], 8080), (CLIENT, PORT), flags, 0, ack).macs(CLIENT_MAC, NODE_MAC))
    };
    let answer = from_pod(SYN | ACK);
    let late = refusal(0);
    vec![
        told(
            "an acknowledgement off by one",
            with(RST | ACK, ISN.wrapping_add(2)),
        ),
        told("the SYN itself is not acknowledged", with(RST | ACK, ISN)),
        told(
            "an acknowledgement from elsewhere",
            with(RST | ACK, 0x1234_5678),
        ),
        told(
            "a RST without acknowledgement",
            with(RST, ISN.wrapping_add(1)),
        ),
        begun("a RST after the SYN-ACK is the client's")
            .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
            .leaving(&late, Reason::ReplyLocal, &at_client(&late)),
        connected("a RST on an established flow is the client's", pods(2))
            .leaving(
                &from_pod(RST | ACK),
                Reason::ReplyLocal,
                &at_client(&from_pod(RST | ACK)),
            )
            .edited(&data(DATA), Reason::FlowLocal, &at_pod(&data(DATA), 0)),
        case(
            "failover is off",
            pods(2).with(|node| node.failover = false),
        )
        .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
        .leaving(&refusal(0), Reason::ReplyLocal, &at_client(&refusal(0))),
    ]
}

/// The client's port is used again while its closed flow lingers, and the pod is dead by then. The
/// refusal has the old flow's tuple, and belongs to the new connection.
fn port_used_again() -> Vec<Case> {
    let (client_fin, pod_fin) = (data(0x11), from_pod(0x11));
    let second = P::tcp((CLIENT, PORT), (VIP, 80), SYN, 5, 0);
    let refused =
        bare(P::tcp((PODS[0], 8080), (CLIENT, PORT), RST | ACK, 0, 6).macs(CLIENT_MAC, NODE_MAC));
    let answer =
        P::tcp((PODS[1], 8080), (CLIENT, PORT), SYN | ACK, 900, 6).macs(CLIENT_MAC, NODE_MAC);
    let done = P::tcp((CLIENT, PORT), (VIP, 80), ACK, 6, 901);
    let foreign =
        bare(P::tcp((PODS[0], 8080), (CLIENT, PORT), RST | ACK, 7, 77).macs(CLIENT_MAC, NODE_MAC));
    let closed = |name| {
        connected(name, pods(2))
            .edited(&client_fin, Reason::FlowLocal, &at_pod(&client_fin, 0))
            .leaving(&pod_fin, Reason::ReplyLocal, &at_client(&pod_fin))
            .edited(&second, Reason::NewLocal, &at_pod(&second, 0))
    };
    vec![
        closed("a port used again, refused, moves on")
            .leaving(&refused, Reason::FailoverReinjected, &again(&second, 1))
            .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
            .edited(&done, Reason::FlowLocal, &at_pod(&done, 1))
            .tables(|tables| assert_eq!(tables.flows[0].1.endpoint, 2)),
        closed("a RST of the old connection stays the old one's")
            .leaving(&foreign, Reason::ReplyLocal, &at_client(&foreign))
            .tables(|tables| assert_eq!(tables.handshakes.len(), 1)),
    ]
}

/// ICMP errors about a SYN, from a pod or the node's own stack, as they leave.
fn errors() -> Vec<Case> {
    let quoting = |packet: &P, code| {
        P::icmp(packet.dst.0, packet.src.0, 3, code, [0; 4])
            .data(&packet.bytes()[14..14 + 28])
            .macs(CLIENT_MAC, NODE_MAC)
    };
    let about = |code| quoting(&at_pod(&syn(), 0), code);
    let begun = |name| case(name, pods(2)).edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0));
    let answer = from_pod(SYN | ACK);
    let unrelated = quoting(&P::tcp((CLIENT, PORT), (PODS[2], 8080), SYN, 1, 0), 1);
    vec![
        begun("host unreachable").leaving(&about(1), Reason::FailoverReinjected, &again(&syn(), 1)),
        begun("port unreachable").leaving(&about(3), Reason::FailoverReinjected, &again(&syn(), 1)),
        begun("prohibited").leaving(&about(13), Reason::FailoverReinjected, &again(&syn(), 1)),
        begun("an error after the SYN-ACK is swallowed")
            .leaving(&answer, Reason::ReplyLocal, &at_client(&answer))
            .step(Step::Egress(
                about(1).bytes(),
                false,
                Reason::SwallowedError,
                super::case::Want::Dropped,
            ))
            .edited(&ack(), Reason::FlowLocal, &at_pod(&ack(), 0)),
        begun("an error about something else leaves as it is")
            .leaving_untouched(&unrelated.bytes(), Reason::EgressOther),
        case("an error with nobody else to ask is swallowed", pods(1))
            .edited(&syn(), Reason::NewLocal, &at_pod(&syn(), 0))
            .step(Step::Egress(
                about(1).bytes(),
                false,
                Reason::SwallowedError,
                super::case::Want::Dropped,
            )),
        case(
            "a server's answer after it was moved is dropped",
            servers(2),
        )
        .edited(&syn(), Reason::NewNat, &at_server(&syn(), 0))
        .edited(
            &from_server(SYN | ACK),
            Reason::ReplyNat,
            &back_at_client(&from_server(SYN | ACK)),
        ),
    ]
}
