//! The agent with a thousand Services: its memory, and how long a change takes from the manifest
//! to the map.
//!
//! A change is one endpoint of one Service that turns ready or unready. It begins when the file is
//! renamed into place and ends when the frontend's entry of the pinned map has the new table: the
//! last thing the agent writes. The map is read as anybody could, beside the agent.

mod manifests;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use aya::maps::{HashMap, Map, MapData};
use lab::Lab;
use lab::agent::Agent;
use lb_common::V4;
use lb_common::abi::{Frontend, FrontendKey, SCHEMA};

use super::rounds::{median, quantile};
use super::table::{Row, Target};
use crate::run;
use manifests::Folder;

/// Services, each with one port.
const SERVICES: u32 = 1_000;
/// Endpoints of each.
const ENDPOINTS: u32 = 10;
/// Changes timed.
const CHANGES: u32 = 200;
/// The LAN's gateway in the lab.
const ROUTER: &str = "192.0.2.1";
/// A prime, so that neighbours in time are none in the tables.
const STRIDE: u32 = 379;
/// How often the map is read.
const LOOK: Duration = Duration::from_micros(50);
/// When a change is given up.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two changes: each begins with the agent at rest.
const REST: Duration = Duration::from_millis(10);

const MIB: f64 = 1024.0 * 1024.0;

/// Starts an agent on a node of its own and measures it.
pub(super) fn measure(binary: &Path) -> Result<Vec<Row>> {
    run::step(&format!(
        "agent: an agent with {SERVICES} Services and {} endpoints",
        SERVICES * ENDPOINTS
    ));
    let lab = Lab::builder().pods(0).build()?;
    let node = lab.node(0).netns();
    // Endpoints of a large cluster are on other nodes: one next hop, as a router would be.
    node.run("ip", &["route", "add", manifests::PODS, "via", ROUTER])?;
    let folder = Folder::create(SERVICES, ENDPOINTS)?;
    let started = Instant::now();
    let agent = Agent::start(node, binary, folder.path(), &["--xdp-mode=native"])?;
    let started = started.elapsed();
    let frontends = Frontends::open(&agent)?;
    frontends.check(&folder)?;
    let before = memory(&agent)?;
    run::step(&format!("agent: {CHANGES} changes of one endpoint each"));
    let mut times = Vec::new();
    for change in 0..CHANGES {
        if run::interrupted() {
            bail!("interrupted");
        }
        let service = change * STRIDE % SERVICES;
        let time = frontends
            .time(&folder, service, change)
            .with_context(|| format!("change {change}; the agent says:\n{}", agent.log()))?;
        times.push(time.as_secs_f64() * 1e3);
        std::thread::sleep(REST);
    }
    let after = memory(&agent)?;
    let p99 = quantile(&times, 0.99);
    let slowest = quantile(&times, 1.0);
    Ok(vec![
        Row {
            what: format!("agent's memory, {SERVICES} Services"),
            measured: before.max(after),
            unit: "MiB",
            target: Some(Target::AtMost(64.0)),
            detail: format!(
                "resident: {before:.1} MiB when ready ({:.1} s), {after:.1} MiB after {CHANGES} changes",
                started.as_secs_f64()
            ),
        },
        Row {
            what: format!("manifest to map, {SERVICES} Services, p99"),
            measured: p99,
            unit: "ms",
            target: Some(Target::AtMost(10.0)),
            detail: format!("p50 {:.2} ms, slowest {slowest:.2} ms", median(&times)),
        },
    ])
}

/// The pinned map, read beside the agent.
struct Frontends(HashMap<MapData, FrontendKey<V4>, Frontend>);

impl Frontends {
    fn open(agent: &Agent) -> Result<Self> {
        let pin: PathBuf = [format!("v{SCHEMA}").as_str(), "maps", "frontends"]
            .iter()
            .collect();
        let path = agent.pins().join(pin);
        let data = MapData::from_pin(&path).with_context(|| path.display().to_string())?;
        Ok(Self(HashMap::try_from(Map::HashMap(data))?))
    }

    fn get(&self, service: u32) -> Result<Frontend> {
        let key = FrontendKey {
            address: manifests::vip(service).into(),
            port: manifests::PORT,
            protocol: 6,
            zero: 0,
        };
        let found = self.0.get(&key, 0);
        found.with_context(|| format!("Service {service} is not in the map"))
    }

    /// All that was asked for must be there, or the figures are those of something smaller.
    fn check(&self, folder: &Folder) -> Result<()> {
        for service in 0..folder.services() {
            let members = self.get(service)?.members;
            ensure!(
                u32::from(members) == ENDPOINTS,
                "Service {service} has {members} of {ENDPOINTS} endpoints"
            );
        }
        Ok(())
    }

    /// From the manifest to the map.
    fn time(&self, folder: &Folder, service: u32, change: u32) -> Result<Duration> {
        let before = self.get(service)?;
        let wanted = if u32::from(before.members) == ENDPOINTS {
            ENDPOINTS - 1
        } else {
            ENDPOINTS
        };
        let unready = (wanted < ENDPOINTS).then_some(change % ENDPOINTS);
        let new = folder.write_slice(service, unready)?;
        let start = Instant::now();
        new.put_in_place()?;
        while u32::from(self.get(service)?.members) != wanted {
            if start.elapsed() > PATIENCE {
                bail!("Service {service}: not in the map after {PATIENCE:?}");
            }
            std::thread::sleep(LOOK);
        }
        Ok(start.elapsed())
    }
}

/// The agent's resident memory in MiB.
fn memory(agent: &Agent) -> Result<f64> {
    let id = agent.id().context("the agent does not run")?;
    let path = format!("/proc/{id}/status");
    let status = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kib: f64 = kib.context(path)?.trim().parse()?;
    Ok(kib * 1024.0 / MIB)
}
