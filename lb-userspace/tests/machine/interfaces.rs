//! Interfaces that appear late, vanish, come back, or carry somebody else's program.

use std::net::Ipv4Addr;

use lab::Ns;
use lab::agent::Agent;
use lab::load::Sources;
use lab::manifests::Manifests;
use lab::report::Traffic;
use lab::stage::Stage;
use lab::xdp_pass::XdpPass;

use crate::{binary, builder, stage, status, traffic_goes_on, until};

fn interface(stage: &Stage, name: &str) -> serde_json::Value {
    let status = status(stage);
    let rows = status["interfaces"].as_array().expect("interfaces").clone();
    rows.into_iter()
        .find(|row| row["name"] == name)
        .unwrap_or_default()
}

#[test]
#[ignore = "root"]
fn an_interface_may_come_late_vanish_and_come_back() {
    let Some(builder) = builder("late_interface") else {
        return;
    };
    let lab = builder.pods(1).build().expect("lab");
    let manifests = Manifests::create("late").expect("folder");
    let vip = std::net::SocketAddrV4::new(lab::Lab::vip(0), 80);
    manifests.write(vip, 8080, &[]).expect("written");
    let node = lab.node(0).netns().clone();
    let mut agent =
        Agent::prepare(&node, binary(), manifests.dir(), &["--interface", "late0"]).expect("agent");
    agent.spawn().expect("starts");
    let attached = |agent: &Agent| {
        agent
            .get("/readyz")
            .is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    };
    until("it says that late0 is missing", || {
        agent
            .get("/readyz")
            .is_ok_and(|answer| answer.contains("late0"))
    });
    let mut index = String::new();
    for round in 0..2 {
        node.run(
            "ip",
            &[
                "link", "add", "late0", "type", "veth", "peer", "name", "late1",
            ],
        )
        .expect("added");
        node.run("ip", &["link", "set", "late0", "up"]).expect("up");
        until("late0 is attached to", || attached(&agent));
        let now = node
            .run("ip", &["-o", "link", "show", "late0"])
            .expect("ip");
        let shown = agent.command(&["status"]).expect("status");
        assert!(shown.contains("late0"), "{shown}");
        if round == 1 {
            assert_ne!(now, index, "another interface of that name");
        }
        index = now;
        node.run("ip", &["link", "del", "late0"]).expect("deleted");
        until("it notices that late0 has gone", || !attached(&agent));
    }
}

/// Adds a veth pair to a node; both ends are up.
fn add_pair(node: &Ns, name: &str, peer: &str) {
    let pair = ["link", "add", name, "type", "veth", "peer", "name", peer];
    node.run("ip", &pair).expect("added");
    for end in [name, peer] {
        node.run("ip", &["link", "set", end, "up"]).expect("up");
    }
}

/// Another agent takes over with these further flags; what it waits for is up to the test.
fn restart_with(stage: &mut Stage, flags: &[&str]) {
    stage.agent.terminate().expect("ends");
    stage.agent.set_more(flags);
    stage.agent.spawn().expect("starts");
    until("it answers", || stage.agent.get("/readyz").is_ok());
}

fn readiness(stage: &Stage) -> String {
    stage.agent.get("/readyz").expect("answers")
}

fn is_ready(stage: &Stage) -> bool {
    readiness(stage).starts_with("HTTP/1.1 200")
}

#[test]
#[ignore = "root"]
fn the_program_of_somebody_else_is_named_stays_and_the_rest_goes_on() {
    let Some(builder) = builder("foreign_program") else {
        return;
    };
    let mut stage = stage("foreign", builder.pods(1), &[]);
    let node = stage.lab.node(0).netns().clone();
    add_pair(&node, "side0", "side1");
    let theirs = node.enter(|| XdpPass::attach("side0"));
    let theirs = theirs.expect("enters").expect("attached");
    restart_with(&mut stage, &["--interface", "side0"]);
    until("it names the program in its way", || {
        stage.agent.get("/readyz").is_ok_and(|answer| {
            answer.starts_with("HTTP/1.1 503")
                && answer.contains("side0 has an XDP program of somebody else: id ")
                && answer.contains("named lab_pass")
        })
    });
    assert!(
        interface(&stage, "side0")["notes"]
            .to_string()
            .contains("lab_pass")
    );
    let log = stage.agent.log();
    assert_eq!(log.matches("lab_pass").count(), 1, "said once: {log}");
    traffic_goes_on(&stage);
    let link = node.run("ip", &["link", "show", "side0"]).expect("ip");
    assert!(link.contains("xdp"), "{link}");
    drop(theirs);
    until("it takes the place once that is free", || is_ready(&stage));
    assert_eq!(interface(&stage, "side0")["mode"], "generic");
    traffic_goes_on(&stage);
}

#[test]
#[ignore = "root"]
fn an_interface_without_native_xdp_is_generic_if_that_is_allowed() {
    let Some(builder) = builder("no_native") else {
        return;
    };
    // A bridge has no native XDP. The uplink's mode is asked for together with it.
    let mut stage = stage("no-native", builder.pods(1), &[]);
    let node = stage.lab.node(0).netns().clone();
    let bridge = ["link", "add", "plain0", "up", "type", "bridge"];
    node.run("ip", &bridge).expect("added");
    restart_with(&mut stage, &["--interface", "plain0", "--xdp-mode=native"]);
    until("it says that native XDP is refused", || {
        readiness(&stage).contains("plain0 refuses native XDP: ")
    });
    assert_eq!(interface(&stage, "eth0")["mode"], "native");
    let link = node.run("ip", &["link", "show", "plain0"]).expect("ip");
    assert!(!link.contains("xdp"), "{link}");
    traffic_goes_on(&stage);

    restart_with(&mut stage, &["--interface", "plain0", "--xdp-mode=auto"]);
    until("it is ready", || is_ready(&stage));
    let plain = interface(&stage, "plain0");
    assert_eq!(plain["mode"], "generic", "{plain}");
    assert!(
        plain["notes"].to_string().contains("refuses native XDP"),
        "{plain}"
    );
    traffic_goes_on(&stage);
}

#[test]
#[ignore = "root"]
fn what_somebody_takes_off_the_interface_comes_back() {
    let Some(builder) = builder("taken_off") else {
        return;
    };
    let stage = stage("taken-off", builder.pods(1), &[]);
    let node = stage.lab.node(0).netns();
    let links = stage.agent.pins().join("v1/links");
    let programs = || {
        let shown = interface(&stage, "eth0");
        [shown["xdp"].as_u64(), shown["egress"].as_u64()]
    };
    // By its tool, which leaves the pin, and by its pin.
    let before = programs();
    let pin = links.join("xdp-eth0").display().to_string();
    node.run("bpftool", &["link", "detach", "pinned", &pin])
        .expect("detached");
    until("it is attached again", || {
        let now = programs();
        is_ready(&stage) && now[0] != before[0] && now[0].is_some()
    });
    traffic_goes_on(&stage);
    std::fs::remove_file(links.join("tcx-eth0")).expect("unpinned");
    until("it is pinned again", || links.join("tcx-eth0").exists());
    traffic_goes_on(&stage);
}

#[test]
#[ignore = "root"]
fn an_interface_that_is_no_longer_asked_for_is_let_go() {
    let Some(builder) = builder("let_go") else {
        return;
    };
    let mut stage = stage("let-go", builder.pods(1), &[]);
    let node = stage.lab.node(0).netns().clone();
    add_pair(&node, "side0", "side1");
    restart_with(&mut stage, &["--interface", "side0"]);
    until("side0 is attached to", || is_ready(&stage));
    let has_xdp = || {
        let link = node.run("ip", &["link", "show", "side0"]).expect("ip");
        link.contains("xdp")
    };
    assert!(has_xdp());
    restart_with(&mut stage, &[]);
    until("it is ready", || is_ready(&stage));
    assert!(!has_xdp());
    assert!(!stage.agent.pins().join("v1/links/tcx-side0").exists());
    traffic_goes_on(&stage);
}

#[test]
#[ignore = "root"]
fn an_uplink_that_comes_back_as_another_interface_serves_again() {
    let Some(builder) = builder("uplink_back") else {
        return;
    };
    let stage = stage("uplink-back", builder.pods(2).lan_servers(1), &[]);
    let node = stage.lab.node(0);
    let (ns, lan, port) = (node.netns(), stage.lab.lan_netns(), node.lan_port_ifname());
    ns.sysctls(&[("ipv4/conf/default/send_redirects", "1")])
        .expect("as kernels come");
    ns.run("ip", &["link", "del", "eth0"]).expect("deleted");
    until("it notices", || readiness(&stage).contains("eth0"));
    let address = format!("{}/24", node.addr());
    let lan_name = lan.name();
    // Another hardware address as well: clients have to be told.
    let pair = [
        "link",
        "add",
        "eth0",
        "address",
        "02:00:c0:00:02:aa",
        "type",
        "veth",
        "peer",
        "name",
        port,
        "netns",
        lan_name,
    ];
    ns.run("ip", &pair).expect("added");
    lan.run("ip", &["link", "set", port, "master", "br0", "up"])
        .expect("up");
    ns.run("ip", &["addr", "add", &address, "dev", "eth0"])
        .expect("address");
    ns.run("ip", &["link", "set", "eth0", "up"]).expect("up");
    ns.run("ip", &["route", "add", "default", "via", "192.0.2.1"])
        .expect("route");
    until("eth0 is attached to", || is_ready(&stage));
    let mut options = stage.options(&Traffic::ALL, 100, 1.0);
    options.download_bytes = 500_000;
    let report = stage.run(&options).expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
    assert_eq!(report.servers.len(), 3, "{:?}", report.servers);
    // Another hardware address yet, as bonds give themselves.
    ns.run(
        "ip",
        &["link", "set", "eth0", "address", "02:00:c0:00:02:ab"],
    )
    .expect("changed");
    until("clients and servers are told", || {
        let client = stage.lab.client(0).netns();
        let neighbours = client.run("ip", &["neigh", "show", "192.0.2.64"]);
        neighbours.expect("ip").contains("02:00:c0:00:02:ab")
    });
    let report = stage.run(&options).expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
    let redirects = "/proc/sys/net/ipv4/conf/eth0/send_redirects";
    let redirects = ns.enter(|| std::fs::read_to_string(redirects));
    assert_eq!(redirects.expect("enters").expect("reads").trim(), "0");
}

/// A second network between client and node, by which the node reaches the rest of the world: what
/// comes in by the uplink goes out by another interface.
fn add_way_out(stage: &Stage) -> Ipv4Addr {
    let far = Ipv4Addr::new(203, 0, 113, 9);
    let (node, client) = (stage.lab.node(0).netns(), stage.lab.client(0).netns());
    let run = |ns: &Ns, words: &str| {
        let words: Vec<_> = words.split_whitespace().collect();
        ns.run("ip", &words).expect("ip")
    };
    let peer = client.name();
    run(
        node,
        &format!("link add out0 type veth peer name out0 netns {peer}"),
    );
    run(node, "addr add 198.51.100.1/24 dev out0");
    run(client, "addr add 198.51.100.2/24 dev out0");
    run(client, &format!("addr add {far}/32 dev lo"));
    run(node, "link set out0 up");
    run(client, "link set out0 up");
    run(node, "route replace default via 198.51.100.2 dev out0");
    far
}

#[test]
#[ignore = "root"]
fn replies_may_leave_by_the_default_route() {
    let Some(builder) = builder("way_out") else {
        return;
    };
    let mut stage = stage("way-out", builder.pods(2), &[]);
    let pin = stage.agent.pins().join("v1/links/tcx-out0");
    let from_afar = |stage: &Stage, far: Ipv4Addr, kinds: &[Traffic]| {
        let mut options = stage.options(kinds, 100, 1.0);
        options.sources = Some(Sources(vec![far]));
        options.own_address = true;
        let report = stage.run(&options).expect("report");
        assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
    };
    let far = add_way_out(&stage);
    until("the way out is found", || pin.exists());
    let kinds = [Traffic::Short, Traffic::Keepalive, Traffic::Udp];
    from_afar(&stage, far, &kinds);
    assert_eq!(interface(&stage, "out0")["mode"], "egress only");
    // What refuses leaves by it, too.
    stage.kill(0).expect("killed");
    from_afar(&stage, far, &[Traffic::Short]);
    assert!(stage.counted("failover_reinjected").expect("counted") > 0);
    // The way out is not the same for ever.
    let node = stage.lab.node(0).netns();
    node.run(
        "ip",
        &[
            "route",
            "replace",
            "default",
            "via",
            "192.0.2.1",
            "dev",
            "eth0",
        ],
    )
    .expect("replaced");
    until("it is let go", || !pin.exists());
    traffic_goes_on(&stage);
}

#[test]
#[ignore = "root"]
fn generic_on_veth_says_why() {
    let Some(builder) = builder("generic_note") else {
        return;
    };
    let stage = stage("note", builder.pods(1), &[]);
    let eth0 = interface(&stage, "eth0");
    assert_eq!(eth0["mode"], "generic", "{eth0}");
    assert!(eth0["notes"].to_string().contains("veth"), "{eth0}");
}
