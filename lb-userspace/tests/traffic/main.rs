//! The main job with real clients, real servers and real frames, in the lab.

use std::path::Path;

use lab::report::Traffic;
use lab::serve::Kind;
use lab::stage::Stage;
use lab::{Lab, LabBuilder, Offloads};

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

fn stage(name: &str, builder: LabBuilder, mode: &str) -> Stage {
    let binary = Path::new(env!("CARGO_BIN_EXE_sluice"));
    let mode = format!("--xdp-mode={mode}");
    Stage::build(name, builder, Kind::A, binary, &[&mode]).expect("stage")
}

/// Every kind of traffic for a while: nothing fails, and every endpoint has its share.
fn all_traffic(stage: &Stage, endpoints: usize, own_address: bool) {
    let mut options = stage.options(&Traffic::ALL, 300, 3.0);
    options.own_address = own_address;
    options.download_bytes = 2_000_000;
    let report = stage.run(&options).expect("report");
    eprintln!("{}", report.summary());
    let status = stage
        .agent
        .command(&["status"])
        .unwrap_or_else(|error| format!("{error:#}"));
    assert_eq!(
        report.total().broken(),
        0,
        "{:?}\n{status}\n{}",
        report.failures,
        stage.agent.log()
    );
    assert_eq!(report.servers.len(), endpoints, "{:?}", report.servers);
}

#[test]
#[ignore = "root"]
fn local_endpoints_native() {
    let Some(builder) = builder("local_endpoints_native") else {
        return;
    };
    all_traffic(&stage("local-native", builder.pods(3), "native"), 3, true);
}

#[test]
#[ignore = "root"]
fn local_endpoints_generic_by_default_on_veth() {
    let Some(builder) = builder("local_endpoints_generic") else {
        return;
    };
    all_traffic(&stage("local-generic", builder.pods(3), "auto"), 3, true);
}

#[test]
#[ignore = "root"]
fn local_endpoints_without_checksum_offload() {
    let Some(builder) = builder("local_endpoints_txoff") else {
        return;
    };
    all_traffic(
        &stage(
            "local-txoff",
            builder.pods(3).offloads(Offloads::TxOff),
            "native",
        ),
        3,
        true,
    );
}

#[test]
#[ignore = "root"]
fn nat_endpoints_native() {
    let Some(builder) = builder("nat_endpoints_native") else {
        return;
    };
    all_traffic(
        &stage("nat-native", builder.pods(0).lan_servers(2), "native"),
        2,
        false,
    );
}

#[test]
#[ignore = "root"]
fn nat_endpoints_generic() {
    let Some(builder) = builder("nat_endpoints_generic") else {
        return;
    };
    all_traffic(
        &stage("nat-generic", builder.pods(0).lan_servers(2), "generic"),
        2,
        false,
    );
}

#[test]
#[ignore = "root"]
fn both_kinds_at_once() {
    let Some(builder) = builder("both_kinds") else {
        return;
    };
    all_traffic(
        &stage("both", builder.pods(2).lan_servers(2), "native"),
        4,
        false,
    );
}
