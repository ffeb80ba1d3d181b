//! A folder of ordinary manifests: a pool, a node, and for each Service a file of its own and one
//! for its endpoints.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Each Service's port.
pub(super) const PORT: u16 = 80;
/// Where all endpoints are.
pub(super) const PODS: &str = "10.100.0.0/16";
/// Where all VIPs are.
const VIPS: &str = "10.200.0.0/16";
const NODE: &str = "n0";

/// Address number `index` of a network, none of which ends in 0 or 255.
fn address(second: u8, index: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, second, (index / 250) as u8, (index % 250 + 1) as u8)
}

/// A Service's VIP.
pub(super) fn vip(service: u32) -> Ipv4Addr {
    address(200, service)
}

/// The folder; removed when dropped.
pub(super) struct Folder {
    path: PathBuf,
    services: u32,
    endpoints: u32,
}

/// A file that is written but not yet seen.
pub(super) struct Unseen {
    written: PathBuf,
    place: PathBuf,
}

impl Unseen {
    /// Renames it into place.
    pub(super) fn put_in_place(self) -> Result<()> {
        fs::rename(&self.written, &self.place)
            .with_context(|| format!("renaming to {}", self.place.display()))
    }
}

impl Folder {
    /// Writes all of them, every endpoint ready.
    pub(super) fn create(services: u32, endpoints: u32) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("sluice-bench-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        let left = path.clone();
        lab::teardown::on_teardown(move || {
            // Of what ended in peace nothing is left.
            let _ = fs::remove_dir_all(left);
        });
        let folder = Self {
            path,
            services,
            endpoints,
        };
        let pool = json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "AddressPool",
            "metadata": {"name": "bench"}, "spec": {"addresses": [VIPS]},
        });
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        folder.write("pool.json", &pool)?.put_in_place()?;
        folder.write("node.json", &node)?.put_in_place()?;
        for service in 0..services {
            let name = format!("{}.json", name(service));
            folder.write(&name, &manifest(service))?.put_in_place()?;
            folder.write_slice(service, None)?.put_in_place()?;
        }
        Ok(folder)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How many Services it describes.
    pub(super) fn services(&self) -> u32 {
        self.services
    }

    /// Writes a Service's endpoints, one of them perhaps not ready.
    pub(super) fn write_slice(&self, service: u32, unready: Option<u32>) -> Result<Unseen> {
        let endpoints: Vec<Value> = (0..self.endpoints)
            .map(|index| {
                let ready = unready != Some(index);
                let pod = format!("{}-{index}", name(service));
                json!({
                    "addresses": [address(100, service * self.endpoints + index).to_string()],
                    "nodeName": format!("elsewhere-{index}"),
                    "targetRef": {"kind": "Pod", "name": pod, "uid": pod},
                    "conditions": {"ready": ready, "serving": ready, "terminating": false},
                })
            })
            .collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{}-1", name(service)), "namespace": "bench",
                "labels": {"kubernetes.io/service-name": name(service)},
            },
            "addressType": "IPv4", "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
            "endpoints": endpoints,
        });
        self.write(&format!("{}-endpoints.json", name(service)), &slice)
    }

    fn write(&self, name: &str, object: &Value) -> Result<Unseen> {
        let written = self.path.join(".new");
        let text = serde_json::to_vec(object)?;
        fs::write(&written, text).with_context(|| written.display().to_string())?;
        Ok(Unseen {
            written,
            place: self.path.join(name),
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in the temporary folder hurts nobody.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn name(service: u32) -> String {
    format!("service-{service:04}")
}

fn manifest(service: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name(service), "namespace": "bench"},
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "sluice.dev/lb",
            "loadBalancerIP": vip(service).to_string(),
            "ports": [{"port": PORT, "protocol": "TCP", "targetPort": 8080}],
        },
    })
}
