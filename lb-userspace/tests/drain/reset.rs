//! Connections of endpoints that are gone: their clients hear of it, and so do those that live.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use lab::Ns;
use lab::drive::Server;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;

use crate::stage::{Client, Listed, PORT, Stage, builder};

/// More than any reset should take, less than any client's patience.
const SOON: Duration = Duration::from_secs(4);

/// All of these connections end with a reset, soon.
fn all_reset(clients: Vec<Client>, stage: &Stage) {
    let started = Instant::now();
    for (index, mut client) in clients.into_iter().enumerate() {
        let left = SOON.saturating_sub(started.elapsed());
        let end = client.listen(left.max(Duration::from_millis(50)));
        assert_eq!(
            end,
            Some(ErrorKind::ConnectionReset),
            "connection {index} after {:?}\n{}\n{}",
            started.elapsed(),
            stage.agent.command(&["status"]).unwrap_or_default(),
            stage.agent.log()
        );
    }
    eprintln!("all reset within {:?}", started.elapsed());
}

/// Idle connections with different pasts: one answer, several over more than a second, and one of
/// many bytes.
fn idle(stage: &Stage, server: &str) -> Vec<Client> {
    let mut clients: Vec<_> = (0..12).map(|_| stage.connect_to(server)).collect();
    for client in &mut clients[..6] {
        client.ask().expect("answers");
    }
    std::thread::sleep(Duration::from_millis(1200));
    for client in &mut clients[..3] {
        for _ in 0..3 {
            client.ask().expect("answers");
        }
    }
    for client in &mut clients[9..] {
        client.fetch(300_000).expect("answers");
    }
    clients
}

fn established(ns: &Ns) -> usize {
    let sockets = ns
        .run("ss", &["-Htn", "state", "established"])
        .expect("lists");
    sockets.lines().count()
}

/// Takes an endpoint out of the Service.
fn take_out(stage: &Stage, name: &str) {
    let mut service = stage.service();
    service.endpoints.retain(|listed| listed.uid != name);
    stage.write(&[service]);
}

#[test]
#[ignore = "root"]
fn clients_of_a_pod_that_outlives_its_deadline_are_reset_and_so_is_the_pod() {
    let Some(builder) = builder("clients_of_a_pod_that_outlives") else {
        return;
    };
    let stage = Stage::new("reset-local", builder.pods(2), &["--drain-timeout=1"]);
    let clients = idle(&stage, "pod-0");
    let mut other = stage.connect_to("pod-1");
    let pod = stage.lab.pod(0).netns();
    assert!(established(pod) >= clients.len());
    take_out(&stage, "pod-0");
    all_reset(clients, &stage);
    stage.until("the pod's side is closed", SOON, |_| established(pod) == 0);
    assert_eq!(other.ask().expect("goes on"), "pod-1");
}

#[test]
#[ignore = "root"]
fn clients_of_a_server_behind_full_nat_are_reset_and_so_is_the_server() {
    let Some(builder) = builder("clients_of_a_server_behind_full_nat") else {
        return;
    };
    let builder = builder.pods(0).lan_servers(2);
    let args = ["--drain-timeout=1", "--xdp-mode=native"];
    let stage = Stage::new("reset-nat", builder, &args);
    let clients = idle(&stage, "lan-0");
    let mut other = stage.connect_to("lan-1");
    let server = stage.lab.lan_server(0).netns();
    assert!(established(server) >= clients.len());
    take_out(&stage, "lan-0");
    all_reset(clients, &stage);
    stage.until("the server's side is closed", SOON, |_| {
        established(server) == 0
    });
    assert_eq!(other.ask().expect("goes on"), "lan-1");
}

#[test]
#[ignore = "root"]
fn clients_of_a_pod_that_died_with_its_namespace_are_reset_once_it_is_delisted() {
    let Some(builder) = builder("clients_of_a_pod_that_died") else {
        return;
    };
    let mut stage = Stage::new("reset-dead", builder.pods(2), &[]);
    let clients = idle(&stage, "pod-0");
    stage.kill_pod(0);
    // While it is listed, nobody knows whether it comes back.
    std::thread::sleep(Duration::from_millis(300));
    take_out(&stage, "pod-0");
    all_reset(clients, &stage);
    let address = stage.lab.pod(0).addr();
    stage.until("its flows are settled", SOON, |stage| {
        stage.lives(address).is_empty()
    });
}

#[test]
#[ignore = "root"]
fn connections_that_both_sides_have_closed_are_not_asked_about() {
    let Some(builder) = builder("connections_that_both_sides_have_closed") else {
        return;
    };
    let builder = builder.pods(2).lan_servers(2);
    let stage = Stage::new("reset-closed", builder, &["--drain-timeout=1"]);
    // The client closes first and lingers in TIME_WAIT: it would answer whatever it is asked.
    drop((0..100).map(|_| stage.connect()).collect::<Vec<_>>());
    let states = |stage: &Stage, server: Ipv4Addr| -> Vec<_> {
        let flows = stage.agent.command(&["flows", "--limit=1000", "-o=json"]);
        let flows: Value = serde_json::from_str(&flows.expect("flows")).expect("JSON");
        let rows = flows["flows"].as_array().expect("rows").iter();
        rows.filter(|row| row["endpoint"] == format!("{server}:{PORT}"))
            .map(|row| row["state"].clone())
            .collect()
    };
    let leaving = [stage.lab.pod(0).addr(), stage.lab.lan_server(0).addr()];
    stage.until("all have been closed", SOON, |stage| {
        leaving.iter().all(|server| {
            let states = states(stage, *server);
            states.len() > 5 && states.iter().all(|state| state == "closing")
        })
    });
    let mut service = stage.service();
    service
        .endpoints
        .retain(|listed| !listed.uid.ends_with('0'));
    stage.write(&[service]);
    stage.until("the flows are settled", SOON, |stage| {
        leaving.iter().all(|server| stage.lives(*server).is_empty())
    });
    let shown = stage.agent.command(&["status"]).expect("status");
    assert!(!shown.contains("refused_gone"), "{shown}");
}

#[test]
#[ignore = "root"]
fn a_killed_agent_goes_on_with_its_resets() {
    let Some(builder) = builder("a_killed_agent_goes_on") else {
        return;
    };
    let mut stage = Stage::new("reset-restart", builder.pods(2), &["--drain-timeout=3"]);
    let clients = idle(&stage, "pod-0");
    take_out(&stage, "pod-0");
    let draining = |stage: &Stage| {
        let lives = stage.lives(stage.lab.pod(0).addr());
        lives.iter().any(|life| life.deadline.is_some())
    };
    stage.until("it drains", SOON, draining);
    stage.agent.kill().expect("killed");
    // The deadline passes while nobody looks.
    std::thread::sleep(Duration::from_secs(4));
    stage.agent.run().expect("ready again");
    all_reset(clients, &stage);
}

#[test]
#[ignore = "root"]
fn a_pod_that_takes_over_an_address_inherits_no_connection() {
    let Some(builder) = builder("a_pod_that_takes_over_an_address") else {
        return;
    };
    let mut stage = Stage::new("reset-replaced", builder.pods(2), &[]);
    let clients = idle(&stage, "pod-0");
    let address = stage.lab.pod(0).addr();
    let id = |stage: &Stage| {
        let lives = stage.lives(address);
        let life = lives.iter().find(|life| life.state == "active");
        life.and_then(|life| life.id)
    };
    let before = id(&stage).expect("an id");

    stage.kill_pod(0);
    let new = stage.lab.add_pod_at(0, address).expect("a new pod");
    let server = Server::named("pod-new").start(stage.lab.pod(new).netns());
    stage.servers.push(Some(server.expect("server")));
    // As a CNI plugin does by announcing the new pod.
    let node = stage.lab.node(0).netns();
    node.run("ip", &["neigh", "flush", "dev", lab::POD_BRIDGE])
        .expect("flushed");
    let mut service = stage.service();
    service.endpoints = vec![Listed {
        address,
        node: Some("n0"),
        uid: "another".to_owned(),
        ready: true,
        terminating: false,
    }];
    stage.write(&[service]);

    all_reset(clients, &stage);
    stage.until("the new pod has an id of its own", SOON, |stage| {
        id(stage).is_some_and(|id| id != before)
    });
    assert_eq!(stage.connect().server, "pod-new");
}

#[test]
#[ignore = "root"]
fn thousands_of_idle_connections_are_reset_at_a_pace() {
    let Some(builder) = builder("thousands_of_idle_connections") else {
        return;
    };
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("limits");
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(20_000).max(soft), hard).expect("set");
    let mut stage = Stage::new("reset-many", builder.pods(1), &[]);
    let clients: Vec<_> = (0..4000).map(|_| stage.connect()).collect();
    std::thread::sleep(Duration::from_millis(1500));
    stage.kill_pod(0);
    take_out(&stage, "pod-0");
    all_reset(clients, &stage);
}
