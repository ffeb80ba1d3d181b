//! What is deployed: an ordinary Deployment without a preStop hook, and its Service.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lab::cluster::{Cluster, until};
use lab::serve::Kind;
use serde_json::Value;

/// The image of the lab's server.
pub(super) const IMAGE: &str = "docker.io/library/lab:e2e";

/// Port of the Service.
pub(super) const PORT: u16 = 80;

const READY: Duration = Duration::from_mins(2);

/// A Deployment and its Service, in the namespace `default`.
#[derive(Clone, Copy, Debug)]
pub(super) struct App {
    /// Of both.
    pub(super) name: &'static str,
    /// How its pods end.
    pub(super) kind: Kind,
    /// How many there are.
    pub(super) replicas: usize,
    /// The Service's address: what any allocator would write into its status.
    pub(super) vip: Ipv4Addr,
}

impl App {
    /// Creates it and waits until all pods are ready.
    pub(super) fn deploy(&self, cluster: &Cluster) -> Result<()> {
        cluster.kubectl().apply(&self.manifests())?;
        self.announce(cluster, self.vip)?;
        self.await_rollout(cluster)
    }

    /// Removes it and waits until no pod is left.
    pub(super) fn remove(&self, cluster: &Cluster) -> Result<()> {
        let name = self.name;
        cluster
            .kubectl()
            .run(&["delete", "service,deployment", name, "--wait=true"])?;
        until(READY, "the pods to be gone", || {
            Ok(self.pods(cluster)?.is_empty())
        })
    }

    /// Writes the Service's address into its status.
    pub(super) fn announce(&self, cluster: &Cluster, vip: Ipv4Addr) -> Result<()> {
        let patch = format!(r#"{{"status":{{"loadBalancer":{{"ingress":[{{"ip":"{vip}"}}]}}}}}}"#);
        let args = [
            "patch",
            "service",
            self.name,
            "--subresource=status",
            "--type=merge",
            "-p",
        ];
        cluster
            .kubectl()
            .run(&[&args[..], &[&patch]].concat())
            .map(|_| ())
    }

    /// Replaces every pod, the way people do, and waits until that is done.
    pub(super) fn restart(&self, cluster: &Cluster) -> Result<()> {
        let target = format!("deployment/{}", self.name);
        cluster.kubectl().run(&["rollout", "restart", &target])?;
        self.await_rollout(cluster)
    }

    /// Waits until the pods are as the Deployment says, and those before them gone.
    pub(super) fn await_rollout(&self, cluster: &Cluster) -> Result<()> {
        let target = format!("deployment/{}", self.name);
        let limit = format!("--timeout={}s", READY.as_secs());
        let waited = cluster
            .kubectl()
            .run(&["rollout", "status", &target, &limit]);
        waited.with_context(|| {
            let pods = cluster
                .kubectl()
                .run(&["describe", "pods"])
                .unwrap_or_default();
            let logs: Vec<_> = cluster
                .workers
                .iter()
                .map(lab::cluster::Worker::log)
                .collect();
            format!("{pods}\n{}", logs.join("\n"))
        })?;
        until(READY, "old pods to be gone", || {
            Ok(self.pods(cluster)?.len() == self.replicas)
        })
    }

    /// Its pods.
    pub(super) fn pods(&self, cluster: &Cluster) -> Result<Vec<Value>> {
        let selector = format!("app={}", self.name);
        let mut list = cluster.kubectl().json(&["get", "pods", "-l", &selector])?;
        Ok(std::mem::take(
            list["items"].as_array_mut().context("no list")?,
        ))
    }

    fn manifests(&self) -> String {
        let Self { name, replicas, .. } = self;
        let kind = self.kind.letter();
        format!(
            "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: default}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 30
      automountServiceAccountToken: false
      containers:
      - name: server
        image: {IMAGE}
        imagePullPolicy: Never
        command: [/lab, serve, --udp, --kind, {kind}, --name, $(POD)]
        env: [{{name: POD, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}]
        ports: [{{name: http, containerPort: 8080}}]
        readinessProbe: {{httpGet: {{path: /, port: http}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default}}
spec:
  type: LoadBalancer
  loadBalancerClass: sluice.dev/lb
  allocateLoadBalancerNodePorts: false
  selector: {{app: {name}}}
  ports:
  - {{name: http, port: {PORT}, targetPort: http, protocol: TCP}}
  - {{name: udp, port: {PORT}, targetPort: 8080, protocol: UDP}}
"
        )
    }
}
