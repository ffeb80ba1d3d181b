//! Where the agent's objects come from. Whatever it is, it speaks `WatchEvent`, and it ends only
//! when it cannot be begun.

use std::path::PathBuf;

use anyhow::Context as _;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::settings::Settings;
use crate::watch::{WatchEvent, kubernetes, manifests};

/// A source of objects.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// A folder of manifests.
    Manifests(PathBuf),
    /// The Kubernetes API.
    Kubernetes {
        /// A file that says where it is; by default it is that of the cluster this runs in.
        kubeconfig: Option<PathBuf>,
        /// Follow this node's pods.
        watch_pods: bool,
    },
}

impl Source {
    /// Whether the agent hands out addresses: in a cluster only the Service's status counts.
    pub(super) fn allocates(&self) -> bool {
        matches!(self, Self::Manifests(_))
    }
}

impl Settings {
    /// Follows the source; what it says comes by `news`.
    pub(super) async fn follow_source(
        &self,
        news: mpsc::Sender<Vec<WatchEvent>>,
    ) -> anyhow::Result<JoinHandle<anyhow::Result<()>>> {
        Ok(match &self.source {
            Source::Manifests(folder) => {
                let (folder, kept) = (folder.clone(), self.kept());
                tokio::spawn(async move {
                    let followed = manifests::follow(&folder, kept, news).await;
                    followed.context("following the manifests")
                })
            }
            Source::Kubernetes {
                kubeconfig,
                watch_pods,
            } => {
                let client = kubernetes::connect(kubeconfig.as_deref()).await?;
                let options = kubernetes::Options {
                    node_name: self.node_name.clone(),
                    watch_pods: *watch_pods,
                    pace: kubernetes::Pace::default(),
                };
                tokio::spawn(async move {
                    kubernetes::follow(client, options, news).await;
                    Ok(())
                })
            }
        })
    }
}
