//! Interfaces that appear late, vanish, come back, or carry somebody else's program.

use lab::agent::Agent;
use lab::manifests::Manifests;
use lab::xdp_pass::XdpPass;

use crate::{binary, builder, stage, status, until};

fn interface(stage: &lab::stage::Stage, name: &str) -> serde_json::Value {
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

#[test]
#[ignore = "root"]
fn the_program_of_somebody_else_is_named_and_stays() {
    let Some(builder) = builder("foreign_program") else {
        return;
    };
    let lab = builder.pods(1).build().expect("lab");
    let node = lab.node(0).netns().clone();
    let foreign = node
        .enter(|| XdpPass::attach("eth0"))
        .expect("enters")
        .expect("attached");
    let manifests = Manifests::create("foreign").expect("folder");
    let vip = std::net::SocketAddrV4::new(lab::Lab::vip(0), 80);
    manifests.write(vip, 8080, &[]).expect("written");
    let mut agent = Agent::prepare(&node, binary(), manifests.dir(), &[]).expect("agent");
    agent.spawn().expect("starts");
    until("it names the program in its way", || {
        agent.get("/readyz").is_ok_and(|answer| {
            answer.starts_with("HTTP/1.1 503")
                && answer.contains("eth0")
                && answer.contains("program")
        })
    });
    let link = node.run("ip", &["link", "show", "eth0"]).expect("ip");
    assert!(link.contains("xdp"), "{link}");
    drop(foreign);
    until("it takes the place once that is free", || {
        agent
            .get("/readyz")
            .is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    });
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
