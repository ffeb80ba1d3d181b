//! Watches: resumed where they ended, not too often, and not trusted when they say nothing.

use std::time::Duration;

use tokio::time::sleep;

use crate::fake::Fault;
use crate::stage::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_cut_is_resumed_and_nothing_is_lost() {
    let api = shop().await;
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    for round in 1..=5 {
        let address = format!("10.0.0.{round}");
        stage
            .until("watched", |stage| stage.api.watched(SLICES) == 1)
            .await;
        api.put(SLICES, slice("web", &[(&address, "u")]));
        api.cut(SLICES);
        let pods = [("10.0.1.1", "v"), (address.as_str(), "u")];
        api.put(SLICES, slice("web", &pods[..=(round % 2)]));
        let first = "192.0.2.1:80 10.0.1.1:8080 active";
        let second = format!("192.0.2.1:80 {address}:8080 active");
        stage
            .until("followed", |stage| {
                let mut expected = vec![second.as_str(), first];
                if round % 2 == 0 {
                    expected.remove(0);
                }
                stage.has(&expected)
            })
            .await;
    }
    assert_eq!(
        api.asked(SLICES, "list").len(),
        1,
        "it never had to list again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bookmark_is_where_the_next_watch_begins() {
    let api = shop().await;
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    stage
        .until("watched", |stage| stage.api.watched(SERVICES) == 1)
        .await;
    // Things happen elsewhere, and are forgotten.
    api.put(NODES, serde_json::json!({"metadata": {"name": "n1"}}));
    api.bookmark(SERVICES);
    stage
        .until("heard the bookmark", |stage| {
            stage.api.cut(SERVICES);
            let watches = stage.api.asked(SERVICES, "watch");
            let last = watches.last().map(|w| w.get("resourceVersion").to_owned());
            last == Some(stage.api.version())
        })
        .await;
    api.compact();
    api.put(SERVICES, service("new", "192.0.2.9"));
    stage
        .until("followed", |stage| stage.endpoints().len() == 2)
        .await;
    assert_eq!(api.asked(SERVICES, "list").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cuts_every_watch_at_once_is_not_asked_in_a_loop() {
    let api = shop().await;
    api.fault(SLICES, "watch", Fault::Cut);
    let mut patience = pace();
    patience.first = Duration::from_millis(40);
    patience.most = Duration::from_millis(500);
    let mut stage = Stage::follow(&api, patience);
    stage.complete().await;
    sleep(Duration::from_secs(1)).await;
    // 40 + 80 + 160 + 320 ms at least lie between the first five.
    let watches = api.asked(SLICES, "watch").len();
    assert!((2..=6).contains(&watches), "{watches} watches in a second");
    api.lift(SLICES, "watch");
    api.put(SLICES, slice("web", &[]));
    stage
        .until("followed", |stage| stage.has(&["192.0.2.1:80"]))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pauses_between_failures_grow() {
    let api = shop().await;
    api.fault(SLICES, "list", Fault::Status(503));
    let mut patience = pace();
    patience.first = Duration::from_millis(40);
    patience.most = Duration::from_millis(500);
    let _stage = Stage::follow(&api, patience);
    sleep(Duration::from_secs(1)).await;
    let lists = api.asked(SLICES, "list").len();
    assert!((2..=6).contains(&lists), "{lists} lists in a second");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_says_nothing_is_dead_and_one_that_has_bookmarks_is_not() {
    let api = shop().await;
    let mut patience = pace();
    patience.silence = Duration::from_millis(1500);
    let mut stage = Stage::follow(&api, patience);
    stage.complete().await;
    stage
        .until("watched", |stage| stage.api.watched(NODES) == 1)
        .await;
    stage
        .until("opened anew, and again", |stage| {
            stage.api.bookmark(NODES);
            stage.api.asked(SLICES, "watch").len() >= 3
        })
        .await;
    let lively = api.asked(NODES, "watch").len();
    assert_eq!(lively, 1, "bookmarks are a sign of life");
    assert_eq!(
        api.asked(SLICES, "list").len(),
        1,
        "it goes on from where it was"
    );
    stage
        .until("the dead ones are let go", |stage| {
            stage.api.watched(SLICES) == 1
        })
        .await;
    api.put(SLICES, slice("web", &[]));
    stage
        .until("followed", |stage| stage.has(&["192.0.2.1:80"]))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_within_the_stream_is_no_reason_to_forget() {
    let api = shop().await;
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    api.fault(SLICES, "watch", Fault::InStream(500));
    api.cut(SLICES);
    stage
        .until("said", |stage| {
            let said = stage.ignored();
            said.iter().any(|i| i.contains("as told (500)"))
        })
        .await;
    assert!(stage.has(WEB));
    api.lift(SLICES, "watch");
    stage
        .until("unsaid", |stage| stage.ignored().is_empty())
        .await;
    assert_eq!(api.asked(SLICES, "list").len(), 1, "500 is no 410");
    // A version that the server cannot make sense of: only a new list helps.
    api.fault(SLICES, "watch", Fault::Status(400));
    api.cut(SLICES);
    stage
        .until("listed again", |stage| {
            stage.api.asked(SLICES, "list").len() > 1
        })
        .await;
    assert!(stage.has(WEB));
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_do_not_all_end_at_the_same_time() {
    let api = shop().await;
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    stage
        .until("cut often", |stage| {
            stage.api.cut(SERVICES);
            stage.api.asked(SERVICES, "watch").len() > 8
        })
        .await;
    let lengths: std::collections::BTreeSet<_> = api
        .asked(SERVICES, "watch")
        .iter()
        .map(|watch| watch.get("timeoutSeconds").to_owned())
        .collect();
    assert!(lengths.len() > 2, "{lengths:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_when_nobody_listens() {
    let api = shop().await;
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    stage.hang_up();
    let ended = tokio::time::timeout(Duration::from_secs(10), &mut stage.source).await;
    ended.expect("it ends").expect("without a panic");
}
