//! A Kubernetes cluster from nothing: a real control plane and real nodes, in the lab's namespaces.
//!
//! The control plane lives in the namespace of a LAN server, each node's kubelet, containerd and kube-proxy in that
//! of a lab node, and real pods on its bridge: what clients, switches and agents see is what they see of a real
//! cluster. Every process of a node is in a process and mount namespace of its own, so that all of it, containers
//! and their mounts too, ends with one process. Nothing leaves the lab.

mod control_plane;
mod kubectl;
mod node;
mod tools;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::teardown::TemporaryDir;
use crate::{Lab, LabBuilder, Proc};

pub use control_plane::{API_PORT, ControlPlane};
pub use kubectl::Kubectl;
pub use node::{ProxyMode, Worker};
pub use tools::Tools;

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its programs.
    pub tools: Tools,
    /// Images for every node: OCI layouts. The first is the pause image.
    pub images: Vec<PathBuf>,
    /// The pause image's name.
    pub pause: String,
    /// How kube-proxy programs Services.
    pub proxy: ProxyMode,
}

/// A cluster that runs; dropped, everything of it ends.
#[derive(Debug)]
pub struct Cluster {
    /// Nodes, in the lab's order; the first to end.
    pub workers: Vec<Worker>,
    /// etcd and its readers.
    pub control_plane: ControlPlane,
    /// The network.
    pub lab: Lab,
    _dir: TemporaryDir,
}

impl Cluster {
    /// Brings one up on the lab that `builder` describes, and returns once every node is ready. The builder's LAN
    /// servers and pods are not asked for: the cluster brings its own.
    pub fn up(builder: LabBuilder, options: &Options) -> Result<Self> {
        let lab = builder.pods(0).lan_servers(1).pod_routes(false).build()?;
        let dir = TemporaryDir::new(&format!("{}-cluster", lab.id()))?;
        let server = lab.lan_server(0);
        let names: Vec<_> = lab.nodes().iter().map(crate::Node::name).collect();
        let control_plane = ControlPlane::start(
            server.netns(),
            server.addr(),
            &dir.path().join("control-plane"),
            &options.tools,
            &names,
        )?;
        let workers = lab
            .nodes()
            .iter()
            .map(|node| Worker::start(node, &dir.path().join(node.name()), &control_plane, options))
            .collect::<Result<Vec<_>>>()?;
        let cluster = Self {
            workers,
            control_plane,
            lab,
            _dir: dir,
        };
        cluster.await_nodes()?;
        Ok(cluster)
    }

    /// Talks to the API as its administrator.
    pub fn kubectl(&self) -> &Kubectl {
        &self.control_plane.kubectl
    }

    fn await_nodes(&self) -> Result<()> {
        let args = [
            "get",
            "nodes",
            "-o",
            "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}",
        ];
        until(NODES_READY, "every node to be ready", || {
            let ready = self.kubectl().run(&args)?;
            Ok(ready
                .split_whitespace()
                .filter(|&word| word == "True")
                .count()
                == self.workers.len())
        })
        .with_context(|| {
            self.workers
                .iter()
                .map(Worker::log)
                .collect::<Vec<_>>()
                .join("\n")
        })
    }
}

const NODES_READY: Duration = Duration::from_mins(2);

/// Asks until the answer is yes; an error when that takes too long.
pub fn until(limit: Duration, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    loop {
        let answer = holds();
        if matches!(answer, Ok(true)) {
            return Ok(());
        }
        if started.elapsed() > limit {
            match answer {
                Err(error) => return Err(error).context(format!("waited {limit:?} for {what}")),
                Ok(_) => bail!("waited {limit:?} for {what}"),
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// An error when a process that has to run has ended, with the end of its log.
fn must_run(name: &str, proc: &mut Proc, log: &std::path::Path) -> Result<()> {
    if let Some(status) = proc.try_wait()? {
        bail!("{name} ended ({status}):\n{}", tail(log));
    }
    Ok(())
}

/// The last lines of a log.
fn tail(log: &std::path::Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}
