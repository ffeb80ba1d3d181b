//! The API is away: nothing changes but what is said of it.

use std::time::Duration;

use crate::fake::Fault;
use crate::stage::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_changes_nothing_and_what_was_missed_is_noticed() {
    let api = shop().await;
    api.put(SERVICES, service("old", "192.0.2.2"));
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    let before = stage.endpoints();
    for resource in [SERVICES, SLICES, NODES, POOLS, PODS] {
        for verb in ["list", "watch"] {
            api.fault(resource, verb, Fault::Status(503));
        }
        api.cut(resource);
    }
    stage
        .until("said of every kind", |stage| {
            let said = stage.ignored();
            said.iter()
                .filter(|i| i.contains("what is known stays in force"))
                .count()
                == 5
        })
        .await;
    let asked = api.asked(SERVICES, "watch").len();
    stage
        .until("tried on and on", |stage| {
            stage.api.asked(SERVICES, "watch").len() > asked + 5
        })
        .await;
    assert_eq!(stage.endpoints(), before);
    assert!(stage.world.is_complete(), "it stays ready");
    assert!(stage.denied().is_empty());
    // Meanwhile the world has moved on, and its history is forgotten.
    api.delete(SERVICES, "old");
    api.put(SLICES, slice("web", &[("10.0.0.7", "u7")]));
    api.compact();
    for resource in [SERVICES, SLICES, NODES, POOLS, PODS] {
        for verb in ["list", "watch"] {
            api.lift(resource, verb);
        }
    }
    let expected = ["192.0.2.1:80 10.0.0.7:8080 active"];
    stage.until("caught up", |stage| stage.has(&expected)).await;
    stage
        .until("unsaid", |stage| stage.ignored().is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_starts_during_an_outage_waits_and_says_why() {
    // Nothing listens there.
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("bound")
    };
    let api = shop().await;
    let config = kube::Config::new(format!("http://{nobody}").parse().expect("a URL"));
    let client = kube::Client::try_from(config).expect("a client");
    let mut stage = Stage::of_client(&api, client, pace());
    stage
        .until("said", |stage| stage.problems().len() == 5)
        .await;
    let said = stage.problems();
    assert!(
        said.iter()
            .all(|p| p.contains("cannot list them: ") && p.contains("refused")),
        "{said:?}"
    );
    assert!(!stage.world.is_complete());
    assert!(!stage.world.desired().complete, "and nothing is deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_one_kind_gets_an_answer_the_others_wait_no_longer() {
    let api = shop().await;
    api.fault(SLICES, "list", Fault::Hangs);
    let mut patience = pace();
    patience.answer = Duration::from_millis(300);
    patience.first = Duration::from_mins(10);
    patience.most = Duration::from_mins(10);
    let mut stage = Stage::follow(&api, patience);
    stage
        .until("said", |stage| {
            let said = stage.problems();
            said.iter().any(|p| p.contains("no answer in time"))
        })
        .await;
    api.lift(SLICES, "list");
    // A watch that is cut after it has lived is resumed at once.
    stage
        .until("watched", |stage| stage.api.watched(NODES) == 1)
        .await;
    api.put(NODES, serde_json::json!({"metadata": {"name": "n1"}}));
    stage
        .until("listed before its ten minutes", |stage| {
            stage.api.cut(NODES);
            stage.world.is_complete()
        })
        .await;
    assert!(stage.has(WEB));
}
