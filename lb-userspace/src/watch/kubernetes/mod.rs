//! The Kubernetes API as a source: one list and one watch per kind, for as long as the agent runs.
//!
//! The client (configuration, TLS, tokens that are renewed) is kube-rs. The loop around it is our
//! own, for kube-runtime's watcher lacks what a balancer needs: its back-off starts again with
//! every failed list, a stream that is cut is resumed without a pause, a 410 that answers a request
//! is not followed by a new list, a watch that is allowed at last says nothing as long as nothing
//! changes, and it keeps whole objects.
//!
//! What must never happen: that the source ends because the API does, that a list which could not
//! be read to its end takes something away, or that a thousand agents ask in step.

mod client;
mod failure;
mod follow;
mod item;
mod kind;
mod pace;
mod report;
mod standing;

use futures::future::join_all;
use kube::Client;
use tokio::sync::mpsc;

use super::WatchEvent;
pub use client::{ConnectError, connect};
use follow::{Follower, HungUp};
use kind::{Kind, Nodes, Pods, Pools, Services, Slices};
pub use kind::{RIGHTS, Rights};
pub use pace::Pace;
use report::Report;

/// What is followed, and how patiently.
#[derive(Clone, Debug)]
pub struct Options {
    /// This node: its pods are followed.
    pub node_name: String,
    /// Follow them.
    pub watch_pods: bool,
    /// Pauses and patience.
    pub pace: Pace,
}

/// Follows the API until `events` is closed.
pub async fn follow(client: Client, options: Options, events: mpsc::Sender<Vec<WatchEvent>>) {
    let report = Report::new(events);
    let of_this_node = format!("spec.nodeName={}", options.node_name);
    let pace = &options.pace;
    let mut all = vec![
        one::<Services>(&client, None, pace, &report),
        one::<Slices>(&client, None, pace, &report),
        one::<Nodes>(&client, None, pace, &report),
        one::<Pools>(&client, None, pace, &report),
    ];
    if options.watch_pods {
        all.push(one::<Pods>(&client, Some(of_this_node), pace, &report));
    }
    for joined in join_all(all).await {
        if let Err(error) = joined {
            tracing::error!(%error, "a watch has ended: no news of its kind until the agent is restarted");
        }
    }
}

fn one<K: Kind>(
    client: &Client,
    fields: Option<String>,
    pace: &Pace,
    report: &Report,
) -> tokio::task::JoinHandle<HungUp> {
    let follower = Follower::<K>::new(client.clone(), fields, pace.clone(), report.clone());
    tokio::spawn(follower.run())
}
