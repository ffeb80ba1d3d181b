//! Where the API is and who we are to it: the pod's own account, or a kubeconfig file.
//!
//! Nothing is looked for in a home directory: an agent on a plain machine must not serve some
//! cluster because somebody has worked there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use thiserror::Error;

/// For a connection. Answers have a patience of their own.
const CONNECT: Duration = Duration::from_secs(5);

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// Neither manifests nor a cluster.
    #[error(
        "no --manifests, no --kubeconfig, and this is no pod with a service account: {0}; expected one of the three"
    )]
    NotInCluster(#[source] InClusterError),
    /// The file cannot be used.
    #[error("--kubeconfig {path}: {error}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: KubeconfigError,
    },
    /// Certificates or keys cannot be used.
    #[error("the Kubernetes client cannot be set up: {0}")]
    Client(#[source] kube::Error),
}

/// A client for the cluster of the kubeconfig file, or for the one that this pod runs in. It reads
/// files and connects to nothing.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => from_file(path)
            .await
            .map_err(|error| ConnectError::Kubeconfig {
                path: path.to_owned(),
                error,
            })?,
        None => Config::incluster().map_err(ConnectError::NotInCluster)?,
    };
    config.connect_timeout = Some(CONNECT);
    // We have our own pauses; two layers of them would multiply.
    config.default_retry = false;
    Client::try_from(config).map_err(ConnectError::Client)
}

async fn from_file(path: &Path) -> Result<Config, KubeconfigError> {
    let file = Kubeconfig::read_from(path)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await
}
