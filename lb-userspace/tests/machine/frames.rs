//! Odd frames on the wire, at a real agent: counted, and traffic goes on.

use std::net::SocketAddrV4;
use std::time::Duration;

use lab::raw::{Arp, RawSocket, TcpFrame, arp, checksum, icmp, tcp, tcp_flags};
use lab::report::Traffic;
use lab::stage::Stage;
use lab::{Lab, Ns};

use crate::{builder, stage, status, traffic_goes_on, until};

fn send(ns: &Ns, interface: &str, frames: &[Vec<u8>]) {
    ns.enter(|| {
        let socket = RawSocket::open(interface).expect("raw socket");
        for frame in frames {
            socket.send(frame).expect("sent");
        }
    })
    .expect("enters");
}

#[test]
#[ignore = "root"]
fn somebody_elses_claim_to_a_vip_is_shown() {
    let Some(builder) = builder("arp_conflict") else {
        return;
    };
    let stage = stage("conflict", builder.pods(1), &[]);
    let client = stage.lab.client(0).netns().clone();
    let mac = [2, 0, 0, 0, 0, 0x77];
    let claim = Arp::gratuitous(mac, Lab::vip(0));
    let reply = Arp {
        operation: 2,
        target_mac: mac,
        ..claim
    };
    let [claim, reply] = [claim, reply].map(|claim| arp(&claim));
    send(&client, "eth0", &[claim.clone(), reply]);
    until("the conflict is shown", || {
        let status = status(&stage).to_string();
        status.contains("02:00:00:00:00:77") && stage.counted("arp_conflict").expect("counted") >= 2
    });
    until("it is logged", || {
        stage.agent.log().contains("02:00:00:00:00:77")
    });
    send(&client, "eth0", &[claim]);
    std::thread::sleep(Duration::from_millis(600));
    let said = stage.agent.log().matches("02:00:00:00:00:77").count();
    assert_eq!(said, 1, "once a minute: {}", stage.agent.log());
}

/// Whose frames they are.
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Odd frames and what becomes of each: most are thrown away, the rest is somebody else's.
fn odd_frames(stage: &Stage) -> Vec<(&'static str, Vec<u8>)> {
    let client = stage.lab.client(0).addr();
    let node = stage.lab.node(0).mac();
    let mac = SENDER;
    let good = tcp(&TcpFrame {
        src_mac: mac,
        dst_mac: node,
        from: SocketAddrV4::new(client, 40_000),
        to: stage.vip,
        seq: 1,
        ack: 0,
        flags: tcp_flags::SYN,
        window: 1000,
        options: Vec::new(),
        payload: Vec::new(),
    });
    // The checksum of the IP header is right in each, so that nothing else is the reason.
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
    let question = arp(&Arp::question(mac, client, *stage.vip.ip()));
    let sized = |hardware: u8, protocol: u8| {
        let mut frame = question.clone();
        frame[18..20].copy_from_slice(&[hardware, protocol]);
        frame
    };
    // What a router would say of a reply of ours, with the reply's first bytes.
    let quoted = tcp(&TcpFrame {
        src_mac: node,
        dst_mac: mac,
        from: stage.vip,
        to: SocketAddrV4::new(client, 40_000),
        seq: 1,
        ack: 1,
        flags: tcp_flags::ACK,
        window: 1000,
        options: Vec::new(),
        payload: Vec::new(),
    });
    let body = [&[0; 4], &quoted[14..42]].concat();
    let error = |kind, code| icmp(mac, node, [client, *stage.vip.ip()], [kind, code], &body);
    vec![
        ("bad_header_length", with(&|frame| frame[14] = 0x44)),
        ("bad_header_length", with(&|frame| frame[14] = 0x4f)),
        (
            "bad_total_length",
            with(&|frame| frame[16..18].copy_from_slice(&2000u16.to_be_bytes())),
        ),
        (
            "bad_total_length",
            with(&|frame| frame[16..18].copy_from_slice(&19u16.to_be_bytes())),
        ),
        ("truncated_transport", with(&|frame| frame[17] = 30)),
        ("fragment", with(&|frame| frame[20] = 0x20)),
        ("fragment", with(&|frame| frame[21] = 0x10)),
        ("bad_data_offset", with(&|frame| frame[46] = 0x40)),
        ("bad_data_offset", with(&|frame| frame[46] = 0xf0)),
        ("unsupported_protocol", with(&|frame| frame[23] = 47)),
        ("bad_source", with(&|frame| frame[26] = 224)),
        ("icmp", error(3, 1)),
        ("icmp", error(3, 4)),
        ("icmp", error(11, 0)),
        ("other_protocol", tagged(&good)),
        ("other_protocol", tagged(&question)),
        ("other_arp", sized(8, 4)),
        ("other_arp", sized(6, 16)),
        ("too_short", question[..30].to_vec()),
    ]
}

fn odd_frames_are_counted(mode: &str) {
    let Some(builder) = builder("odd_frames") else {
        return;
    };
    let stage = stage(mode, builder.pods(2), &[&format!("--xdp-mode={mode}")]);
    // Straight into the node's link: the lab's switch forwards no broken headers.
    let (lan, port) = (stage.lab.lan_netns(), stage.lab.node(0).lan_port_ifname());
    let held = stage
        .load(&stage.options(&[Traffic::Keepalive], 1, 3.0))
        .expect("load");
    let answers = lan
        .enter(|| RawSocket::open(port))
        .expect("enters")
        .expect("socket");
    for (reason, frame) in odd_frames(&stage) {
        let before = stage.counted(reason).expect("counted");
        send(lan, port, &[frame]);
        until(reason, || stage.counted(reason).expect("counted") > before);
    }
    let answer = |limit| {
        let to_us = |frame: &[u8]| frame.starts_with(&SENDER);
        answers.receive_where(limit, to_us).expect("reads")
    };
    assert_eq!(answer(Duration::from_millis(100)), None);
    let client = stage.lab.client(0).addr();
    let question = arp(&Arp::question(SENDER, client, *stage.vip.ip()));
    send(lan, port, &[question]);
    assert!(
        answer(Duration::from_secs(5)).is_some(),
        "who asks well is answered"
    );
    let report = held.finish().expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
    traffic_goes_on(&stage);
}

#[test]
#[ignore = "root"]
fn odd_frames_are_counted_and_traffic_goes_on_native() {
    odd_frames_are_counted("native");
}

#[test]
#[ignore = "root"]
fn odd_frames_are_counted_and_traffic_goes_on_generic() {
    odd_frames_are_counted("generic");
}
