//! Properties of rewriting, over random packets: whatever their options, payload and lengths, what
//! comes out is what a packet built and summed from scratch for the new tuple would be. And no
//! frame, however spoiled, makes the pipeline panic or touch what it passes.

mod cases;

use cases::case::{Rig, apply};
use cases::host::Host;
use cases::node::{CLIENT, Node, PODS, SERVERS, SNAT, SNAT_PORT, VIP};
use cases::packet::{ACK, CLIENT_MAC, FIN, L4, NODE_MAC, P, RST, SERVER_MAC, SYN, Sum};
use cases::scenes::{PORT, connected, connected_nat};
use cases::{case, sound, spoil};
use lb_common::Reason;
use lb_common::abi::{LINK_GENERIC, STATE_PARTIAL};
use lb_ebpf::host::HostFrame;
use lb_ebpf::pipeline;
use lb_ebpf::world::{Entry as _, Slot as _};
use proptest::prelude::*;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Local,
    Nat,
    NatReply,
    Leaving,
}

/// Anything that may be in a packet of a flow; its tuple is set later.
fn packets(udp: bool) -> impl Strategy<Value = P> {
    // Half of them without options: those take the hot path.
    let options = prop_oneof![Just(0), 0..=10usize];
    let ip = (2..=255u8, any::<u8>(), any::<u16>(), options);
    let tcp = (
        any::<[u32; 2]>(),
        any::<u8>(),
        any::<u16>(),
        prop::collection::vec(any::<[u8; 4]>(), 0..=10),
    );
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        prop::collection::vec(any::<u8>(), 1380..1441),
        prop::collection::vec(0xff..=0xffu8, 0..40),
    ];
    (ip, tcp, payload, 0..20usize).prop_map(move |(ip, tcp, payload, padding)| {
        let (ttl, tos, id, options) = ip;
        let ([seq, ack], flags, window, tcp_options) = tcp;
        let mut packet = P::udp((CLIENT, PORT), (VIP, 53))
            .ttl(ttl)
            .ip_options(options)
            .data(&payload)
            .padded(padding);
        (packet.tos, packet.id) = (tos, id);
        if !udp {
            packet.l4 = L4::Tcp {
                seq,
                ack,
                flags: flags & !(SYN | RST),
                window,
                options: tcp_options.concat(),
            };
        }
        packet
    })
}

fn sums() -> impl Strategy<Value = Sum> {
    prop_oneof![
        Just(Sum::Full),
        Just(Sum::Partial),
        Just(Sum::None),
        (1..0xffffu16).prop_map(Sum::Wrong),
    ]
}

/// A node with an open flow of either kind.
fn open(way: Way, udp: bool, flags: u8) -> Host {
    let nat = way == Way::Nat || way == Way::NatReply;
    let node = if nat { Node::nat() } else { Node::local() }.flags(flags);
    let mut rig = Host::new(&node);
    if udp {
        let question = P::udp((CLIENT, PORT), (VIP, 53));
        rig.ingress(&question.bytes());
        if nat {
            let answer = P::udp((SERVERS[0], 5353), (SNAT, SNAT_PORT)).macs(NODE_MAC, SERVER_MAC);
            rig.ingress(&answer.bytes());
        } else {
            rig.egress(&P::udp((PODS[0], 5353), (CLIENT, PORT)).bytes(), false);
        }
        return rig;
    }
    let case = if nat {
        connected_nat("", node)
    } else {
        connected("", node)
    };
    for step in &case.steps {
        apply(&mut rig, step);
    }
    rig
}

/// All that the hot path may write, in order.
fn flows(rig: &Host) -> Vec<String> {
    let entries = rig.0.flows.entries().into_iter();
    let mut flows: Vec<_> = entries.map(|entry| format!("{entry:?}")).collect();
    flows.sort();
    flows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_comes_out_is_as_if_built_anew(
        (udp, packet) in any::<bool>().prop_flat_map(|udp| (Just(udp), packets(udp))),
        sum in sums(),
        way in prop::sample::select(vec![Way::Local, Way::Nat, Way::NatReply, Way::Leaving]),
        flags in 0..4u8,
    ) {
        let ports = if udp { (53, 5353) } else { (80, 8080) };
        let (vip, pod, server) = ((VIP, ports.0), (PODS[0], ports.1), (SERVERS[0], ports.1));
        let client = (CLIENT, PORT);
        // Links without flags carry no unfinished checksums, and TCP always has one.
        let sum = match sum {
            Sum::Partial if flags == 0 && way != Way::Leaving => Sum::Full,
            Sum::None if !udp => Sum::Full,
            Sum::Full | Sum::Partial | Sum::None | Sum::Wrong(_) => sum,
        };
        let packet = packet.sum(sum);
        let ttl = packet.ttl - 1;
        let finished = sum == Sum::Partial && flags & LINK_GENERIC == 0;
        let sent = |packet: P| if finished { packet.sum(Sum::Full) } else { packet };
        let (input, want) = match way {
            Way::Local => (packet.clone(), packet.to(pod.0, pod.1)),
            Way::Nat => (
                packet.clone(),
                sent(packet)
                    .from(SNAT, SNAT_PORT)
                    .to(server.0, server.1)
                    .macs(SERVER_MAC, NODE_MAC)
                    .ttl(ttl),
            ),
            Way::NatReply => (
                packet
                    .clone()
                    .from(server.0, server.1)
                    .to(SNAT, SNAT_PORT)
                    .macs(NODE_MAC, SERVER_MAC),
                sent(packet)
                    .to(client.0, client.1)
                    .macs(CLIENT_MAC, NODE_MAC)
                    .ttl(ttl),
            ),
            Way::Leaving => (
                packet.clone().from(pod.0, pod.1).to(client.0, client.1),
                packet.to(client.0, client.1),
            ),
        };
        let (mut input, want) = match way {
            Way::Local | Way::Nat => (input.from(client.0, client.1).to(vip.0, vip.1), want),
            Way::NatReply | Way::Leaving => (input, want.from(vip.0, vip.1)),
        };
        if way == Way::Leaving {
            input = input.macs(CLIENT_MAC, NODE_MAC);
        }
        let want = if way == Way::Leaving { want.macs(CLIENT_MAC, NODE_MAC) } else { want };
        // Once in 2^16 a field says nothing about its kind, and damage makes zero of UDP's.
        let field = |sum| input.clone().sum(sum).checksum();
        let partial = field(Sum::Partial);
        prop_assume!(sum == Sum::Partial || field(sum) != partial || field(Sum::Full) == partial);
        prop_assume!(sum != Sum::Partial || field(Sum::Full) != partial);
        prop_assume!(!matches!(sum, Sum::Wrong(_)) || field(sum) != 0 && want.checksum() != 0);

        let mut rig = open(way, udp, flags);
        let bytes = input.bytes();
        let ran = if way == Way::Leaving {
            rig.egress(&bytes, sum == Sum::Partial)
        } else {
            rig.ingress(&bytes)
        };
        let reason = match way {
            Way::Local => Reason::FlowLocal,
            Way::Nat => Reason::FlowNat,
            Way::NatReply => Reason::ReplyNat,
            Way::Leaving => Reason::ReplyLocal,
        };
        prop_assert_eq!(ran.reason, reason);
        prop_assert_eq!(&ran.frame, &want.bytes());
        sound::check(&ran.frame, want.sum);
    }

    #[test]
    fn the_hot_path_does_what_a_closer_look_would(
        (udp, packet) in any::<bool>().prop_flat_map(|udp| (Just(udp), packets(udp))),
        sum in sums(),
        way in prop::sample::select(vec![Way::Local, Way::Nat, Way::NatReply]),
        flags in 0..4u8,
        tcp_flags in prop_oneof![Just(ACK), any::<u8>()],
        state in prop_oneof![Just(0u8), Just(STATE_PARTIAL), any::<u8>()],
        later in any::<bool>(),
        ttl in 0..4u8,
    ) {
        let sum = if sum == Sum::None && !udp { Sum::Full } else { sum };
        let port = if udp { 53 } else { 80 };
        let server_port = if udp { 5353 } else { 8080 };
        let mut packet = match way {
            Way::NatReply => packet
                .from(SERVERS[0], server_port)
                .to(SNAT, SNAT_PORT)
                .macs(NODE_MAC, SERVER_MAC),
            Way::Local | Way::Nat | Way::Leaving => packet.to(VIP, port),
        }
        .sum(sum)
        .ttl(ttl);
        if let L4::Tcp { flags, .. } = &mut packet.l4 {
            *flags = tcp_flags;
        }
        let bytes = packet.bytes();
        let [hot, closer] = [(); 2].map(|()| {
            let rig = open(way, udp, flags);
            for (key, _) in rig.0.flows.entries() {
                let slot = (&rig.0.flows).find(&key).expect("an entry");
                slot.update(|flow| flow.state = state);
            }
            rig.0.advance(u64::from(later) << 31);
            rig
        });
        let before = flows(&hot);
        let (mut frame, mut other) = (HostFrame::new(&bytes), HostFrame::new(&bytes));
        if let Ok(reason) = pipeline::at_once(&mut frame, &hot.0) {
            prop_assert_eq!(Some(reason), pipeline::established(&mut other, &closer.0));
            prop_assert_eq!(flows(&hot), flows(&closer));
            prop_assert_eq!(hot.0.redirected.get(), closer.0.redirected.get());
        } else {
            let special = tcp_flags & (FIN | SYN | RST) != 0 && !udp;
            let plain = packet.ip_options.is_empty() && sum == Sum::Full && state == 0;
            let known = packet.clone().sum(Sum::Partial).checksum() != packet.checksum();
            prop_assert!(special || !plain || !known || udp && later);
            prop_assert_eq!(flows(&hot), before);
        }
        prop_assert_eq!(frame.bytes(), other.bytes());
    }

    #[test]
    fn refusals_are_sound_whatever_is_refused(
        (udp, packet) in any::<bool>().prop_flat_map(|udp| (Just(udp), packets(udp))),
        partial in any::<bool>(),
        flags in 0..3u8,
    ) {
        let mut rig = Host::new(&Node::local().flags(flags));
        let sum = if partial && flags != 0 { Sum::Partial } else { Sum::Full };
        let packet = packet.to(VIP, 9).sum(sum);
        prop_assume!(packet.clone().sum(Sum::Full).checksum() != packet.clone().sum(Sum::Partial).checksum());
        let options = !packet.ip_options.is_empty();
        let ran = rig.ingress(&packet.bytes());
        let generic = flags & LINK_GENERIC != 0 && sum == Sum::Partial;
        if options && (udp || generic) {
            prop_assert_eq!(ran.reason, Reason::CannotResize);
        } else if udp {
            prop_assert_eq!(ran.reason, Reason::RefusedUdpPort);
            if !generic {
                sound::check(&ran.frame, Sum::Full);
            }
        } else {
            prop_assert_eq!(ran.reason, Reason::RefusedPort);
            sound::check(&ran.frame, if generic { Sum::Partial } else { Sum::Full });
        }
    }

    #[test]
    fn noise_is_passed_untouched_or_dropped(frame in prop::collection::vec(any::<u8>(), 0..120)) {
        let mut rig = Host::new(&Node::local());
        let ran = rig.ingress(&frame);
        spoil::check(&frame, &ran);
    }
}

/// Valid frames with some bytes changed, at every point of every case.
#[test]
fn spoiled_frames_are_passed_untouched_or_handled() {
    let mut random = spoil::Random(1);
    for case in cases::all() {
        let mut rig = Host::new(&case.node);
        for step in &case.steps {
            if let case::Step::Ingress(frame, ..) = step {
                for _ in 0..200 {
                    let spoiled = spoil::spoil(&mut random, frame);
                    spoil::check(&spoiled, &rig.ingress(&spoiled));
                }
            }
            if let case::Step::Egress(frame, partial, ..) = step {
                for _ in 0..200 {
                    let spoiled = spoil::spoil(&mut random, frame);
                    spoil::check(&spoiled, &rig.egress(&spoiled, *partial));
                }
            }
            if !matches!(step, case::Step::Tables(_)) {
                apply(&mut rig, step);
            }
        }
    }
}
