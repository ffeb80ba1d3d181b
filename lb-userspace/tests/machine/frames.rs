//! Odd frames on the wire, at a real agent: counted, and traffic goes on.

use std::net::Ipv4Addr;
use std::time::Duration;

use lab::raw::{Arp, RawSocket, TcpFrame, arp, checksum, tcp, tcp_flags};
use lab::report::Traffic;
use lab::stage::Stage;
use lab::{Lab, Ns};

use crate::{builder, stage, status, until};

fn sender(stage: &Stage) -> (Ns, Ipv4Addr) {
    let client = stage.lab.client(0);
    (client.netns().clone(), client.addr())
}

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
    let (client, _) = sender(&stage);
    let mac = [2, 0, 0, 0, 0, 0x77];
    let claim = arp(&Arp::gratuitous(mac, Lab::vip(0)));
    send(&client, "eth0", &[claim.clone(), claim.clone()]);
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

#[test]
#[ignore = "root"]
fn odd_frames_are_counted_and_traffic_goes_on() {
    let Some(builder) = builder("odd_frames") else {
        return;
    };
    let stage = stage("odd", builder.pods(2), &["--xdp-mode=native"]);
    let (_, address) = sender(&stage);
    // Straight into the node's link: the lab's switch forwards no broken headers.
    let (lan, port) = (stage.lab.lan_netns(), stage.lab.node(0).lan_port_ifname());
    let node = stage.lab.node(0).mac();
    let good = tcp(&TcpFrame {
        src_mac: [2, 0, 0, 0, 0, 1],
        dst_mac: node,
        from: std::net::SocketAddrV4::new(address, 40_000),
        to: stage.vip,
        seq: 1,
        ack: 0,
        flags: tcp_flags::SYN,
        window: 1000,
        options: Vec::new(),
        payload: Vec::new(),
    });
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let odd = [
        ("bad_header_length", with(&|frame| frame[14] = 0x44)),
        ("bad_header_length", with(&|frame| frame[14] = 0x4f)),
        (
            "bad_total_length",
            with(&|frame| frame[16..18].copy_from_slice(&2000u16.to_be_bytes())),
        ),
        ("fragment", with(&|frame| frame[20] = 0x20)),
        ("fragment", with(&|frame| frame[21] = 0x10)),
        ("bad_data_offset", with(&|frame| frame[46] = 0x40)),
    ];
    for (reason, frame) in odd {
        let before = stage.counted(reason).expect("counted");
        send(lan, port, &[frame]);
        until(reason, || stage.counted(reason).expect("counted") > before);
    }
    let mut tagged = good[..12].to_vec();
    tagged.extend([0x81, 0, 0, 5]);
    tagged.extend(&good[12..]);
    let mut short_arp = arp(&Arp::question([2, 0, 0, 0, 0, 1], address, Lab::vip(0)));
    short_arp[18] = 5;
    send(lan, port, &[tagged, short_arp]);
    let report = stage
        .run(&stage.options(&Traffic::ALL, 100, 1.0))
        .expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
}
