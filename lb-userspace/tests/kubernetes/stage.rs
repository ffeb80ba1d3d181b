//! A world that is fed from the fake API server, and words for what it should look like.

use std::time::Duration;

use kube::Client;
use lb_userspace::desired::{Endpoint, Ignored};
use lb_userspace::model::{Allocations, Context, World};
use lb_userspace::watch::WatchEvent;
use lb_userspace::watch::kubernetes::{Options, Pace, follow};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::fake::Api;

pub(crate) const SERVICES: &str = "services";
pub(crate) const SLICES: &str = "endpointslices";
pub(crate) const NODES: &str = "nodes";
pub(crate) const POOLS: &str = "addresspools";
pub(crate) const PODS: &str = "pods";

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// Patience of a test.
pub(crate) fn pace() -> Pace {
    Pace {
        first: Duration::from_millis(10),
        most: Duration::from_millis(80),
        answer: Duration::from_secs(5),
        silence: Duration::from_mins(1),
        settled: Duration::from_millis(50),
        absent: Duration::from_millis(40),
        page: 2,
    }
}

pub(crate) struct Stage {
    pub(crate) api: Api,
    pub(crate) world: World,
    pub(crate) source: JoinHandle<()>,
    events: Option<Receiver<Vec<WatchEvent>>>,
    /// Every `Init` so far, as text: lists that were begun.
    pub(crate) lists: Vec<String>,
    /// What the source says is wrong, also before the world is complete.
    problems: Vec<String>,
}

impl Stage {
    /// The API server, and an agent's source that follows it.
    pub(crate) fn follow(api: &Api, pace: Pace) -> Self {
        Self::with(api, pace, true)
    }

    pub(crate) fn with(api: &Api, pace: Pace, watch_pods: bool) -> Self {
        Self::new(api, api.client(), pace, watch_pods)
    }

    pub(crate) fn of_client(api: &Api, client: Client, pace: Pace) -> Self {
        Self::new(api, client, pace, true)
    }

    fn new(api: &Api, client: Client, pace: Pace, watch_pods: bool) -> Self {
        let (news, events) = mpsc::channel(64);
        let options = Options {
            node_name: "n0".to_owned(),
            watch_pods,
            pace,
        };
        let mut context = Context::new("n0");
        context.allocate = false;
        context.allow_addresses = vec!["192.0.2.0/24".parse().expect("a network")];
        Self {
            api: api.clone(),
            world: World::new(context, Allocations::default()),
            source: tokio::spawn(follow(client, options, news)),
            events: Some(events),
            lists: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Listens no more.
    pub(crate) fn hang_up(&mut self) {
        self.events = None;
    }

    fn take(&mut self, batch: Vec<WatchEvent>) {
        for event in batch {
            let text = format!("{event:?}");
            if text.ends_with("(Init)") {
                self.lists.push(text);
            }
            if let WatchEvent::Problems(problems) = &event {
                let words = |p: &Ignored| format!("{}: {}", p.object, p.reason);
                self.problems = problems.iter().map(words).collect();
            }
            self.world.apply(event);
        }
    }

    /// Listens until it is so.
    #[track_caller]
    pub(crate) fn until<'a>(
        &'a mut self,
        what: &'a str,
        so: impl Fn(&mut Self) -> bool + 'a,
    ) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let end = Instant::now() + LONG;
            while !so(self) {
                let events = self.events.as_mut().expect("listening");
                tokio::select! {
                    batch = events.recv() => {
                        let batch = batch.expect("the source goes on");
                        self.take(batch);
                    }
                    // The condition may be about the server.
                    () = tokio::time::sleep(Duration::from_millis(5)) => {}
                    () = sleep_until(end) => panic!(
                        "{caller}: never {what}; {:?}, missing {:?}, ignored {:?}",
                        self.endpoints(), self.world.missing(), self.ignored()
                    ),
                }
            }
        }
    }

    /// Until the first lists are done.
    #[track_caller]
    pub(crate) fn complete(&mut self) -> impl Future<Output = ()> + '_ {
        self.until("complete", |stage| stage.world.is_complete())
    }

    /// Until the first lists are done and every kind is watched.
    pub(crate) async fn watching(&mut self) {
        self.complete().await;
        for resource in [SERVICES, SLICES, NODES, POOLS, PODS] {
            self.until("watched", |stage| stage.api.watched(resource) == 1)
                .await;
        }
    }

    /// Takes what is there already and a moment more.
    pub(crate) async fn settle(&mut self) {
        let end = Instant::now() + Duration::from_millis(30);
        while let Ok(Some(batch)) = {
            let events = self.events.as_mut().expect("listening");
            timeout(end.saturating_duration_since(Instant::now()), events.recv()).await
        } {
            self.take(batch);
        }
    }

    /// Every endpoint of every frontend, in words.
    pub(crate) fn endpoints(&mut self) -> Vec<String> {
        let frontends = self.world.desired().frontends.iter();
        let all = frontends.flat_map(|(key, frontend)| {
            let words = |e: &Endpoint| {
                format!(
                    "{}:{} {} {}",
                    key.address,
                    key.port,
                    e.address,
                    e.state.as_str()
                )
            };
            let endpoints: Vec<_> = frontend.endpoints.iter().map(words).collect();
            if endpoints.is_empty() {
                vec![format!("{}:{}", key.address, key.port)]
            } else {
                endpoints
            }
        });
        all.collect()
    }

    /// Whether exactly these are there.
    pub(crate) fn has(&mut self, expected: &[&str]) -> bool {
        self.endpoints() == expected
    }

    pub(crate) fn ignored(&mut self) -> Vec<String> {
        let ignored = self.world.desired().ignored.iter();
        ignored
            .map(|i| format!("{}: {}", i.object, i.reason))
            .collect()
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }

    pub(crate) fn denied(&self) -> Vec<String> {
        let denied = self.world.denied().iter();
        denied
            .map(|r| format!("{} {}", r.verb, r.resource))
            .collect()
    }
}

/// A Service that has this VIP.
pub(crate) fn service(name: &str, vip: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name, "managedFields": [{"manager": "m"}]},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "sluice.dev/lb",
            "ports": [{"port": 80, "targetPort": 8080}]},
        "status": {"loadBalancer": {"ingress": [{"ip": vip, "ipMode": "VIP"}]}},
    })
}

/// A slice of a Service, with these pods: address and uid.
pub(crate) fn slice(service: &str, pods: &[(&str, &str)]) -> Value {
    let endpoints: Vec<_> = pods
        .iter()
        .map(|(address, uid)| {
            json!({"addresses": [address], "nodeName": "n0",
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "targetRef": {"kind": "Pod", "name": "p", "uid": uid}})
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "shop", "name": format!("{service}-1"),
            "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    })
}

/// A pod of this node.
pub(crate) fn pod(uid: &str, terminating: bool) -> Value {
    let mut pod = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"namespace": "shop", "name": uid, "uid": uid},
    });
    if terminating {
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
    }
    pod
}

pub(crate) fn pool(name: &str, network: &str) -> Value {
    json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "AddressPool",
        "metadata": {"name": name}, "spec": {"addresses": [network]},
    })
}

/// A server with one Service `web` on 192.0.2.1 and one pod, and a node.
pub(crate) async fn shop() -> Api {
    let api = Api::start().await;
    api.put(NODES, json!({"metadata": {"name": "n0"}}));
    api.put(SERVICES, service("web", "192.0.2.1"));
    api.put(SLICES, slice("web", &[("10.0.0.1", "u1")]));
    api
}

/// What follows from [`shop`].
pub(crate) const WEB: &[&str] = &["192.0.2.1:80 10.0.0.1:8080 active"];
