//! The network itself: who reaches whom, how it comes and how it goes.

mod support;

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::drive::Server;
use lab::load::fetch;
use lab::raw::{self, Arp, RawSocket};
use lab::{Lab, Ns, Offloads, PodLinks, Proc};
use nix::sys::signal::Signal;
use support::lab_or_skip;

fn get(ns: &Ns, addr: Ipv4Addr, path: &str) -> anyhow::Result<String> {
    let options = fetch::Options {
        timeout: 2,
        ..fetch::Options::url(format!("http://{addr}:8080{path}"))
    };
    ns.enter(|| fetch::blocking(&options))?
}

#[test]
fn clients_reach_pods_by_routing_and_servers_directly() {
    let Some(builder) = lab_or_skip("clients_reach_pods") else {
        return;
    };
    let started = Instant::now();
    let lab = builder
        .pods(6)
        .lan_servers(2)
        .pod_routes(true)
        .build()
        .expect("lab");
    eprintln!(
        "a lab of 1 node, 6 pods, 2 servers, 1 client came up in {:?}",
        started.elapsed()
    );
    let pod = Server::named("pod")
        .start(lab.pod(5).netns())
        .expect("server in a pod");
    let server = Server::named("lan")
        .start(lab.lan_server(1).netns())
        .expect("server on the LAN");
    let client = lab.client(0);
    let seen = get(client.netns(), lab.pod(5).addr(), "/").expect("the pod answers");
    assert!(
        seen.starts_with(&format!("pod {}:", client.addr())),
        "{seen}"
    );
    let seen = get(client.netns(), lab.lan_server(1).addr(), "/").expect("the LAN server answers");
    assert!(
        seen.starts_with(&format!("lan {}:", client.addr())),
        "{seen}"
    );
    assert_eq!(client.addrs().len(), 16);
    let started = Instant::now();
    drop((pod, server, lab));
    eprintln!("and went in {:?}", started.elapsed());
}

#[test]
fn every_shape_carries_a_download_unharmed() {
    let Some(builder) = lab_or_skip("every_shape") else {
        return;
    };
    let shapes = [
        builder.clone().offloads(Offloads::TxOff),
        builder.clone().lan_port_tso(false),
        builder.clone().lan_port_xdp_pass(false),
        builder
            .clone()
            .pod_links(PodLinks::Routed)
            .rp_filter(lab::RpFilter::Strict),
        builder.clone().mtu(9000).ipv6(true),
        builder.nodes(2).pods(1).client_namespaces(2).clients(3),
    ];
    for shape in shapes {
        let name = format!("{shape:?}");
        let lab = shape
            .pod_routes(true)
            .build()
            .unwrap_or_else(|error| panic!("{name}: {error:#}"));
        let pod = lab.pods().last().expect("a pod");
        let _server = Server::named("x").start(pod.netns()).expect("server");
        let client = lab.clients().last().expect("a client").netns();
        let url = format!("http://{}:8080/bytes/3000001?seed=9", pod.addr());
        let options = fetch::Options {
            sha: true,
            ..fetch::Options::url(url)
        };
        let sha = client
            .enter(|| fetch::blocking(&options))
            .expect("in")
            .unwrap_or_else(|e| panic!("{name}: {e:#}"));
        assert_eq!(sha, lab::payload::sha256(9, 3_000_001), "{name}");
    }
}

#[test]
fn nodes_reach_each_others_pods() {
    let Some(builder) = lab_or_skip("nodes_reach_each_others_pods") else {
        return;
    };
    let lab = builder.nodes(3).pods(1).build().expect("lab");
    let _server = Server::named("far")
        .start(lab.pod(2).netns())
        .expect("server");
    let seen = get(lab.pod(0).netns(), lab.pod(2).addr(), "/").expect("pod to pod across nodes");
    assert!(
        seen.starts_with(&format!("far {}:", lab.pod(0).addr())),
        "{seen}"
    );
}

#[test]
fn pods_come_and_go_and_their_addresses_come_back() {
    let Some(builder) = lab_or_skip("pods_come_and_go") else {
        return;
    };
    let mut lab = builder.pods(1).pod_routes(true).build().expect("lab");
    let addr = lab.pod(0).addr();
    let mut server = Server::named("old")
        .start(lab.pod(0).netns())
        .expect("server");
    get(lab.client(0).netns(), addr, "/").expect("the old pod answers");

    let (old, link) = (lab.pod(0).netns().clone(), lab.pod(0).host_link());
    lab.kill_pod(0).expect("killed");
    assert!(!old.exists() && !lab.pod(0).is_alive());
    server
        .wait_timeout(Duration::from_secs(1))
        .expect("its process died with it");
    assert!(
        lab.node(0)
            .netns()
            .run("ip", &["link", "show", &link])
            .is_err(),
        "its link is gone at once"
    );
    assert!(lab.kill_pod(0).is_err(), "no pod dies twice");

    let other = lab.add_pod(0).expect("another pod");
    assert_ne!(lab.pod(other).addr(), addr, "addresses come back last");
    assert!(
        lab.add_pod_at(0, lab.pod(other).addr()).is_err(),
        "never two pods on one address"
    );
    let again = lab
        .add_pod_at(0, addr)
        .expect("a new pod under the old address");
    let _server = Server::named("new")
        .start(lab.pod(again).netns())
        .expect("server");
    // The node may ask the dead pod's MAC first, until its neighbour entry is found to be stale.
    lab.node(0)
        .netns()
        .run("ip", &["neigh", "flush", "dev", "cni0"])
        .expect("flush");
    assert!(
        get(lab.client(0).netns(), addr, "/")
            .expect("the new pod answers")
            .starts_with("new ")
    );
}

#[test]
fn frames_go_raw_in_both_directions() {
    let Some(builder) = lab_or_skip("frames_go_raw") else {
        return;
    };
    let lab = builder.pods(0).build().expect("lab");
    let (client, node) = (lab.client(0), lab.node(0));
    let mac = [0x02, 0, 0, 0, 0, 1];
    let answer = client.netns().enter(|| {
        let socket = RawSocket::open("eth0").expect("socket");
        socket
            .send(&raw::arp(&Arp::question(mac, client.addr(), node.addr())))
            .expect("sent");
        socket
            .receive_where(Duration::from_secs(1), |frame| {
                frame[12..14] == [8, 6] && frame[21] == 2
            })
            .expect("read")
    });
    let answer = answer.expect("in").expect("the node answers ARP");
    assert_eq!(answer[22..28], node.mac(), "with its own address");

    let seen = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            node.netns().enter(|| {
                let socket = RawSocket::open(node.uplink()).expect("socket");
                let wait = Duration::from_secs(2);
                let syn =
                    |frame: &[u8]| frame.len() >= 54 && frame[36..38] == [0, 99] && frame[47] == 2;
                socket.receive_where(wait, syn).expect("read")
            })
        });
        std::thread::sleep(Duration::from_millis(50));
        let to = SocketAddrV4::new(Lab::vip(0), 99);
        let flood = raw::flood_syn(client.netns(), "eth0", node.mac(), to, 5000).expect("flood");
        eprintln!("{} frames in {:?}", flood.sent, flood.took);
        assert_eq!(flood.sent, 5000);
        let pairs =
            raw::flood_syn_ack_pairs(client.netns(), "eth0", node.mac(), to, 100).expect("flood");
        assert_eq!(pairs.sent, 200);
        watch.join().expect("watched").expect("in")
    });
    let seen = seen.expect("a forged SYN arrives");
    assert!(
        seen[26] == 198 && seen[27] & 0xfe == 18,
        "from the range for benchmarks"
    );
}

#[test]
fn the_uplinks_peer_passes_everything_in_native_mode() {
    let Some(builder) = lab_or_skip("the_uplinks_peer") else {
        return;
    };
    let lab = builder.clone().build().expect("lab");
    let port = lab.node(0).lan_port_ifname();
    let shown = lab
        .lan_netns()
        .run("ip", &["-d", "link", "show", port])
        .expect("ip");
    assert!(lab.node(0).lan_port_has_xdp());
    assert!(
        shown.contains(" xdp ") && shown.contains("lab_pass"),
        "native, not xdpgeneric: {shown}"
    );
    let bare = builder.lan_port_xdp_pass(false).build().expect("lab");
    let shown = bare
        .lan_netns()
        .run("ip", &["link", "show", bare.node(0).lan_port_ifname()])
        .expect("ip");
    assert!(
        !bare.node(0).lan_port_has_xdp() && !shown.contains("xdp"),
        "{shown}"
    );
}

/// What arrives at the node's uplink while `work` runs elsewhere: frames that `wanted` accepts, within a second.
fn frames_at_uplink(lab: &Lab, wanted: fn(&[u8]) -> bool, work: impl FnOnce()) -> Option<Vec<u8>> {
    let socket = lab.node(0).netns().enter(|| RawSocket::open("eth0"));
    let socket = socket.expect("in").expect("socket");
    work();
    socket
        .receive_where(Duration::from_secs(1), wanted)
        .expect("read")
}

#[test]
fn checksums_are_partial_by_default_and_complete_with_tx_off() {
    let Some(builder) = lab_or_skip("checksums_are_partial") else {
        return;
    };
    for (offloads, complete) in [(Offloads::Default, false), (Offloads::TxOff, true)] {
        let lab = builder.clone().offloads(offloads).build().expect("lab");
        let is_udp = |frame: &[u8]| frame.len() >= 42 && frame[12..14] == [8, 0] && frame[23] == 17;
        let to = SocketAddrV4::new(lab.node(0).addr(), 9);
        let send = || {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("socket");
            socket.send_to(b"kind", to).expect("sent");
        };
        let frame = frames_at_uplink(&lab, is_udp, || {
            lab.client(0).netns().enter(send).expect("in");
        });
        let frame = frame.expect("the datagram arrives");
        let pseudo = [&frame[26..34], &[0, 17], &frame[38..40]].concat();
        let sum = raw::checksum(&[pseudo.as_slice(), &frame[34..]].concat());
        assert_eq!(sum == 0, complete, "{offloads:?}");
    }
}

#[test]
fn super_packets_reach_the_uplink_unless_tso_is_off() {
    let Some(builder) = lab_or_skip("super_packets") else {
        return;
    };
    for tso in [true, false] {
        let lab = builder
            .clone()
            .lan_servers(1)
            .pod_routes(true)
            .lan_port_tso(tso);
        let lab = lab.build().expect("lab");
        let _server = Server::named("s")
            .start(lab.lan_server(0).netns())
            .expect("server");
        let path = "/bytes/2000000";
        let large = frames_at_uplink(
            &lab,
            |frame| frame.len() > 1514,
            || {
                get(lab.pod(0).netns(), lab.lan_server(0).addr(), path).expect("download");
            },
        );
        assert_eq!(large.is_some(), tso);
    }
}

#[test]
fn two_labs_at_once_and_nothing_left_of_either() {
    let Some(builder) = lab_or_skip("two_labs_at_once") else {
        return;
    };
    let labs: Vec<Lab> = std::thread::scope(|scope| {
        let builds: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| builder.clone().pod_routes(true).build()))
            .collect();
        builds
            .into_iter()
            .map(|build| build.join().expect("no panic").expect("lab"))
            .collect()
    });
    let mut pids = Vec::new();
    let mut servers = Vec::new();
    let mut strays = Vec::new();
    for (i, lab) in labs.iter().enumerate() {
        let server = Server::named(format!("lab{i}"))
            .start(lab.pod(0).netns())
            .expect("server");
        pids.push(server.id());
        servers.push(server);
        // Nobody guards this one: the lab itself must find it.
        let mut stray = Command::new("sleep");
        stray.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
        let child = lab
            .pod(1)
            .netns()
            .enter(move || stray.spawn())
            .expect("in")
            .expect("started");
        strays.push(child);
    }
    for (i, lab) in labs.iter().enumerate() {
        let seen = get(lab.client(0).netns(), lab.pod(0).addr(), "/").expect("answers");
        assert!(
            seen.starts_with(&format!("lab{i} ")),
            "the same addresses, two worlds: {seen}"
        );
    }
    let ids: Vec<String> = labs.iter().map(|lab| lab.id().to_owned()).collect();
    drop(labs);
    let left = std::fs::read_dir("/run/netns")
        .expect("netns")
        .flatten()
        .any(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            ids.iter().any(|id| name.starts_with(&format!("{id}-")))
        });
    assert!(!left, "a namespace is left");
    drop(servers);
    for mut stray in strays {
        let status = stray
            .try_wait()
            .expect("waited")
            .expect("ended before the lab was gone");
        assert!(lab::proc::ended_by(status, Signal::SIGKILL));
    }
    for pid in pids {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(
            state.is_empty() || state.contains(") Z "),
            "process {pid} is left: {state}"
        );
    }
}

/// `lab up` as a child: its id, once it is up.
fn lab_up() -> (Proc, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(["up", "--pods", "1"]).stdout(Stdio::piped());
    let mut owner = Proc::spawn(&mut command).expect("started");
    let lines = BufReader::new(owner.take_stdout().expect("piped")).lines();
    let id = lines
        .map(|line| line.expect("read"))
        .find_map(|line| line.strip_prefix("ready ").map(str::to_owned))
        .expect("up");
    assert!(Ns::named(format!("{id}-lan")).exists() && Ns::named(format!("{id}-p0")).exists());
    (owner, id)
}

fn anything_of(id: &str) -> bool {
    let entries = std::fs::read_dir("/run/netns").expect("netns").flatten();
    entries
        .into_iter()
        .any(|entry| entry.file_name().to_string_lossy().starts_with(id))
}

#[test]
fn ctrl_c_takes_the_lab_down() {
    let Some(_) = lab_or_skip("ctrl_c") else {
        return;
    };
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let (mut owner, id) = lab_up();
        owner.signal(signal).expect("sent");
        let status = owner.wait_timeout(Duration::from_secs(2)).expect("ends");
        assert_eq!(status.code(), Some(code));
        assert!(!anything_of(&id), "{signal} left something");
    }
}

#[test]
fn what_a_killed_owner_leaves_is_found_by_the_next_lab() {
    let Some(builder) = lab_or_skip("what_a_killed_owner_leaves") else {
        return;
    };
    let (mut owner, id) = lab_up();
    let mut command = Command::new("sleep");
    command.arg("1000");
    let mut left = Ns::named(format!("{id}-p0"))
        .spawn(command)
        .expect("started");
    owner.kill().expect("SIGKILL");
    assert!(anything_of(&id), "nobody was there to clean up");
    let _next = builder.pods(0).build().expect("the next lab");
    assert!(!anything_of(&id));
    left.wait_timeout(Duration::from_secs(1))
        .expect("the process is gone as well");
}

#[test]
fn impossible_labs_are_refused_with_a_reason() {
    let Some(builder) = lab_or_skip("impossible_labs") else {
        return;
    };
    for (shape, want) in [
        (builder.clone().nodes(0), "needs a node"),
        (builder.clone().pods(300), "pods on a node"),
        (builder.clone().clients(200), "client addresses"),
        (builder.clone().clients(0), "needs a client"),
        (builder.mtu(500), "MTU 500"),
    ] {
        let error = shape.build().expect_err("refused").to_string();
        assert!(error.contains(want), "{error}");
    }
}
