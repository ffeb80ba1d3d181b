//! Endpoints reached by full NAT, TCP.

use lb_common::abi::{Endpoint, Kind, STATE_FIN_CLIENT, STATE_FIN_ENDPOINT, State};
use lb_common::{Mac, Reason, V4, limits};

use super::case::{Case, Step, case};
use super::node::{
    CLIENT, CLIENT2, Node, OTHER_LINK, SERVERS, SNAT, SNAT_PORT, Service, TCP, VIP, server,
};
use super::packet::{ACK, FIN, NODE_MAC, P, RST, SERVER_MAC, SYN};
use super::scenes::{
    DATA, ENDPOINT_ISN, ISN, PORT, ack, at_server, back_at_client, connected_nat, data,
    from_server, reset, syn,
};

/// Servers 0 and 1 behind one frontend.
fn two_servers() -> Node {
    Node::bare()
        .service(Service::new(1, VIP, 80, TCP, &[1, 2]))
        .endpoint(1, server(1, 0, 8080))
        .endpoint(2, server(1, 1, 8080))
}

fn unresolved() -> Endpoint<V4> {
    Endpoint {
        ifindex: 0,
        ..server(1, 0, 8080)
    }
}

fn draining() -> Endpoint<V4> {
    Endpoint {
        state: State::Draining as u8,
        ..server(1, 0, 8080)
    }
}

fn elsewhere() -> Endpoint<V4> {
    Endpoint {
        ifindex: OTHER_LINK,
        own_mac: Mac([2, 0, 0, 0, 0, 9]),
        ..server(1, 0, 8080)
    }
}

pub fn cases() -> Vec<Case> {
    let answer = from_server(SYN | ACK);
    let refusal = from_server(RST | ACK);
    let stranger = syn().from(CLIENT2, 999);
    let fin = data(FIN | ACK);
    let server_fin = from_server(FIN | ACK);
    let redirected = |packet: &P| {
        let own = [2, 0, 0, 0, 0, 9];
        at_server(packet, 0).macs(SERVER_MAC, own)
    };
    vec![
        connected_nat("a connection opens and carries data both ways", Node::nat())
            .edited(&data(DATA), Reason::FlowNat, &at_server(&data(DATA), 0))
            .edited(
                &from_server(DATA).data(b"odd"),
                Reason::ReplyNat,
                &back_at_client(&from_server(DATA).data(b"odd")),
            )
            .tables(|tables| assert_eq!(tables.counts(), [2, 0, 0, 0])),
        connected_nat("a SYN-ACK seen again is the flow's", Node::nat()).edited(
            &answer,
            Reason::ReplyNat,
            &back_at_client(&answer),
        ),
        case(
            "a refusal by the server reaches the client as the VIP's",
            Node::nat(),
        )
        .edited(&syn(), Reason::NewNat, &at_server(&syn(), 0))
        .edited(&refusal, Reason::ReplyNat, &back_at_client(&refusal)),
        case(
            "what the node's own sockets get is the stack's",
            Node::nat(),
        )
        .untouched(&from_server(DATA).bytes(), Reason::NotOurs)
        .untouched(&from_server(DATA).to(SNAT, 22).bytes(), Reason::NotOurs)
        .untouched(
            &P::icmp(CLIENT, SNAT, 8, 0, [0; 4]).bytes(),
            Reason::NotOurs,
        )
        .untouched(
            &P::udp((CLIENT, 9), (SNAT, SNAT_PORT)).bytes(),
            Reason::NotOurs,
        ),
        case("the time to live ends here", Node::nat())
            .dropped(&syn().ttl(1).bytes(), Reason::TtlExceeded)
            .dropped(&syn().ttl(0).bytes(), Reason::TtlExceeded)
            .edited(
                &syn().ttl(2),
                Reason::RepeatedSynNat,
                &at_server(&syn().ttl(2), 0),
            ),
        connected_nat("and that of established packets", Node::nat())
            .dropped(&data(DATA).ttl(1).bytes(), Reason::TtlExceeded)
            .dropped(&from_server(DATA).ttl(1).bytes(), Reason::TtlExceeded),
        connected_nat(
            "FINs of both sides end both flows within a minute",
            Node::nat(),
        )
        .edited(&fin, Reason::FlowNat, &at_server(&fin, 0))
        .edited(&server_fin, Reason::ReplyNat, &back_at_client(&server_fin))
        .tables(|tables| {
            for (_, flow) in &tables.flows {
                assert_eq!(flow.state, STATE_FIN_CLIENT | STATE_FIN_ENDPOINT);
            }
        })
        .wait((limits::TCP_CLOSING + 2) * 1024)
        .step(Step::Sweep)
        .tables(|tables| assert_eq!(tables.counts(), [0, 0, 0, 0])),
        connected_nat("one direction's packets keep both flows", Node::nat())
            .wait((limits::TCP_ESTABLISHED - 10) * 1024)
            .edited(&data(DATA), Reason::FlowNat, &at_server(&data(DATA), 0))
            .wait(100 * 1024)
            .step(Step::Sweep)
            .tables(|tables| assert_eq!(tables.counts(), [2, 0, 0, 0])),
        connected_nat("no SNAT port is left", Node::nat())
            .dropped(&stranger.bytes(), Reason::SnatExhausted)
            .edited(&data(DATA), Reason::FlowNat, &at_server(&data(DATA), 0)),
        case("a handshake holds its SNAT port for a minute", Node::nat())
            .edited(&syn(), Reason::NewNat, &at_server(&syn(), 0))
            .dropped(&stranger.bytes(), Reason::SnatExhausted)
            .wait((limits::HANDSHAKE + 2) * 1024)
            .edited(&stranger, Reason::NewNat, &at_server(&stranger, 0)),
        connected_nat("the next server has a port", two_servers()).edited(
            &stranger,
            Reason::NewNat,
            &at_server(&stranger, 1),
        ),
        case("an unresolved next hop: another endpoint", two_servers())
            .step(Step::Endpoint(1, unresolved()))
            .edited(&syn(), Reason::NewNat, &at_server(&syn(), 1)),
        case("no next hop at all: dropped", Node::nat())
            .step(Step::Endpoint(1, unresolved()))
            .dropped(&syn().bytes(), Reason::NoNextHop),
        connected_nat(
            "a next hop lost: established packets are dropped",
            Node::nat(),
        )
        .step(Step::Endpoint(1, unresolved()))
        .dropped(&data(DATA).bytes(), Reason::NoNextHop),
        case("a server behind another interface", Node::nat())
            .step(Step::Endpoint(1, elsewhere()))
            .edited(&syn(), Reason::NewNatRedirect, &redirected(&syn()))
            .step(Step::Redirected(OTHER_LINK))
            .edited(&answer, Reason::ReplyNat, &back_at_client(&answer))
            .edited(&ack(), Reason::FlowNatRedirect, &redirected(&ack()))
            .step(Step::Redirected(OTHER_LINK)),
        case(
            "the flow table has room for one: neither is kept",
            Node::nat(),
        )
        .edited(&syn(), Reason::NewNat, &at_server(&syn(), 0))
        .edited(&answer, Reason::ReplyNat, &back_at_client(&answer))
        .step(Step::Fill(1, 0))
        .edited(
            &ack(),
            Reason::RefusedTableFull,
            &reset(&ack(), RST, ENDPOINT_ISN + 1, 0),
        )
        .tables(|tables| assert_eq!(tables.counts(), [0, 0, 1, 1])),
        connected_nat("each way's last acknowledgement is kept", Node::nat()).tables(|tables| {
            let ack = |kind: Kind| {
                let mut flows = tables.flows.iter();
                let flow = flows.find(|(_, flow)| flow.kind == kind as u8);
                flow.expect("a flow").1.ack.get()
            };
            assert_eq!(ack(Kind::Nat), ENDPOINT_ISN + 1);
            assert_eq!(ack(Kind::NatReply), ISN.wrapping_add(1));
        }),
        connected_nat("a flow whose endpoint is gone is reset", Node::nat())
            .step(Step::Endpoint(
                1,
                Endpoint {
                    state: State::Gone as u8,
                    ..server(1, 0, 8080)
                },
            ))
            .step(Step::Sweep)
            .edited(
                &data(DATA),
                Reason::RefusedGone,
                &reset(&data(DATA), RST, ENDPOINT_ISN + 1, 0),
            )
            .edited(
                &from_server(DATA),
                Reason::RefusedGone,
                &reset(&from_server(DATA), RST, ISN.wrapping_add(1), 0),
            )
            .edited(&data(RST), Reason::FlowNat, &at_server(&data(RST), 0)),
        replaced(),
    ]
}

/// The client reuses its port, the new connection goes elsewhere: the old reply must go with it.
fn replaced() -> Case {
    let again = P::tcp((CLIENT, PORT), (VIP, 80), SYN, 5, 0);
    let answer =
        P::tcp((SERVERS[1], 8080), (SNAT, SNAT_PORT), SYN | ACK, 900, 6).macs(NODE_MAC, SERVER_MAC);
    let done = P::tcp((CLIENT, PORT), (VIP, 80), ACK, 6, 901);
    let late = from_server(DATA);
    assert_ne!(ISN, 5);
    connected_nat("a new connection takes the old flow's place", two_servers())
        .step(Step::Endpoint(1, draining()))
        .edited(&again, Reason::NewNat, &at_server(&again, 1))
        .edited(&answer, Reason::ReplyNat, &back_at_client(&answer))
        .edited(&data(DATA), Reason::FlowNat, &at_server(&data(DATA), 0))
        .edited(&done, Reason::FlowNat, &at_server(&done, 1))
        .tables(|tables| {
            assert_eq!(tables.counts(), [2, 0, 0, 0]);
            assert!(tables.flows.iter().all(|(_, flow)| flow.endpoint == 2));
        })
        .untouched(&late.bytes(), Reason::NotOurs)
}
