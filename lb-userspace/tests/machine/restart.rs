//! The agent killed in the middle of things: traffic does not notice, and the next one takes over.

use std::process::{Command, Stdio};

use lab::Ns;
use lab::manifests::Condition;
use lab::report::Traffic;
use lab::stage::Stage;

use crate::web::{Site, have};
use crate::{binary, builder, stage, status, traffic_goes_on, until};

#[test]
#[ignore = "root"]
fn a_download_survives_kill_9_and_a_restart() {
    let Some(builder) = builder("download_survives") else {
        return;
    };
    if !have(&["nginx", "curl"]) {
        return;
    }
    let site = Site::new("restart");
    let start = |ns: &Ns, uid: &str| site.nginx(ns, uid);
    let mut stage = Stage::serving(
        "restart",
        builder.pods(2).lan_servers(1),
        start,
        binary(),
        &[],
    )
    .expect("stage");
    // 64 MiB at 16 MiB/s: four seconds.
    let url = format!("http://{}/blob", stage.vip);
    let script = format!("curl -sS --limit-rate 16M --max-time 60 {url} | sha256sum");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdout(Stdio::piped());
    let mut curl = stage.lab.client(0).netns().spawn(command).expect("curl");
    std::thread::sleep(std::time::Duration::from_millis(700));

    stage.agent.kill().expect("killed");
    let mut dead = stage.options(&[Traffic::Short], 100, 1.0);
    dead.any_body = true;
    let report = stage.run(&dead).expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
    assert!(
        report.total().attempts > 50,
        "new connections while the agent is dead"
    );

    assert!(
        curl.try_wait().expect("looks").is_none(),
        "the download is over too early"
    );
    stage.agent.run().expect("runs again");
    let mut out = String::new();
    let mut stdout = curl.take_stdout().expect("piped");
    std::io::Read::read_to_string(&mut stdout, &mut out).expect("reads");
    assert!(curl.wait().expect("ends").success());
    assert!(out.starts_with(&site.sum), "{out}");
    let report = stage.run(&dead).expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
}

#[test]
#[ignore = "root"]
fn a_restart_keeps_links_maps_and_addresses() {
    let Some(builder) = builder("restart_keeps") else {
        return;
    };
    let mut stage = stage("keeps", builder.pods(2), &[]);
    let link = |stage: &Stage| {
        ["xdp-eth0", "tcx-eth0"].map(|name| {
            let pin = stage.agent.pins().join("v1/links").join(name);
            let out = std::process::Command::new("bpftool")
                .args(["-j", "link", "show", "pinned"])
                .arg(pin)
                .output()
                .expect("bpftool");
            let shown: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
            shown["id"].as_u64().expect("an id")
        })
    };
    let services = |stage: &Stage| {
        stage
            .agent
            .command(&["services", "-o", "json"])
            .expect("services")
    };
    let (links, before) = (link(&stage), services(&stage));
    let held = stage
        .load(&stage.options(&[Traffic::Keepalive, Traffic::Idle], 1, 4.0))
        .expect("load");
    stage.agent.kill().expect("killed");
    assert_eq!(status(&stage)["agent"]["running"], false);
    stage.agent.run().expect("runs again");
    assert_eq!(
        link(&stage),
        links,
        "the links stay, the programs in them are replaced"
    );
    assert_eq!(services(&stage), before);
    let report = held.finish().expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
}

/// Ends the agent, changes its folder, and has the next one start from that.
fn restarted_after(stage: &mut Stage, change: impl FnOnce(&Stage)) {
    stage.agent.kill().expect("killed");
    change(stage);
    stage.agent.run().expect("runs again");
}

#[test]
#[ignore = "root"]
fn a_restart_with_a_broken_file_takes_nothing_away() {
    let Some(builder) = builder("restart_broken_file") else {
        return;
    };
    let mut stage = stage("broken-start", builder.pods(2), &[]);
    let held = stage
        .load(&stage.options(&[Traffic::Keepalive, Traffic::Idle], 1, 5.0))
        .expect("load");
    let endpoints = |stage: &Stage| stage.agent.command(&["endpoints"]).expect("endpoints");
    restarted_after(&mut stage, |stage| {
        let path = stage.manifests.dir().join("web.json");
        let good = std::fs::read_to_string(&path).expect("reads");
        std::fs::write(&path, &good[..good.len() / 2]).expect("cut off in the middle");
    });
    until("the file is named", || {
        status(&stage).to_string().contains("web.json:")
    });
    assert_eq!(
        endpoints(&stage).matches(" active ").count(),
        4,
        "{}",
        endpoints(&stage)
    );
    traffic_goes_on(&stage);
    // It breaks in another way, which must not pass for news of what was good.
    std::fs::write(stage.manifests.dir().join("web.json"), "{").expect("written");
    restarted_after(&mut stage, |_| ());
    assert_eq!(
        endpoints(&stage).matches(" active ").count(),
        4,
        "{}",
        endpoints(&stage)
    );
    let report = held.finish().expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
}

#[test]
#[ignore = "root"]
fn an_agent_without_its_folder_ends_and_takes_nothing_away() {
    let Some(builder) = builder("no_folder") else {
        return;
    };
    let mut stage = stage("no-folder", builder.pods(2), &[]);
    let dir = stage.manifests.dir().to_owned();
    let away = dir.with_extension("away");
    let services = |stage: &Stage| stage.agent.command(&["services", "-o", "json"]);
    let before = services(&stage).expect("services");
    stage.agent.kill().expect("killed");
    std::fs::rename(&dir, &away).expect("moved away");
    let refused = stage.agent.run().expect_err("no folder").to_string();
    std::fs::rename(&away, &dir).expect("moved back");
    assert!(refused.contains(&dir.display().to_string()), "{refused}");
    traffic_goes_on(&stage);
    stage.agent.run().expect("runs again");
    assert_eq!(services(&stage).expect("services"), before);
}

#[test]
#[ignore = "root"]
fn what_was_missed_while_no_agent_ran_is_caught_up_with() {
    let Some(builder) = builder("missed") else {
        return;
    };
    let mut stage = stage("missed", builder.pods(3), &[]);
    stage.members[0].listed = None;
    restarted_after(&mut stage, |stage| stage.tell().expect("told nobody"));
    let report = stage
        .run(&stage.options(&[Traffic::Short], 100, 1.0))
        .expect("report");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
    assert!(
        !report.servers.contains_key("pod-0"),
        "{:?}",
        report.servers
    );
    let endpoints = stage.agent.command(&["endpoints"]).expect("endpoints");
    assert_eq!(endpoints.matches(" draining ").count(), 2, "{endpoints}");
}

/// Each start reads the maps back, replaces the programs and writes what has changed meanwhile; it is
/// killed at another moment of that each time.
#[test]
#[ignore = "root"]
fn an_agent_that_is_killed_again_and_again_costs_nothing() {
    let Some(builder) = builder("again_and_again") else {
        return;
    };
    let mut stage = stage("again", builder.pods(3).lan_servers(1), &[]);
    let kinds = [Traffic::Short, Traffic::Keepalive, Traffic::Udp];
    let held = stage.load(&stage.options(&kinds, 100, 6.0)).expect("load");
    let began = std::time::Instant::now();
    let mut starts = 0;
    while began.elapsed().as_secs_f64() < 5.0 {
        stage.agent.kill().expect("killed");
        // All of them live on, so that nobody has a reason to fail.
        for (index, member) in stage.members.iter_mut().enumerate() {
            let listed = member.listed.as_mut().expect("listed");
            listed.condition = if starts % 4 == index {
                Condition::Terminating
            } else {
                Condition::Ready
            };
        }
        stage.tell().expect("told");
        stage.agent.spawn().expect("starts");
        let life = 50 + starts as u64 * 137 % 800;
        std::thread::sleep(std::time::Duration::from_millis(life));
        starts += 1;
    }
    stage.agent.kill().expect("killed");
    stage.agent.run().expect("ready");
    let report = held.finish().expect("report");
    assert!(starts > 7, "{starts}");
    assert_eq!(report.total().broken(), 0, "{:?}", report.failures.first());
    assert!(
        report.connect.max() < std::time::Duration::from_millis(900),
        "a SYN was lost"
    );
    let endpoints = stage.agent.command(&["endpoints"]).expect("endpoints");
    assert_eq!(endpoints.matches(" active ").count(), 6, "{endpoints}");
}
