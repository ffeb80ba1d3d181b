//! `sluice detach`: all of ours goes, nothing of anybody else.

use crate::{builder, stage};

#[test]
#[ignore = "root"]
fn detach_removes_all_of_ours_and_nothing_else() {
    let Some(builder) = builder("detach") else {
        return;
    };
    let mut stage = stage(
        "detach",
        builder.pods(1).lan_servers(1),
        &["--xdp-mode=native"],
    );
    let node = stage.lab.node(0).netns().clone();
    let server = stage.lab.lan_server(0).addr().to_string();
    // Somebody else's: a qdisc, a permanent neighbour, a file among the pins of others.
    node.run("tc", &["qdisc", "add", "dev", "eth0", "root", "pfifo"])
        .expect("tc");
    let other = [
        "neigh",
        "replace",
        "192.0.2.200",
        "lladdr",
        "02:00:00:00:00:99",
        "dev",
        "eth0",
    ];
    node.run("ip", &other).expect("ip");
    let managed = node.run("ip", &["neigh", "show", &server]).expect("ip");
    assert!(managed.contains("managed"), "{managed}");

    let refused = stage
        .agent
        .command(&["detach"])
        .expect_err("an agent runs")
        .to_string();
    assert!(refused.contains("agent"), "{refused}");
    stage.agent.terminate().expect("ends");
    let said = stage.agent.command(&["detach"]).expect("detaches");
    assert!(said.contains("removed 2 links"), "{said}");

    assert!(!stage.agent.pins().join("v1").exists(), "pins stay");
    let link = node.run("ip", &["-d", "link", "show", "eth0"]).expect("ip");
    assert!(!link.contains("xdp"), "{link}");
    let net = node
        .run("bpftool", &["net", "show", "dev", "eth0"])
        .expect("bpftool");
    assert!(!net.contains("sluice"), "{net}");
    let managed = node.run("ip", &["neigh", "show", &server]).expect("ip");
    assert!(!managed.contains("managed"), "{managed}");
    let qdisc = node
        .run("tc", &["qdisc", "show", "dev", "eth0"])
        .expect("tc");
    assert!(qdisc.contains("pfifo"), "{qdisc}");
    let theirs = node
        .run("ip", &["neigh", "show", "192.0.2.200"])
        .expect("ip");
    assert!(theirs.contains("02:00:00:00:00:99"), "{theirs}");
    let again = stage.agent.command(&["detach"]);
    assert!(again.is_ok(), "a second time: {again:?}");
}
