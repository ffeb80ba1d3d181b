//! Floods of forged packets: half-open connections cost room among themselves, never a flow.

use std::path::Path;
use std::time::{Duration, Instant};

use lab::raw::{flood_syn, flood_syn_ack_pairs};
use lab::report::Traffic;
use lab::serve::Kind;
use lab::stage::Stage;
use lab::{Lab, UPLINK};

/// Established connections that must outlive both floods.
const FLOWS: u64 = 10_000;
/// Forged connection attempts in each.
const FORGED: u64 = 1_000_000;

#[test]
#[ignore = "root"]
fn a_million_forged_attempts_leave_ten_thousand_flows_alone() {
    if !nix::unistd::geteuid().is_root() {
        assert!(
            std::env::var_os("CI").is_none(),
            "needs root, and CI is set"
        );
        eprintln!("SKIPPED: needs root: a_million_forged_attempts");
        return;
    }
    lab::teardown::teardown_on_signal();
    let builder = Lab::builder().pods(2).client_namespaces(2);
    let binary = Path::new(env!("CARGO_BIN_EXE_sluice"));
    let stage = Stage::build("flood", builder, Kind::A, binary, &["--xdp-mode=native"]);
    let stage = stage.expect("stage");
    let mut options = stage.options(&[Traffic::Idle], 1, 600.0);
    options.idle_conns = FLOWS as u32;
    let held = stage.load(&options).expect("load");
    let began = Instant::now();
    while stage.counted("new_local").expect("counted") < FLOWS {
        assert!(
            began.elapsed() < Duration::from_mins(1),
            "connections are slow"
        );
        std::thread::sleep(Duration::from_millis(100));
    }

    let attacker = stage.lab.client(1).netns();
    let node = stage.lab.node(0).mac();
    let syns = flood_syn(attacker, UPLINK, node, stage.vip, FORGED).expect("flood");
    let pairs = flood_syn_ack_pairs(attacker, UPLINK, node, stage.vip, FORGED).expect("flood");
    eprintln!(
        "{} SYNs in {:?}, {} pairs' frames in {:?}",
        syns.sent, syns.took, pairs.sent, pairs.took
    );
    let status = stage.agent.command(&["status"]).expect("status");
    let first_packets = stage.counted("new_local").expect("counted");
    assert!(
        first_packets > FLOWS + FORGED,
        "the floods did not arrive\n{status}"
    );

    let report = held.stop().expect("report");
    let idle = report.of(Traffic::Idle);
    assert_eq!(
        idle.attempts, FLOWS,
        "none was replaced: {idle:?}\n{status}"
    );
    assert_eq!(
        report.total().broken(),
        0,
        "{:?}\n{status}",
        report.failures.first()
    );
    let flows = stage
        .agent
        .command(&["flows", "-o", "json"])
        .expect("flows");
    let forged = flows.matches("198.18.").count() + flows.matches("198.19.").count();
    assert_eq!(forged, 0, "a forged pair became a flow");
}
