//! One scenario with one contestant: a lab, a load, a rollout, what came of it. Tests and the bench
//! run the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use crate::Lab;
use crate::agent::Agent;
use crate::drive::{EachSecond, Load};
use crate::load::{Options, Sources};
use crate::manifests::{ManifestList, Manifests};
use crate::peer::NftablesPeer;
use crate::report::{Report, Traffic};
use crate::rollout::{Directory, Event, Fleet, Plan, Rollout};
use crate::serve::Kind;
use crate::stage::PORT;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// What all scenarios of a run share.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The agent's binary.
    pub agent: PathBuf,
    /// Short connections per second.
    pub rate: u64,
    /// Pods of the Service.
    pub pods: usize,
    /// Servers on the LAN behind the same Service, reached by full NAT; nobody rolls them.
    pub lan_servers: usize,
}

/// What happens to the pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// How they end.
    pub kind: Kind,
    /// How late the endpoint list is.
    pub delay: Duration,
    /// Rolling updates.
    pub updates: usize,
    /// SIGKILL for the agent with every stop, and a new one once the list has changed.
    pub kill_agent: bool,
}

impl Scenario {
    /// The same with one update.
    #[must_use]
    pub fn short(self) -> Self {
        Self { updates: 1, ..self }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, delay) = (self.kind.letter(), self.delay.as_secs_f64());
        write!(
            f,
            "kind {kind}, list {delay} s late, {} update(s)",
            self.updates
        )?;
        if self.kill_agent {
            write!(f, ", agent killed")?;
        }
        Ok(())
    }
}

/// Who balances.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Contestant {
    /// Us.
    Sluice,
    /// Us, with failover off.
    WithoutFailover,
    /// A DNAT map.
    Nftables,
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sluice => "sluice",
            Self::WithoutFailover => "no failover",
            Self::Nftables => "nftables map",
        })
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the clients saw.
    pub report: Report,
    /// What was done.
    pub rollout: Rollout,
    /// `sluice status` at the end; empty without it.
    pub status: String,
    /// The same for programs: packets by reason.
    pub reasons: BTreeMap<String, u64>,
}

impl Outcome {
    /// In one line.
    pub fn line(&self) -> String {
        let tcp = self.report.tcp();
        format!(
            "{} attempts, {} failed before SYN-ACK, {} after, {} stops; connect {}",
            tcp.attempts,
            tcp.before(),
            tcp.after(),
            self.rollout.stops,
            self.report.connect.summary()
        )
    }
}

/// Load before the first stop and after the last.
const CALM: Duration = Duration::from_millis(700);
/// Time between the list catching up and the next stop.
const SETTLE: Duration = Duration::from_millis(700);

/// How long the stops of one rolling update take.
pub fn time_of_one_update(pods: usize, delay: Duration) -> Duration {
    (delay + SETTLE) * u32::try_from(pods).unwrap_or(u32::MAX)
}

/// Runs it, and tells `watch` what happens, with milliseconds since 1970.
pub fn run(
    setting: &Setting,
    scenario: Scenario,
    contestant: Contestant,
    watch: &mut dyn FnMut(u64, &Event),
) -> Result<Outcome> {
    run_live(setting, scenario, contestant, watch, None)
}

/// The same, and `each` hears what each second of the load brought, from another thread.
pub fn run_live(
    setting: &Setting,
    scenario: Scenario,
    contestant: Contestant,
    watch: &mut dyn FnMut(u64, &Event),
    each: Option<EachSecond>,
) -> Result<Outcome> {
    let lab = Lab::builder().pods(0).lan_servers(setting.lan_servers);
    let mut lab = lab.build()?;
    let mut fleet = Fleet::begin(&mut lab, setting.pods, scenario.kind)?;
    let vip = SocketAddrV4::new(Lab::vip(0), 80);
    let manifests = Manifests::create(lab.id())?;
    let mut list = ManifestList {
        manifests: &manifests,
        vip,
        port: PORT,
    };
    let mut peer;
    let agent = RefCell::new(None);
    let directory: &mut dyn Directory = if contestant == Contestant::Nftables {
        peer = NftablesPeer::start(&lab, vip, PORT, &fleet.endpoints())?;
        &mut peer
    } else {
        list.list(&fleet.endpoints())?;
        let flags: &[&str] = if contestant == Contestant::Sluice {
            &[]
        } else {
            &["--no-failover"]
        };
        let node = lab.node(0).netns();
        *agent.borrow_mut() = Some(Agent::start(node, &setting.agent, manifests.dir(), flags)?);
        &mut list
    };

    let mut options = Options::to(vip);
    let client = lab.client(0);
    options.sources = Some(Sources(client.addrs().to_vec()));
    options.rate = setting.rate;
    options.mix = Traffic::ALL.to_vec();
    options.duration = 24.0 * 3600.0;
    options.live = each.is_some();
    let each = each.unwrap_or_else(|| Box::new(|_| {}));
    let load = Load::start_live(client.netns(), &options, each)?;
    std::thread::sleep(CALM);
    let plan = Plan {
        kind: scenario.kind,
        delay: scenario.delay,
        updates: scenario.updates,
        settle: SETTLE,
    };
    let mut failed = None;
    let rollout = super::run(&mut lab, &mut fleet, directory, plan, &mut |at, event| {
        watch(at, event);
        if scenario.kill_agent
            && let Some(agent) = agent.borrow_mut().as_mut()
            && let Err(error) = disturb(agent, event)
        {
            failed = Some(error);
        }
    })?;
    if let Some(error) = failed {
        return Err(error).context("killing and starting the agent");
    }
    std::thread::sleep(CALM);
    let report = load.stop()?;
    // Those that ignore SIGTERM were asked nothing any more: their grace period ends here.
    fleet.kill_leftovers()?;
    let (status, reasons) = match agent.borrow().as_ref() {
        Some(agent) => (agent.command(&["status"])?, reasons(agent)?),
        None => (String::new(), BTreeMap::new()),
    };
    Ok(Outcome {
        report,
        rollout,
        status,
        reasons,
    })
}

/// Packets by reason, those that never happened left out.
fn reasons(agent: &Agent) -> Result<BTreeMap<String, u64>> {
    #[derive(Deserialize)]
    struct Status {
        reasons: Vec<Row>,
    }
    #[derive(Deserialize)]
    struct Row {
        reason: String,
        packets: u64,
    }
    let text = agent.command(&["status", "-o", "json"])?;
    let status: Status = serde_json::from_str(&text).context("reading `sluice status`")?;
    let rows = status.reasons.into_iter().filter(|row| row.packets > 0);
    Ok(rows.map(|row| (row.reason, row.packets)).collect())
}

/// The agent is dead when the list changes, and comes back to find it changed.
fn disturb(agent: &mut Agent, event: &Event) -> Result<()> {
    match event {
        Event::Stopped(_) => agent.kill(),
        Event::ListedTerminating(_) => agent.run(),
        Event::Started(_) | Event::Unlisted(_) => Ok(()),
    }
}
