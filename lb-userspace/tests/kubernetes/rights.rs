//! A missing right: named by verb and resource while it is missing, and no longer.

use lb_userspace::watch::kubernetes::RIGHTS;

use crate::fake::Fault;
use crate::stage::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_refused_is_named_and_so_is_a_watch() {
    for (resource, named) in [
        (SERVICES, "services"),
        (SLICES, "endpointslices.discovery.k8s.io"),
        (NODES, "nodes"),
        (POOLS, "addresspools.sluice.dev"),
        (PODS, "pods"),
    ] {
        let api = shop().await;
        api.fault(resource, "list", Fault::Status(403));
        api.fault(resource, "watch", Fault::Status(403));
        let mut stage = Stage::follow(&api, pace());
        let list = format!("list {named}");
        stage
            .until("refused to list", |stage| stage.denied() == [list.clone()])
            .await;
        // Pods are no part of being complete: an agent may do without.
        if resource == PODS {
            stage.complete().await;
        }
        assert_eq!(stage.world.is_complete(), resource == PODS, "{resource}");
        api.lift(resource, "list");
        let watch = format!("watch {named}");
        stage
            .until("refused to watch", |stage| {
                stage.denied() == [watch.clone()]
            })
            .await;
        stage.complete().await;
        api.lift(resource, "watch");
        // Nothing changes in the cluster: the grant alone must be noticed.
        stage
            .until("granted", |stage| stage.denied().is_empty())
            .await;
        assert!(stage.has(WEB));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_are_taken_away_later_take_nothing_else_away() {
    let api = shop().await;
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    for resource in [SERVICES, SLICES] {
        api.fault(resource, "list", Fault::Status(403));
        api.fault(resource, "watch", Fault::Status(403));
        api.cut(resource);
    }
    stage
        .until("both named", |stage| {
            stage.denied() == ["watch endpointslices.discovery.k8s.io", "watch services"]
        })
        .await;
    let asked = api.asked(SLICES, "watch").len();
    stage
        .until("tried on", |stage| {
            stage.api.asked(SLICES, "watch").len() > asked + 3
        })
        .await;
    assert!(stage.has(WEB), "{:?}", stage.endpoints());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_asked_beyond_the_rights() {
    let api = shop().await;
    let mut stage = Stage::follow(&api, pace());
    stage.complete().await;
    let resources: Vec<_> = RIGHTS.iter().map(|right| right.resource).collect();
    for resource in &resources {
        stage
            .until("watched", |stage| stage.api.watched(resource) == 1)
            .await;
    }
    let all = api.all_asked();
    assert!(
        all.iter()
            .all(|asked| resources.contains(&asked.resource.as_str()))
    );
    let paths: std::collections::BTreeSet<_> = all.iter().map(|a| a.path.as_str()).collect();
    let expected = RIGHTS.map(|right| match right.group {
        "" => format!("/api/v1/{}", right.resource),
        "sluice.dev" => format!("/apis/sluice.dev/v1alpha1/{}", right.resource),
        group => format!("/apis/{group}/v1/{}", right.resource),
    });
    assert_eq!(paths, expected.iter().map(String::as_str).collect());
}
