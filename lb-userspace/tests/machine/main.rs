//! The agent as people run it: real servers, restarts, odd neighbours, few rights, bad input.

mod bad_input;
mod frames;
mod inside;
mod interfaces;
mod interrupted;
mod leaving;
mod restart;
mod rights;
mod web;

use std::path::Path;
use std::time::{Duration, Instant};

use lab::report::Traffic;
use lab::serve::Kind;
use lab::stage::Stage;
use lab::{Lab, LabBuilder};

/// The agent's binary.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_sluice"))
}

/// A builder; without root a loud skip, and a failure where CI is set.
pub(crate) fn builder(test: &str) -> Option<LabBuilder> {
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

/// A stage with the lab's own servers.
pub(crate) fn stage(name: &str, builder: LabBuilder, flags: &[&str]) -> Stage {
    Stage::build(name, builder, Kind::A, binary(), flags).expect("stage")
}

/// Waits until something holds, and says what did not.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `sluice status` as JSON.
pub(crate) fn status(stage: &Stage) -> serde_json::Value {
    let text = stage.agent.command(&["status", "-o", "json"]);
    serde_json::from_str(&text.expect("status")).expect("JSON")
}

/// New connections are served, every one of them.
pub(crate) fn traffic_goes_on(stage: &Stage) {
    let report = stage
        .run(&stage.options(&[Traffic::Short], 100, 0.5))
        .expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
    assert!(report.total().attempts > 20, "{:?}", report.total());
}
