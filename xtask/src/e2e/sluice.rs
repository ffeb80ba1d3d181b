//! The product on the cluster: `deploy/`, as people apply it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab::Lab;
use lab::cluster::{Cluster, until};
use lab::teardown::TemporaryDir;
use serde_json::json;

use crate::bpffs::{self, BPFFS};
use crate::workspace;

/// Where all is that `deploy/` makes.
const NAMESPACE: &str = "sluice-system";
const AGENT: &str = "daemonset/sluice-agent";
const READY: Duration = Duration::from_secs(90);

/// The `DaemonSet`, deployed.
#[derive(Debug)]
pub(super) struct Daemon {
    pins: PathBuf,
    dir: TemporaryDir,
}

impl Daemon {
    /// Applies `deploy/` and waits until every node's agent is ready.
    pub(super) fn deploy(cluster: &Cluster) -> Result<Self> {
        let dir = TemporaryDir::new(&format!("{}-deploy", cluster.lab.id()))?;
        bpffs::mount()?;
        let pins = Path::new(BPFFS).join(cluster.lab.id());
        // The kernel and its bpffs are this machine's: the pins of the lab must not be anybody else's. And the
        // folder has to be there before a container without the right to make it looks for it.
        std::fs::create_dir_all(&pins).with_context(|| pins.display().to_string())?;
        let left = pins.clone();
        lab::teardown::on_teardown(move || {
            let _ = std::fs::remove_dir_all(left);
        });
        let daemon = Self { pins, dir };
        let overlay = daemon.overlay("base", "sluice-agent", &[("containers", "agent")])?;
        let said = cluster.kubectl().run(&[
            "apply",
            "--server-side",
            "--validate=strict",
            "-k",
            &overlay.display().to_string(),
        ])?;
        ensure!(
            !said.to_lowercase().contains("warning"),
            "the API server warns: {said}"
        );
        let pool = json!({
            "apiVersion": "sluice.dev/v1alpha1",
            "kind": "AddressPool",
            "metadata": {"name": "lab"},
            "spec": {"addresses": [format!("{}-{}", Lab::vip(0), Lab::vip(63))]},
        });
        cluster.kubectl().apply(&pool.to_string())?;
        await_ready(cluster)?;
        Ok(daemon)
    }

    /// Removes it from the API and from every node, as deploy/README.md says.
    pub(super) fn uninstall(self, cluster: &Cluster) -> Result<()> {
        let kubectl = cluster.kubectl();
        kubectl.run(&["-n", NAMESPACE, "delete", AGENT, "--wait=true"])?;
        until(READY, "the agents to end", || {
            Ok(kubectl
                .run(&["-n", NAMESPACE, "get", "pods", "-o", "name"])?
                .is_empty())
        })?;
        let overlay = self.overlay(
            "uninstall",
            "sluice-uninstall",
            &[("initContainers", "detach"), ("containers", "stay")],
        )?;
        let overlay = overlay.display().to_string();
        kubectl.run(&["apply", "--server-side", "-k", &overlay])?;
        let limit = format!("--timeout={}s", READY.as_secs());
        let status = [
            "-n",
            NAMESPACE,
            "rollout",
            "status",
            "daemonset/sluice-uninstall",
            &limit,
        ];
        kubectl.run(&status)?;
        kubectl.run(&["delete", "-k", &overlay, "--wait=true"])?;
        let left: Vec<_> = std::fs::read_dir(&self.pins)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        ensure!(
            left.is_empty(),
            "still pinned after the uninstall: {left:?}"
        );
        kubectl.run(&["delete", "namespace", NAMESPACE, "--wait=true"])?;
        Ok(())
    }

    /// A folder of `deploy/` with the lab's pin folder in these containers of this `DaemonSet`.
    fn overlay(&self, name: &str, daemonset: &str, containers: &[(&str, &str)]) -> Result<PathBuf> {
        let overlay = self.dir.path().join(name);
        std::fs::create_dir_all(&overlay)?;
        let base = relative(&overlay, &workspace::root().join("deploy").join(name))?;
        let env = json!([{"name": "SLUICE_PIN_DIR", "value": self.pins}]);
        let spec: serde_json::Map<_, _> = containers
            .iter()
            .map(|(list, name)| ((*list).to_owned(), json!([{"name": name, "env": env}])))
            .collect();
        let patch = json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": daemonset, "namespace": NAMESPACE},
            "spec": {"template": {"spec": spec}},
        });
        let kustomization = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [base],
            "patches": [{"patch": patch.to_string()}],
        });
        std::fs::write(
            overlay.join("kustomization.yaml"),
            kustomization.to_string(),
        )?;
        Ok(overlay)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The interfaces go with their namespaces, and with them the links.
        let _ = std::fs::remove_dir_all(&self.pins);
    }
}

/// The way from one folder to another: kustomize takes no absolute ones.
fn relative(from: &Path, to: &Path) -> Result<PathBuf> {
    let from = from
        .canonicalize()
        .with_context(|| from.display().to_string())?;
    let to = to
        .canonicalize()
        .with_context(|| to.display().to_string())?;
    let up = from.components().skip(1).map(|_| "..");
    Ok(up.collect::<PathBuf>().join(to.strip_prefix("/")?))
}

/// Waits until every node's agent is ready, and those before them gone.
fn await_ready(cluster: &Cluster) -> Result<()> {
    let limit = format!("--timeout={}s", READY.as_secs());
    let args = ["-n", NAMESPACE, "rollout", "status", AGENT, &limit];
    cluster.kubectl().run(&args).map(|_| ()).with_context(|| {
        let about = |args: &[&str]| {
            let args = [&["-n", NAMESPACE], args].concat();
            cluster
                .kubectl()
                .run(&args)
                .unwrap_or_else(|error| error.to_string())
        };
        let pods = about(&["describe", "pods"]);
        format!(
            "{pods}\n{}\n{}",
            about(&["logs", AGENT, "--tail=40"]),
            cluster.workers[0].log()
        )
    })
}
