//! An agent that is killed in the middle of a drain, and its successor.

use std::time::Duration;

use crate::stage::{Stage, builder};

#[test]
#[ignore = "root"]
fn a_killed_agent_neither_forgets_nor_restarts_a_deadline() {
    let Some(builder) = builder("a_killed_agent_neither_forgets") else {
        return;
    };
    let mut stage = Stage::new("drain-restart", builder.pods(2), &["--drain-timeout=30"]);
    let mut held = stage.connect_to("pod-0");
    let address = stage.lab.pod(0).addr();

    let mut service = stage.service();
    service.endpoints.remove(0);
    stage.write(&[service]);
    let deadline = |stage: &Stage| {
        let deadline = |record: &lb_userspace::timer::drain::DrainRecord| {
            let endpoint = record.endpoint;
            let tcp = endpoint.frontend.protocol == lb_userspace::desired::Protocol::Tcp;
            (tcp && endpoint.address.ip() == address).then_some(record.deadline)
        };
        stage.records().iter().find_map(deadline).expect("a record")
    };
    stage.until("a deadline", Duration::from_secs(2), |stage| {
        deadline(stage).is_some()
    });
    let before = deadline(&stage);
    stage.agent.kill().expect("killed");
    assert_eq!(held.ask().expect("the data plane goes on"), "pod-0");
    std::thread::sleep(Duration::from_secs(2));
    stage.agent.run().expect("ready again");

    assert_eq!(deadline(&stage), before, "the pinned one");
    let [life] = &stage.lives(address)[..] else {
        panic!("{:?}", stage.lives(address))
    };
    assert_eq!(life.state, "draining");
    let nanos = |deadline: Duration| u64::try_from(deadline.as_nanos()).expect("fits");
    assert_eq!(life.deadline, before.map(nanos), "the agent's own");
    let shown = stage.agent.command(&["endpoints"]).expect("shows");
    let row = shown
        .lines()
        .find(|line| line.contains(&address.to_string()))
        .expect("a row");
    let words: Vec<_> = row.split_whitespace().collect();
    assert_eq!(
        words[3..7],
        ["local", "draining", "vanished", "no"],
        "{shown}"
    );
    // Two seconds at least have passed: it has not begun anew.
    let left: u64 = words[7].trim_end_matches('s').parse().expect("seconds");
    assert!((1..=27).contains(&left), "{shown}");
    assert_eq!(words[8], "1", "flows: {shown}");
    assert_eq!(held.ask().expect("stays until the deadline"), "pod-0");
}
