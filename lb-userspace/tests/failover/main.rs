//! Connections that meet a dead endpoint: moved before the client notices, with real processes.
//!
//! The agent is told nothing: every endpoint stays listed as ready. What is saved here is saved by
//! the data plane alone.

use std::path::Path;
use std::time::Duration;

use lab::report::{Outcome, Report, Traffic};
use lab::serve::Kind;
use lab::stage::Stage;
use lab::{Lab, LabBuilder, RpFilter};

/// A builder; without root a loud skip, and a failure where CI is set.
fn builder(test: &str) -> Option<LabBuilder> {
    if nix::unistd::geteuid().is_root() {
        lab::teardown::teardown_on_signal();
        return Some(Lab::builder());
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "{test} needs root, and CI is set"
    );
    eprintln!("SKIPPED: needs root: {test}");
    None
}

fn stage(name: &str, builder: LabBuilder, mode: &str, flags: &[&str]) -> Stage {
    let mode = format!("--xdp-mode={mode}");
    let binary = Path::new(env!("CARGO_BIN_EXE_sluice"));
    let flags: Vec<_> = [mode.as_str()]
        .into_iter()
        .chain(flags.iter().copied())
        .collect();
    Stage::build(name, builder, Kind::B, binary, &flags).expect("stage")
}

/// Short connections with one of three endpoints killed at the start.
fn with_one_dead(stage: &mut Stage) -> Report {
    let options = stage.options(&[Traffic::Short], 200, 3.0);
    stage.kill(0).expect("killed");
    let report = stage.run(&options).expect("report");
    eprintln!("{}", report.summary());
    report
}

/// Nothing failed, everything was fast, and this reason was counted.
fn assert_saved(stage: &Stage, report: &Report, reason: &str) {
    let status = stage.agent.command(&["status"]).expect("status");
    assert_eq!(
        report.total().broken(),
        0,
        "{:?}\n{status}",
        report.failures
    );
    assert!(
        report.connect.max() < Duration::from_millis(900),
        "a SYN was lost\n{status}"
    );
    assert!(stage.counted(reason).expect("counted") > 0, "{status}");
    assert_eq!(report.servers.len(), 2, "{:?}", report.servers);
}

/// What a strict node does: conntrack, and a drop of whatever it calls invalid.
const STRICT: &str = "table ip strict {
    counter invalid {}
    chain forward {
        type filter hook forward priority 0; policy accept;
        ct state invalid counter name invalid drop
    }
    chain input {
        type filter hook input priority 0; policy accept;
        ct state invalid counter name invalid drop
    }
}";

fn strict(stage: &Stage) {
    let node = stage.lab.node(0).netns();
    node.run("nft", &[STRICT]).expect("nft");
}

fn assert_conntrack_content(stage: &Stage) {
    let node = stage.lab.node(0).netns();
    let counter = node.run("nft", &["list", "counter", "ip", "strict", "invalid"]);
    let counter = counter.expect("nft");
    assert!(counter.contains("packets 0 "), "{counter}");
}

#[test]
#[ignore = "root"]
fn a_refused_syn_goes_to_another_pod_generic() {
    let Some(builder) = builder("a_refused_syn_generic") else {
        return;
    };
    let builder = builder.pods(3).rp_filter(RpFilter::Strict);
    let mut stage = stage("rst-generic", builder, "auto", &[]);
    strict(&stage);
    let report = with_one_dead(&mut stage);
    assert_saved(&stage, &report, "failover_reinjected");
    assert_conntrack_content(&stage);
}

#[test]
#[ignore = "root"]
fn a_refused_syn_goes_to_another_pod_native() {
    let Some(builder) = builder("a_refused_syn_native") else {
        return;
    };
    let mut stage = stage("rst-native", builder.pods(3), "native", &[]);
    strict(&stage);
    let report = with_one_dead(&mut stage);
    assert_saved(&stage, &report, "failover_reinjected");
    assert_conntrack_content(&stage);
}

#[test]
#[ignore = "root"]
fn a_refused_syn_goes_to_another_lan_server() {
    let Some(builder) = builder("a_refused_syn_nat") else {
        return;
    };
    let mut stage = stage("rst-nat", builder.pods(0).lan_servers(3), "native", &[]);
    let report = with_one_dead(&mut stage);
    assert_saved(&stage, &report, "failover_nat");
}

#[test]
#[ignore = "root"]
fn a_refused_syn_goes_from_a_pod_to_the_lan_and_back() {
    let Some(builder) = builder("a_refused_syn_both") else {
        return;
    };
    let mut stage = stage("rst-both", builder.pods(2).lan_servers(2), "native", &[]);
    let mut options = stage.options(&[Traffic::Short], 200, 3.0);
    // Two clients eject nobody: the dead are asked all the time, and each way is taken often.
    options.sources.as_mut().expect("sources").0.truncate(2);
    stage.kill(0).expect("killed");
    stage.kill(2).expect("killed");
    let report = stage.run(&options).expect("report");
    eprintln!("{}", report.summary());
    assert_saved(&stage, &report, "failover_nat");
    let local = stage.counted("failover_reinjected").expect("counted")
        + stage.counted("failover_local").expect("counted");
    assert!(local > 10, "{local} moved to a pod");
}

#[test]
#[ignore = "root"]
fn the_nodes_own_unreachable_is_swallowed() {
    let Some(builder) = builder("own_unreachable") else {
        return;
    };
    let mut stage = stage("unreachable", builder.pods(3), "auto", &[]);
    let pod = stage.lab.pods().next().expect("a pod").addr().to_string();
    let node = stage.lab.node(0).netns();
    node.run("ip", &["route", "add", "unreachable", &pod])
        .expect("route");
    let report = with_one_dead(&mut stage);
    assert_saved(&stage, &report, "failover_reinjected");
}

#[test]
#[ignore = "root"]
fn a_syn_that_would_leave_again_is_turned_back() {
    let Some(builder) = builder("without_way") else {
        return;
    };
    let mut stage = stage("without-way", builder.pods(3), "auto", &[]);
    // The pod's route now leads out of the uplink, as it does once a CNI has taken it away.
    let pod = stage.lab.pods().next().expect("a pod").addr().to_string();
    let node = stage.lab.node(0).netns();
    let client = stage.lab.client(0).addr().to_string();
    node.run("ip", &["route", "add", &pod, "via", &client, "dev", "eth0"])
        .expect("route");
    let report = with_one_dead(&mut stage);
    assert_saved(&stage, &report, "failover_reinjected");
}

#[test]
#[ignore = "root"]
fn when_all_refuse_the_client_is_told() {
    let Some(builder) = builder("all_refuse") else {
        return;
    };
    let mut stage = stage("all-refuse", builder.pods(3), "auto", &[]);
    for pod in 0..3 {
        stage.kill(pod).expect("killed");
    }
    let options = stage.options(&[Traffic::Short], 50, 1.0);
    let report = stage.run(&options).expect("report");
    eprintln!("{}", report.summary());
    let total = report.total();
    assert!(total.attempts > 20, "{total:?}");
    assert_eq!(
        total.of(Outcome::Refused),
        total.attempts,
        "{:?}",
        report.failures
    );
}

#[test]
#[ignore = "root"]
fn without_failover_a_refusal_reaches_the_client() {
    let Some(builder) = builder("no_failover") else {
        return;
    };
    let mut stage = stage("no-failover", builder.pods(3), "auto", &["--no-failover"]);
    let report = with_one_dead(&mut stage);
    assert!(
        report.total().of(Outcome::Refused) > 0,
        "the test above would pass without failover"
    );
}
