//! The agent's loop: watch -> model -> drain -> plan -> apply, and the clock.
//!
//! Everything in between is a function of what it is told; this file alone reads the clock, waits
//! and carries out. Each source of news ends in [`Agent::round`], which brings the kernel in line
//! with what is known now. Nothing here may stop traffic: an error is kept, shown and tried again,
//! and when the agent ends, programs and maps stay where they are.

mod announce;
mod attached;
mod complaints;
mod conflicts;
mod drain;
mod exits;
mod hops;
mod http;
mod lives;
mod reset;
mod round;
mod settings;
mod sight;
mod snapshot;
mod source;
mod upkeep;
mod uplink;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use lb_common::V4;
use nix::time::{ClockId, clock_gettime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

pub use settings::Settings;
pub use source::Source;

use crate::apply::{DrainBook, Executor, KernelStore, read_back};
use crate::load::{Datapath, Options};
use crate::model::{Allocations, World};
use crate::netlink::{Event, Links, NextHops, Pods, Watch, links};
use crate::observe::metrics::Metrics;
use crate::observe::pins::PinnedMaps;
use crate::observe::state::{MapFill, StateSnapshot};
use crate::plan::{Lives, NextHop, Planner, Scope};
use crate::timer::drain::{DrainSettings, Drains};
use crate::watch::WatchEvent;
use announce::Announcer;
use lives::report;
use uplink::Uplink;

/// How often time itself is news: deadlines, retries, announcements.
const TICK: Duration = Duration::from_millis(250);
/// How often it is looked whether the programs are still where they were attached.
const VERIFY: Duration = Duration::from_secs(1);
/// How often the flow table is swept.
const SWEEP: Duration = Duration::from_secs(5);
/// A snapshot of everything may take one part of so many of the loop's time.
const SNAPSHOT_SHARE: u32 = 200;
/// How often map fills are counted.
const FILLS: Duration = Duration::from_secs(30);

/// Runs until SIGTERM or SIGINT. Programs and maps stay in the kernel.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    let mut watch = Watch::open().context("listening to the kernel's network events")?;
    let mut agent = Agent::start(settings)?;
    let (news, mut batches) = mpsc::channel(64);
    let source = agent.settings.follow_source(news).await?;
    let http = agent.serve_http().await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut tick = every(TICK);
    let mut verify = every(VERIFY);
    let mut sweep = every(SWEEP);
    let mut fills = every(FILLS);
    let mut resets = every(reset::PACE);
    let mut announcements = every(announce::PACE);
    loop {
        tokio::select! {
            batch = batches.recv() => match batch {
                Some(batch) => agent.told(batch),
                None => return source.await?,
            },
            event = watch.next() => {
                if event.is_none() {
                    watch = Watch::open().context("listening to the kernel's network events")?;
                }
                agent.network(&event.unwrap_or(Event::Lost));
            }
            _ = tick.tick() => agent.time_passed(),
            _ = verify.tick() => agent.verify(),
            _ = sweep.tick() => agent.sweep(),
            _ = announcements.tick(), if agent.announcer.is_behind() => agent.announce(),
            _ = resets.tick(), if agent.resets.is_busy() => agent.reset_some(),
            _ = fills.tick() => agent.count(),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
        agent
            .turned
            .store(boot_clock().as_secs(), Ordering::Relaxed);
    }
    tracing::info!("ending; programs and maps stay attached");
    http.abort();
    source.abort();
    Ok(())
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Time since boot, suspension included.
fn boot_clock() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

struct Agent {
    settings: Settings,
    datapath: Datapath,
    world: World,
    drains: Drains,
    /// The drains' records, as they are pinned.
    book: DrainBook,
    lives: Lives,
    had: drain::Had,
    resets: reset::Resets,
    planner: Planner,
    executor: Executor,
    links: Links,
    uplinks: BTreeMap<String, Uplink>,
    exits: exits::Exits,
    next_hops: NextHops,
    /// The same, resolved.
    hops: BTreeMap<Ipv4Addr, NextHop>,
    /// Some of them may be nobody's any more.
    hops_unneeded: bool,
    pods: Pods,
    announcer: Announcer,
    complaints: complaints::Complaints,
    conflicts: conflicts::Conflicts,
    fills: Vec<MapFill>,
    usage: BTreeMap<u32, u32>,
    metrics: Arc<Metrics>,
    snapshots: watch::Sender<Arc<StateSnapshot>>,
    turned: Arc<AtomicU64>,
    snapshot_due: bool,
    /// Not before that.
    next_snapshot: Duration,
    /// Allocations as they were written to the file.
    remembered: Allocations,
}

impl Agent {
    fn start(settings: Settings) -> anyhow::Result<Self> {
        let mut datapath = Datapath::open(Options::default().pin_dir(&settings.pin_dir))?;
        for rebuilt in &datapath.rebuilt {
            tracing::warn!(
                map = rebuilt.map,
                "had another shape and was made anew: what it held is lost"
            );
        }
        let applied = read_back(&KernelStore::new(&mut datapath.maps))
            .context("reading the maps of an earlier agent")?;
        let now = boot_clock();
        let timeouts = DrainSettings {
            drain_timeout: settings.drain_timeout,
            ..Default::default()
        };
        let (drains, book) = drain::restore(timeouts, &datapath.maps, &applied, now)?;
        let resets = reset::Resets::new(datapath.flows()?, &applied, now);
        let planner = Planner::adopt(applied, now);
        let prior = settings.read_allocations()?;
        let counters = PinnedMaps::open(&settings.pin_dir)?.counters()?;
        let (snapshots, _) = watch::channel(Arc::new(StateSnapshot::default()));
        let mut agent = Self {
            had: drain::had(&prior),
            remembered: prior.clone(),
            world: World::new(settings.context(), prior),
            drains,
            book,
            lives: Lives::new(),
            resets,
            planner,
            executor: Executor::default(),
            links: Links::default(),
            uplinks: settings
                .interfaces
                .iter()
                .map(|name| (name.clone(), Uplink::default()))
                .collect(),
            exits: exits::Exits::default(),
            next_hops: NextHops::default(),
            hops: BTreeMap::new(),
            hops_unneeded: false,
            pods: Pods::default(),
            announcer: Announcer::default(),
            complaints: complaints::Complaints::default(),
            conflicts: conflicts::Conflicts::default(),
            fills: Vec::new(),
            usage: BTreeMap::new(),
            metrics: Arc::new(Metrics::new(env!("CARGO_PKG_VERSION"), Arc::new(counters))),
            snapshots,
            turned: Arc::new(AtomicU64::new(boot_clock().as_secs())),
            snapshot_due: true,
            next_snapshot: Duration::ZERO,

            settings,
            datapath,
        };
        uplink::keep_quiet("all");
        agent.network(&Event::Lost);
        agent.let_go()?;
        Ok(agent)
    }

    /// The source has news.
    fn told(&mut self, batch: Vec<WatchEvent>) {
        for event in batch {
            self.world.apply(event);
        }
        let now = boot_clock();
        self.reserve();
        self.world.desired();
        let changes = self.world.take_changes();
        let mut keys = changes.frontends;
        let whole = changes.completed || !changes.vips.is_empty();
        let desired = self.world.desired();
        let effects = if whole {
            self.drains.observe(desired, now)
        } else {
            self.drains.observe_some(desired, &keys, now)
        };
        let followed = self.follow(&effects);
        let others = !followed.is_empty();
        keys.extend(followed);
        let keys: Vec<_> = keys.into_iter().collect();
        self.round(
            if whole {
                Scope::All
            } else {
                Scope::Frontends(&keys)
            },
            now,
        );
        if others {
            self.watch_pods();
        }
        if self.world.allocations() != &self.remembered {
            self.remembered.clone_from(self.world.allocations());
            self.settings.write_allocations(&self.remembered);
        }
        self.metrics.observe_apply(boot_clock().saturating_sub(now));
    }

    /// The kernel has news of the network.
    fn network(&mut self, event: &Event) {
        let changed = match event {
            Event::Link(link) => self.links.insert(link.clone()).is_some(),
            Event::LinkGone { index, .. } => self.links.remove(*index).is_some(),
            Event::Lost => match links() {
                Ok(now) => !self.links.replace(now).is_empty(),
                Err(error) => {
                    tracing::warn!(%error, "cannot list the interfaces");
                    false
                }
            },
            Event::AddressesChanged { .. } => true,
            Event::Neighbour(_)
            | Event::NeighbourGone(_)
            | Event::BridgePortLearned { .. }
            | Event::BridgePortForgot { .. }
            | Event::Route { .. }
            | Event::RouteGone { .. } => false,
        };
        if changed {
            self.attach();
        } else if event.concerns_default_route() {
            self.follow_default_routes();
        }
        let moved = self.next_hops.handle(event);
        let rerouted = matches!(
            event,
            Event::Route { .. } | Event::RouteGone { .. } | Event::Lost
        );
        if rerouted {
            report(self.next_hops.reroute());
        } else if moved {
            report(self.next_hops.refresh());
        }
        let now = boot_clock();
        let keys: Vec<_> = self.see(event, now).into_iter().collect();
        if changed || moved || rerouted {
            self.round(Scope::All, now);
        } else if !keys.is_empty() {
            self.round(Scope::Frontends(&keys), now);
        }
    }

    /// Time has passed: deadlines, retries, announcements.
    fn time_passed(&mut self) {
        let now = boot_clock();
        let effects = self.drains.handle_timeout(now);
        let keys: Vec<_> = self.follow(&effects).into_iter().collect();
        if !keys.is_empty() {
            self.round(Scope::Frontends(&keys), now);
        } else if !self.executor.is_clean() {
            match self.executor.retry(&self.planner) {
                Some(keys) => self.round(Scope::Frontends(&keys), now),
                None => self.round(Scope::All, now),
            }
        }
        if self.uplinks.values().any(Uplink::wants_retry) || self.exits.wants_retry() {
            self.attach();
        }
        self.announce();
        if self.snapshot_due && now >= self.next_snapshot {
            self.publish(now);
        }
    }

    /// VIPs of this node.
    fn vips(&self) -> BTreeSet<V4> {
        self.planner.applied().vips.keys().copied().collect()
    }

    /// Shows what is known to whoever asks.
    fn publish(&mut self, now: Duration) {
        self.snapshot_due = false;
        let snapshot = snapshot::of(&mut snapshot::Parts {
            settings: &self.settings,
            world: &mut self.world,
            drains: &self.drains,
            planner: &self.planner,
            executor: &self.executor,
            uplinks: &self.uplinks,
            exits: &self.exits,
            fills: &self.fills,
            usage: &self.usage,
            book: &self.book,
            now,
        });
        self.complaints.look(&snapshot.ignored);
        self.metrics.update(&snapshot);
        self.snapshots.send_replace(Arc::new(snapshot));
        let done = boot_clock();
        self.next_snapshot = done + done.saturating_sub(now) * SNAPSHOT_SHARE;
    }
}
