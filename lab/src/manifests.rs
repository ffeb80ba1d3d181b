//! A folder of manifests that a lab's agent follows: one Service and its endpoints, rewritten as
//! a whole and renamed into place, as a ConfigMap's update does.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::rollout::Directory;
use crate::teardown::TemporaryDir;

/// How an endpoint stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Condition {
    /// Takes connections.
    Ready,
    /// Told to end, and still answering.
    Terminating,
    /// Told to end, and no longer answering.
    Dead,
    /// Not ready, not terminating.
    Unready,
}

/// One endpoint of the Service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its node; none for a server on the LAN.
    pub node: Option<String>,
    /// Which pod it is.
    pub uid: String,
    /// How it stands.
    pub condition: Condition,
}

/// The folder.
#[derive(Debug)]
pub struct Manifests {
    dir: TemporaryDir,
}

impl Manifests {
    /// A new folder under the system's temporary one; removed when dropped.
    pub fn create(name: &str) -> Result<Self> {
        let dir = TemporaryDir::new(name)?;
        Ok(Self { dir })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes the Service `web` on `vip` with TCP and UDP, and its endpoints on `port`.
    pub fn write(&self, vip: SocketAddrV4, port: u16, endpoints: &[Endpoint]) -> Result<()> {
        let service_port = |protocol: &str, name: &str| json!({"name": name, "port": vip.port(), "protocol": protocol});
        let slice_port =
            |protocol: &str, name: &str| json!({"name": name, "port": port, "protocol": protocol});
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "sluice.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "lab"},
             "spec": {"addresses": [format!("{}/32", vip.ip())]}},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "lab"},
             "spec": {"type": "LoadBalancer", "loadBalancerClass": "sluice.dev/lb",
                      "ports": [service_port("TCP", "tcp"), service_port("UDP", "udp")]}},
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
             "metadata": {"name": "web-1", "namespace": "lab", "labels": {"kubernetes.io/service-name": "web"}},
             "addressType": "IPv4", "ports": [slice_port("TCP", "tcp"), slice_port("UDP", "udp")],
             "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()},
        ]});
        let new = self.dir().join(".new");
        let text = serde_json::to_vec_pretty(&list)?;
        fs::write(&new, text).with_context(|| format!("writing {}", new.display()))?;
        let path = self.dir().join("web.json");
        fs::rename(&new, &path).with_context(|| format!("renaming to {}", path.display()))
    }
}

fn endpoint(endpoint: &Endpoint) -> Value {
    let (ready, serving, terminating) = match endpoint.condition {
        Condition::Ready => (true, true, false),
        Condition::Terminating => (false, true, true),
        Condition::Dead => (false, false, true),
        Condition::Unready => (false, false, false),
    };
    json!({
        "addresses": [endpoint.address.to_string()],
        "nodeName": endpoint.node,
        "targetRef": {"kind": "Pod", "name": endpoint.uid, "uid": endpoint.uid},
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
    })
}

/// A folder that a rollout writes to.
#[derive(Debug)]
pub struct ManifestList<'a> {
    /// The folder.
    pub manifests: &'a Manifests,
    /// The Service's address and port.
    pub vip: SocketAddrV4,
    /// The endpoints' port.
    pub port: u16,
}

impl Directory for ManifestList<'_> {
    fn list(&mut self, endpoints: &[Endpoint]) -> Result<()> {
        self.manifests.write(self.vip, self.port, endpoints)
    }
}
