//! `sluice detach`: all of ours goes, nothing of anybody else.

use std::path::{Path, PathBuf};

use lab::report::Traffic;
use lab::xdp_pass::{TcxNext, tcx_egress_programs};

use crate::{builder, stage, status, traffic_goes_on};

/// A map of somebody else, pinned; gone when dropped.
struct ForeignPin(PathBuf);

impl ForeignPin {
    fn at(path: &Path) -> Self {
        let folder = path.parent().expect("a folder");
        std::fs::create_dir_all(folder).expect("made");
        let words = "map create PATH type array key 4 value 4 entries 1 name foreign";
        let shown = path.display().to_string();
        let args = words
            .split(' ')
            .map(|word| if word == "PATH" { shown.as_str() } else { word });
        let made = std::process::Command::new("bpftool").args(args).status();
        assert!(made.expect("bpftool").success());
        Self(path.to_owned())
    }
}

impl Drop for ForeignPin {
    fn drop(&mut self) {
        // Whatever of it is left; the folders above go when nothing is in them.
        let _ = std::fs::remove_file(&self.0);
        for folder in self.0.ancestors().skip(1).take(3) {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

#[test]
#[ignore = "root"]
fn detach_removes_all_of_ours_and_nothing_else() {
    let Some(builder) = builder("detach") else {
        return;
    };
    let mut stage = stage(
        "detach",
        builder.pods(1).lan_servers(2),
        &["--xdp-mode=native"],
    );
    let node = stage.lab.node(0).netns().clone();
    let run = |program: &str, words: &str| {
        let args: Vec<_> = words.split_whitespace().collect();
        node.run(program, &args).expect(words)
    };
    let neighbour = |address: &str| run("ip", &format!("neigh show {address}"));
    let managed = stage.lab.lan_server(0).addr().to_string();
    let permanent = stage.lab.lan_server(1).addr().to_string();
    // Somebody else's: a qdisc, classifiers of both kinds, neighbours, pins among ours and beside.
    run("tc", "qdisc add dev eth0 root pfifo");
    run("tc", "qdisc add dev eth0 clsact");
    let pass = "1,6 0 0 4294967295,";
    let filter = [
        "filter", "add", "dev", "eth0", "egress", "bpf", "bytecode", pass,
    ];
    node.run("tc", &filter).expect("tc filter");
    let _tcx = node
        .enter(|| TcxNext::attach("eth0"))
        .expect("enters")
        .expect("attached");
    run(
        "ip",
        "neigh replace 192.0.2.200 lladdr 02:00:00:00:00:99 dev eth0",
    );
    assert!(neighbour(&managed).contains("managed"));
    let mac = neighbour(&permanent);
    let mac = mac
        .split_whitespace()
        .skip_while(|word| *word != "lladdr")
        .nth(1);
    let mac = mac.expect("resolved").to_owned();
    run("ip", &format!("neigh del {permanent} dev eth0"));
    run(
        "ip",
        &format!("neigh replace {permanent} lladdr {mac} nud permanent dev eth0"),
    );
    let among = ForeignPin::at(&stage.agent.pins().join("v1/maps/foreign"));
    let beside = ForeignPin::at(&stage.agent.pins().join("another/foreign"));
    traffic_goes_on(&stage);
    let before = [
        run("tc", "qdisc show dev eth0"),
        run("tc", "filter show dev eth0 egress"),
    ];

    let chain = || {
        let chain = node.enter(|| tcx_egress_programs("eth0"));
        chain.expect("enters").expect("asked")
    };
    let ours = status(&stage)["interfaces"][0]["egress"].as_u64();
    let [first, theirs] = chain()[..] else {
        panic!("{:?}", chain())
    };
    assert_eq!(Some(u64::from(first)), ours, "ours comes first");
    let refused = stage
        .agent
        .command(&["detach"])
        .expect_err("an agent runs")
        .to_string();
    assert!(refused.contains("another agent"), "{refused}");
    traffic_goes_on(&stage);
    stage.agent.terminate().expect("ends");
    let said = stage.agent.command(&["detach"]).expect("detaches");
    assert!(said.contains("removed 2 links"), "{said}");
    let foreign = among.0.display().to_string();
    assert!(said.contains(&format!("not ours: {foreign}")), "{said}");
    assert!(among.0.exists() && beside.0.exists());
    let left = std::fs::read_dir(stage.agent.pins().join("v1/maps")).expect("reads");
    assert_eq!(left.count(), 1, "only the foreign map is left");
    assert!(!stage.agent.pins().join("v1/links").exists());

    let link = run("ip", "-d link show eth0");
    assert!(!link.contains("xdp"), "{link}");
    assert_eq!(chain(), [theirs]);
    assert!(!neighbour(&managed).contains("managed"));
    assert!(neighbour(&permanent).contains("PERMANENT"));
    assert!(neighbour("192.0.2.200").contains("02:00:00:00:00:99"));
    let after = [
        run("tc", "qdisc show dev eth0"),
        run("tc", "filter show dev eth0 egress"),
    ];
    assert_eq!(after, before);
    // Once nobody else's is in the way, nothing at all is left.
    drop((among, beside));
    stage.agent.command(&["detach"]).expect("a second time");
    assert!(!stage.agent.pins().exists());
}

#[test]
#[ignore = "root"]
fn detaching_other_pins_leaves_a_running_agent_alone() {
    let Some(builder) = builder("detach_other") else {
        return;
    };
    let stage = stage("other", builder.pods(0).lan_servers(2), &[]);
    let load = stage
        .load(&stage.options(&[Traffic::Short, Traffic::Keepalive], 200, 3.0))
        .expect("load");
    let node = stage.lab.node(0).netns();
    let sluice = crate::binary().display().to_string();
    let nowhere = format!("/sys/fs/bpf/{}-typo", stage.lab.id());
    for _ in 0..20 {
        node.run(&sluice, &["detach", "--pin-dir", &nowhere])
            .expect("nothing to do");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let report = load.finish().expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
    assert_eq!(stage.counted("no_next_hop").expect("counted"), 0);
}
