//! What is special about single kinds: pools that the API does not know, objects that cannot be
//! read, pods that end before their slice says so.

use serde_json::json;

use crate::fake::Fault;
use crate::stage::*;

#[tokio::test(flavor = "multi_thread")]
async fn without_the_crd_it_is_said_and_everything_else_goes_on() {
    let api = shop().await;
    api.serves(POOLS, false);
    api.put(SERVICES, service("pooled", "198.51.100.1"));
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    assert!(
        stage.has(WEB),
        "only what --allow-addresses has: {:?}",
        stage.endpoints()
    );
    let said = "API addresspools.sluice.dev: the custom resource definition \
        addresspools.sluice.dev is not installed: there are none";
    stage
        .until("said", |stage| stage.ignored().contains(&said.to_owned()))
        .await;
    assert!(stage.denied().is_empty());
    api.serves(POOLS, true);
    api.put(POOLS, pool("p", "198.51.100.0/24"));
    stage
        .until("pooled", |stage| stage.has(&[WEB[0], "198.51.100.1:80"]))
        .await;
    stage
        .until("unsaid", |stage| stage.ignored().is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_outlive_a_single_404_and_not_the_end_of_their_crd() {
    let api = shop().await;
    api.put(POOLS, pool("p", "198.51.100.0/24"));
    api.put(SERVICES, service("pooled", "198.51.100.1"));
    let mut patience = pace();
    patience.absent = std::time::Duration::from_millis(400);
    let mut stage = Stage::follow(&api, patience);
    stage.complete().await;
    assert_eq!(stage.endpoints().len(), 2);
    api.serves(POOLS, false);
    api.cut(POOLS);
    stage
        .until("asked for a list", |stage| {
            stage.api.asked(POOLS, "list").len() == 2
        })
        .await;
    stage.settle().await;
    assert_eq!(stage.endpoints().len(), 2, "one 404 is not believed");
    stage.until("gone", |stage| stage.has(WEB)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_read_stays_as_it_was_and_hides_no_other() {
    let api = shop().await;
    api.put(POOLS, pool("p", "198.51.100.0/24"));
    api.put(SERVICES, service("a", "198.51.100.1"));
    api.put(SERVICES, service("b", "203.0.113.1"));
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    let known = [WEB[0], "198.51.100.1:80"];
    assert!(stage.has(&known));
    let mut bad = pool("p", "");
    bad["spec"]["addresses"] = json!(7);
    api.put(POOLS, bad);
    let said = |stage: &mut Stage| {
        let said = stage.ignored();
        said.iter()
            .any(|i| i.starts_with("AddressPool/p: cannot be read: ") && i.contains("last good"))
    };
    stage.until("said", said).await;
    assert!(stage.has(&known), "by watch: {:?}", stage.endpoints());
    // The same in a list.
    api.fault(POOLS, "watch", Fault::Status(503));
    api.cut(POOLS);
    api.put(POOLS, pool("q", "203.0.113.0/24"));
    api.compact();
    api.lift(POOLS, "watch");
    let all = [WEB[0], "198.51.100.1:80", "203.0.113.1:80"];
    stage.until("listed again", |stage| stage.has(&all)).await;
    assert!(api.asked(POOLS, "list").len() > 1);
    assert!(said(&mut stage), "{:?}", stage.ignored());
    api.put(POOLS, pool("p", "198.51.100.0/25"));
    stage
        .until("unsaid", |stage| stage.ignored().is_empty())
        .await;
    assert!(stage.has(&all));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_this_node_drains_before_its_slice_says_so() {
    let api = shop().await;
    api.put(PODS, pod("u1", false));
    api.put(PODS, pod("u2", false));
    api.put(
        SLICES,
        slice("web", &[("10.0.0.1", "u1"), ("10.0.0.2", "u2")]),
    );
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    let list = &api.asked(PODS, "list")[0];
    assert_eq!(list.get("fieldSelector"), "spec.nodeName=n0");
    assert!(
        list.accept.contains("as=PartialObjectMetadataList"),
        "{}",
        list.accept
    );
    stage
        .until("watched", |stage| stage.api.watched(PODS) == 1)
        .await;
    let watch = &api.asked(PODS, "watch")[0];
    assert_eq!(watch.get("fieldSelector"), "spec.nodeName=n0");
    let second = "192.0.2.1:80 10.0.0.2:8080 active";
    let drains = ["192.0.2.1:80 10.0.0.1:8080 draining", second];
    api.put(PODS, pod("u1", true));
    stage.until("draining", |stage| stage.has(&drains)).await;
    api.delete(PODS, "u1");
    stage.settle().await;
    assert!(
        stage.has(&drains),
        "the slice still lists it: {:?}",
        stage.endpoints()
    );
    api.put(SLICES, slice("web", &[("10.0.0.2", "u2")]));
    stage.until("gone", |stage| stage.has(&[second])).await;
    // Force-deleted: the pod is gone without a word.
    api.delete(PODS, "u2");
    let ending = "192.0.2.1:80 10.0.0.2:8080 draining";
    stage.until("draining", |stage| stage.has(&[ending])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_may_be_left_alone() {
    let api = shop().await;
    let mut stage = Stage::with(&api, pace(), false);
    stage.complete().await;
    assert!(api.asked(PODS, "list").is_empty());
    assert!(stage.has(WEB));
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_of_headless_services_are_not_asked_for() {
    let api = shop().await;
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    let list = &api.asked(SLICES, "list")[0];
    assert_eq!(list.get("labelSelector"), "!service.kubernetes.io/headless");
    stage
        .until("watched", |stage| stage.api.watched(SLICES) == 1)
        .await;
    let watch = &api.asked(SLICES, "watch")[0];
    assert_eq!(
        watch.get("labelSelector"),
        "!service.kubernetes.io/headless"
    );
}
