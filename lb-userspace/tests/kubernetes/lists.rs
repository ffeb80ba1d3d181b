//! Lists: complete or without effect, cheap at first and consistent ever after.

use crate::fake::Fault;
use crate::stage::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_lists_come_out_of_the_cache_and_are_followed_from_there() {
    let api = shop().await;
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    assert!(stage.has(WEB), "{:?}", stage.endpoints());
    for resource in [SERVICES, SLICES, NODES, POOLS, PODS] {
        let lists = api.asked(resource, "list");
        assert_eq!(lists.len(), 1, "{resource}");
        assert_eq!(lists[0].get("resourceVersion"), "0", "{resource}");
        assert_eq!(
            lists[0].get("limit"),
            "",
            "a limit makes it etcd's: {resource}"
        );
        stage
            .until("watched", |stage| stage.api.watched(resource) == 1)
            .await;
        let watch = &api.asked(resource, "watch")[0];
        assert_eq!(watch.get("resourceVersion"), api.version(), "{resource}");
        assert_eq!(watch.get("allowWatchBookmarks"), "true", "{resource}");
    }
    api.put(
        SLICES,
        slice("web", &[("10.0.0.1", "u1"), ("10.0.0.2", "u2")]),
    );
    let both = [
        "192.0.2.1:80 10.0.0.1:8080 active",
        "192.0.2.1:80 10.0.0.2:8080 active",
    ];
    stage.until("two pods", |stage| stage.has(&both)).await;
    api.delete(SLICES, "web-1");
    stage
        .until("none", |stage| stage.has(&["192.0.2.1:80"]))
        .await;
    api.delete(SERVICES, "web");
    stage.until("empty", |stage| stage.has(&[])).await;
    let lists = api.asked(SERVICES, "list").len();
    assert_eq!(lists, 1, "nothing was listed again");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_known_before_every_list_is_done() {
    let api = shop().await;
    api.fault(NODES, "list", Fault::Status(500));
    let mut stage = Stage::follow(&api, pace());
    stage
        .until("three kinds", |stage| {
            stage.world.missing() == ["Node"] && stage.api.asked(NODES, "list").len() > 3
        })
        .await;
    assert!(!stage.world.desired().complete);
    assert!(stage.has(&[]), "the model waits");
    api.lift(NODES, "list");
    stage.complete().await;
    assert!(stage.has(WEB), "{:?}", stage.endpoints());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_too_old_takes_a_new_list_which_shows_what_was_missed() {
    let api = shop().await;
    for number in 2..=5 {
        api.put(
            SERVICES,
            service(&format!("s{number}"), &format!("192.0.2.{number}")),
        );
    }
    let mut stage = Stage::follow(&api, pace());
    stage.watching().await;
    assert_eq!(stage.endpoints().len(), 5);
    // A server whose cache lags behind: it must not be believed now.
    api.freeze_cache();
    api.fault(SERVICES, "watch", Fault::Status(503));
    api.cut(SERVICES);
    api.delete(SERVICES, "s3");
    api.put(SERVICES, service("s6", "192.0.2.6"));
    api.compact();
    api.lift(SERVICES, "watch");
    let expected = [
        WEB[0],
        "192.0.2.2:80",
        "192.0.2.4:80",
        "192.0.2.5:80",
        "192.0.2.6:80",
    ];
    stage.until("caught up", |stage| stage.has(&expected)).await;
    let lists = api.asked(SERVICES, "list");
    let again: Vec<_> = lists.iter().skip(1).collect();
    assert_eq!(again.len(), 3, "five Services, two to a page: {again:?}");
    assert!(
        again
            .iter()
            .all(|list| list.get("resourceVersion").is_empty())
    );
    assert!(again.iter().all(|list| list.get("limit") == "2"));
    assert_eq!(api.asked(SLICES, "list").len(), 1, "the other kinds go on");
    api.delete(SERVICES, "s6");
    stage
        .until("followed from there", |stage| stage.has(&expected[..4]))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_old_may_also_be_the_answer_to_the_request_itself() {
    let api = shop().await;
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    api.fault(SLICES, "watch", Fault::Status(410));
    api.cut(SLICES);
    stage
        .until("listed again", |stage| {
            stage.api.asked(SLICES, "list").len() > 1
        })
        .await;
    api.lift(SLICES, "watch");
    api.put(SLICES, slice("web", &[]));
    stage
        .until("followed", |stage| stage.has(&["192.0.2.1:80"]))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_list_takes_nothing_away() {
    let api = shop().await;
    for number in 2..=5 {
        api.put(
            SERVICES,
            service(&format!("s{number}"), &format!("192.0.2.{number}")),
        );
    }
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    api.fault(SERVICES, "list", Fault::SecondPage(500));
    api.fault(SERVICES, "watch", Fault::Status(410));
    api.cut(SERVICES);
    stage
        .until("half a list, thrice", |stage| {
            let lists = &stage.lists;
            lists.iter().filter(|l| l.starts_with("Service")).count() > 3
        })
        .await;
    assert_eq!(stage.endpoints().len(), 5, "{:?}", stage.endpoints());
    assert!(stage.world.is_complete());
    api.delete(SERVICES, "s3");
    api.lift(SERVICES, "list");
    stage
        .until("whole", |stage| stage.endpoints().len() == 4)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_expired_makes_it_one_list_without_pages() {
    let api = shop().await;
    for number in 2..=5 {
        api.put(
            SERVICES,
            service(&format!("s{number}"), &format!("192.0.2.{number}")),
        );
    }
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    api.fault(SERVICES, "list", Fault::SecondPage(410));
    api.fault(SERVICES, "watch", Fault::Status(410));
    api.delete(SERVICES, "s2");
    api.cut(SERVICES);
    stage
        .until("listed at once", |stage| {
            let lists = stage.api.asked(SERVICES, "list");
            let last = lists
                .iter()
                .any(|list| list.get("limit").is_empty() && list.get("resourceVersion").is_empty());
            last && stage.endpoints().len() == 4
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_does_not_come_is_asked_for_again() {
    let api = shop().await;
    api.fault(SLICES, "list", Fault::Hangs);
    let mut patience = pace();
    patience.answer = std::time::Duration::from_millis(50);
    let mut stage = Stage::follow(&api, patience);
    stage
        .until("said", |stage| {
            stage.world.missing() == ["EndpointSlice"] && stage.api.asked(SLICES, "list").len() > 2
        })
        .await;
    api.lift(SLICES, "list");
    stage.complete().await;
    assert!(stage.has(WEB));
}
