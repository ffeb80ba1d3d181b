//! The agent with a thousand Services and ten thousand endpoints: its memory, and how long a change
//! of a manifest takes to be in the maps.
//!
//! A change is one file renamed into place; it has arrived when the frontend's entry in the pinned
//! map is another one, which is what the data plane sees. The map is looked at all the time.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use aya::maps::{HashMap, Map, MapData};
use lab::Lab;
use lab::agent::Agent;
use lab::manifests::Manifests;
use lb_common::V4;
use lb_common::abi::{Frontend, FrontendKey};
use serde_json::json;

use super::table::{Row, Target};
use crate::run;

const SERVICES: usize = 1_000;
const ENDPOINTS: usize = 10;
const CHANGES: usize = 200;
/// Resident memory, MiB.
const MEMORY: f64 = 64.0;
/// From the rename to the map, 99 of 100 changes, ms.
const LATENCY: f64 = 10.0;
/// How long one change may take before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts the agent, weighs it, changes things.
pub(super) fn measure(binary: &Path) -> Result<Vec<Row>> {
    run::step("agent: 1,000 Services with 10 endpoints each");
    let lab = Lab::builder().pods(0).build()?;
    let manifests = Manifests::create(lab.id())?;
    for service in 0..SERVICES {
        write(manifests.dir(), service, ENDPOINTS)?;
    }
    let pool = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "bench"},
        "spec": {"addresses": ["198.18.0.0/16"]},
    });
    fs::write(manifests.dir().join("pool.json"), pool.to_string())?;
    let agent = Agent::start(lab.node(0).netns(), binary, manifests.dir(), &[])?;
    let frontends = open(&agent.pins().join("v1/maps/frontends"))?;
    await_all(&frontends)?;
    let process = agent.id().context("the agent has ended")?;
    let at_first = resident(process)?;
    let mut times = Vec::with_capacity(CHANGES);
    for change in 0..CHANGES {
        let service = change * 7 % SERVICES;
        let key = key(service);
        let before = frontends.get(&key, 0).context("the frontend")?;
        let prepared = prepare(manifests.dir(), service, ENDPOINTS - 1)?;
        let began = Instant::now();
        fs::rename(&prepared, file(manifests.dir(), service))?;
        while same(frontends.get(&key, 0).context("the frontend")?, before) {
            if began.elapsed() > PATIENCE {
                bail!(
                    "change {change} is not in the map after {PATIENCE:?}\n{}",
                    agent.log()
                );
            }
            std::thread::yield_now();
        }
        times.push(began.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(Duration::from_millis(5));
    }
    let memory = resident(process)?;
    times.sort_by(f64::total_cmp);
    let at = |of_thousand: usize| times[(times.len() - 1) * of_thousand / 1000];
    Ok(vec![
        Row {
            what: "agent's memory, 1k Services, 10k endpoints".to_owned(),
            measured: memory,
            unit: "MiB",
            target: Some(Target::AtMost(MEMORY)),
            detail: format!("resident, after the changes; {at_first:.1} when all had been read"),
        },
        Row {
            what: "manifest change to map, 1k Services, p99".to_owned(),
            measured: at(990),
            unit: "ms",
            target: Some(Target::AtMost(LATENCY)),
            detail: format!("p50 {:.2} ms, max {:.2} ms of {CHANGES}", at(500), at(1000)),
        },
    ])
}

fn vip(service: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 1, 0)) + service as u32)
}

fn key(service: usize) -> FrontendKey<V4> {
    FrontendKey {
        address: V4(vip(service).octets()),
        port: 80,
        protocol: 6,
        zero: 0,
    }
}

fn same(one: Frontend, other: Frontend) -> bool {
    (one.region, one.members) == (other.region, other.members)
}

fn file(dir: &Path, service: usize) -> std::path::PathBuf {
    dir.join(format!("s{service}.json"))
}

fn write(dir: &Path, service: usize, endpoints: usize) -> Result<()> {
    let prepared = prepare(dir, service, endpoints)?;
    fs::rename(prepared, file(dir, service)).context("renaming a manifest")
}

/// Writes a Service and its slice beside the file that they belong into.
fn prepare(dir: &Path, service: usize, endpoints: usize) -> Result<std::path::PathBuf> {
    let name = format!("s{service}");
    let list: Vec<_> = (0..endpoints)
        .map(|index| {
            let address = Ipv4Addr::from(0x0a80_0000 + (service * ENDPOINTS + index) as u32);
            json!({
                "addresses": [address.to_string()], "nodeName": "n0",
                "targetRef": {"kind": "Pod", "name": format!("p{address}"), "uid": format!("u{address}")},
                "conditions": {"ready": true},
            })
        })
        .collect();
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Service",
         "metadata": {"name": name, "namespace": "bench",
                      "annotations": {"sluice.dev/addresses": vip(service).to_string()}},
         "spec": {"type": "LoadBalancer", "loadBalancerClass": "sluice.dev/lb",
                  "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
         "metadata": {"name": name, "namespace": "bench", "labels": {"kubernetes.io/service-name": name}},
         "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
         "endpoints": list},
    ]});
    let path = dir.join(format!(".s{service}"));
    fs::write(&path, objects.to_string()).context("writing a manifest")?;
    Ok(path)
}

type Frontends = HashMap<MapData, FrontendKey<V4>, Frontend>;

fn open(pin: &Path) -> Result<Frontends> {
    let data = MapData::from_pin(pin).with_context(|| pin.display().to_string())?;
    HashMap::try_from(Map::HashMap(data)).context("the map of frontends")
}

fn await_all(frontends: &Frontends) -> Result<()> {
    let began = Instant::now();
    while frontends.keys().count() < SERVICES {
        if began.elapsed() > PATIENCE {
            bail!("{} of {SERVICES} frontends", frontends.keys().count());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Resident memory of a process in MiB.
fn resident(process: u32) -> Result<f64> {
    let path = format!("/proc/{process}/status");
    let text = fs::read_to_string(&path).context(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.context("no VmRSS")?.parse::<f64>()? / 1024.0)
}
