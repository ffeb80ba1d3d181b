//! Rolling updates that no client notices, in minutes; `cargo xtask bench rollout` has the long form.
//!
//! Pods end in each of the ways that real ones do, and the endpoint list is late. What fails before
//! SYN-ACK is what a balancer could have saved: nothing may.

use std::path::Path;
use std::time::Duration;

use lab::report::Outcome as Fate;
use lab::rollout::scenario::{self, Contestant, Outcome, Scenario, Setting};
use lab::serve::Kind;

/// True where the test can run; without root a loud skip, and a failure where CI is set.
fn can_run(test: &str) -> bool {
    if nix::unistd::geteuid().is_root() {
        lab::teardown::teardown_on_signal();
        return true;
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "{test} needs root, and CI is set"
    );
    eprintln!("SKIPPED: needs root: {test}");
    false
}

/// A few of them with when they happened, beside what was done when.
fn first_failures(outcome: &Outcome) -> String {
    let start = outcome.report.started_ms;
    let failures = outcome.report.failures.iter().take(12).map(|failure| {
        let at = failure.at_ms.saturating_sub(start);
        format!(
            "{at} ms: {:?} {:?}, {}",
            failure.traffic, failure.outcome, failure.detail
        )
    });
    let events = outcome.rollout.events.iter().map(|(at, event)| {
        let at = at.saturating_sub(start);
        format!("{at} ms: {event:?}")
    });
    failures.chain(events).collect::<Vec<_>>().join("\n")
}

fn roll(kind: Kind, delay: f64, kill_agent: bool) -> Outcome {
    let setting = Setting {
        agent: Path::new(env!("CARGO_BIN_EXE_sluice")).to_owned(),
        rate: 200,
        pods: 3,
        lan_servers: 0,
    };
    let scenario = Scenario {
        kind,
        delay: Duration::from_secs_f64(delay),
        updates: 1,
        kill_agent,
    };
    let outcome =
        scenario::run(&setting, scenario, Contestant::Sluice, &mut |_, _| {}).expect("rolls");
    eprintln!("{scenario}\n{}", outcome.report.summary());
    let total = outcome.report.total();
    assert_eq!(outcome.rollout.stops, 3);
    assert!(total.attempts > 500, "{total:?}");
    assert_eq!(total.before(), 0, "{}", first_failures(&outcome));
    assert_eq!(
        total.of(Fate::WrongBytes),
        0,
        "{}",
        first_failures(&outcome)
    );
    outcome
}

#[test]
#[ignore = "root"]
fn pods_that_close_their_listener() {
    if can_run("pods_that_close_their_listener") {
        roll(Kind::A, 0.5, false);
    }
}

#[test]
#[ignore = "root"]
fn pods_that_exit_at_once() {
    if can_run("pods_that_exit_at_once") {
        roll(Kind::B, 2.0, false);
    }
}

#[test]
#[ignore = "root"]
fn pods_that_exit_at_once_with_the_list_on_time() {
    if can_run("pods_that_exit_at_once_with_the_list_on_time") {
        roll(Kind::B, 0.0, false);
    }
}

#[test]
#[ignore = "root"]
fn pods_that_exit_at_once_while_the_agent_is_killed() {
    if can_run("pods_that_exit_at_once_while_the_agent_is_killed") {
        roll(Kind::B, 0.5, true);
    }
}

#[test]
#[ignore = "root"]
fn pods_that_ignore_the_end_keep_their_connections() {
    if can_run("pods_that_ignore_the_end") {
        let outcome = roll(Kind::C, 0.5, false);
        assert_eq!(
            outcome.report.total().after(),
            0,
            "{:?}",
            outcome.report.failures
        );
    }
}

#[test]
#[ignore = "root"]
fn pods_that_vanish_cost_a_syn_timer_at_most() {
    if can_run("pods_that_vanish") {
        let outcome = roll(Kind::D, 0.5, false);
        let slowest = outcome.report.connect.max();
        assert!(
            slowest < Duration::from_millis(1500),
            "{slowest:?}\n{}",
            outcome.status
        );
    }
}
