//! The load generator: several kinds of traffic at one target at once, every failure counted on its side of SYN-ACK.
//!
//! Short connections come at a rate, whatever becomes of the earlier ones (an open loop: a slow target must not slow
//! its own accuser); the other kinds hold a number of connections. It must never make its own figures better than
//! they are: no resets instead of closes, no retries, and what this machine could not do is counted as such.

mod connect;
pub mod fetch;
mod held;
mod live;
mod options;
mod short;
mod udp;

use std::io::BufRead;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

pub use live::Second;
pub use options::{Options, Sources};

use crate::report::{Outcome, Report, Traffic};

/// Connections under way at most; beyond, attempts are skipped, and counted.
const MAX_IN_FLIGHT: usize = 20_000;

/// Runs the load to its end (time, count, SIGINT or SIGTERM) and gives the report.
pub async fn run(options: Options) -> Result<Report> {
    let (soft, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).context("reading the limit of open files")?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
            .context("raising the limit of open files")?;
    }
    let mut interrupt = signal(SignalKind::interrupt()).context("catching SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("catching SIGTERM")?;
    if options.barrier {
        wait_for_go().await?;
    }

    let (stop, stopped) = watch::channel(false);
    let run = Arc::new(Run::new(options, stopped));
    // Every task holds a sender: when the last one is gone, receiving ends.
    let (open, mut all_done) = mpsc::channel::<()>(1);
    start_held(&run, &open);
    if run.options.live {
        let (run, open) = (Arc::clone(&run), open.clone());
        tokio::spawn(async move {
            live::tell(&run).await;
            drop(open);
        });
    }
    tokio::select! {
        () = attempts(&run, &open) => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    stop.send(true).ok();
    drop(open);
    // All tasks end by their own timeouts; a second signal is for those who cannot wait.
    tokio::select! {
        _ = all_done.recv() => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    let mut report = std::mem::take(&mut *run.report());
    report.started_ms = run.clock.ms(run.clock.started);
    report.ended_ms = run.clock.now_ms();
    Ok(report)
}

/// What all tasks of a run share.
struct Run {
    options: Options,
    sources: Vec<Ipv4Addr>,
    next_source: AtomicUsize,
    report: Mutex<Report>,
    stopped: watch::Receiver<bool>,
    clock: Clock,
}

impl Run {
    fn new(options: Options, stopped: watch::Receiver<bool>) -> Self {
        let sources = options
            .sources
            .clone()
            .map(|sources| sources.0)
            .unwrap_or_default();
        Self {
            sources,
            options,
            next_source: AtomicUsize::new(0),
            report: Mutex::default(),
            stopped,
            clock: Clock::start(),
        }
    }

    /// Sources take turns; none given, the kernel chooses.
    fn source(&self) -> Ipv4Addr {
        let turn = self.next_source.fetch_add(1, Ordering::Relaxed);
        match self.sources.len() {
            0 => Ipv4Addr::UNSPECIFIED,
            count => self.sources[turn % count],
        }
    }

    /// Held for single updates only, never across an await.
    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcome(
        &self,
        traffic: Traffic,
        outcome: Outcome,
        at_ms: u64,
        detail: impl FnOnce() -> String,
    ) {
        self.report().outcome(traffic, outcome, at_ms, detail);
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Returns when the run is over.
    async fn stop(&self) {
        // The sender outlives all tasks; were it gone, the run would be over as well.
        self.stopped.clone().wait_for(|stopped| *stopped).await.ok();
    }

    /// Sleeps, at most until the run is over.
    async fn pause(&self, duration: Duration) {
        tokio::select! {
            () = sleep(duration) => {}
            () = self.stop() => {}
        }
    }
}

/// Times since 1970 that never step back: the wall clock is read once.
struct Clock {
    started: Instant,
    since_1970: Duration,
}

impl Clock {
    fn start() -> Self {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            started: Instant::now(),
            since_1970,
        }
    }

    fn ms(&self, at: Instant) -> u64 {
        u64::try_from((self.since_1970 + at.duration_since(self.started)).as_millis())
            .unwrap_or(u64::MAX)
    }

    fn now_ms(&self) -> u64 {
        self.ms(Instant::now())
    }
}

async fn wait_for_go() -> Result<()> {
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new()))
        .await
        .context("waiting for the start")?
        .context("reading the start line")?;
    Ok(())
}

fn start_held(run: &Arc<Run>, open: &mpsc::Sender<()>) {
    macro_rules! start {
        ($count:expr, $task:path) => {
            let count = $count;
            for index in 0..count {
                let (run, open) = (Arc::clone(run), open.clone());
                tokio::spawn(async move {
                    // Spread over the think time, or all would ask in the same moment for ever.
                    run.pause(run.options.think() * index / count).await;
                    $task(&run).await;
                    drop(open);
                });
            }
        };
    }
    let options = &run.options;
    start!(options.count_of(Traffic::Keepalive), held::keepalive);
    start!(options.count_of(Traffic::Download), held::download);
    start!(options.count_of(Traffic::Idle), held::idle);
    start!(options.count_of(Traffic::Udp), udp::exchanges);
}

/// Starts short connections at their rate until time or count is reached.
async fn attempts(run: &Arc<Run>, open: &mpsc::Sender<()>) {
    let options = &run.options;
    let rate = if options.has(Traffic::Short) {
        options.rate
    } else {
        0
    };
    let limit = options.count.unwrap_or(u64::MAX);
    let duration = Duration::from_secs_f64(options.duration);
    let in_flight = Arc::new(AtomicUsize::new(0));
    let mut started = 0;
    let mut tick = interval(Duration::from_millis(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut now = Duration::ZERO;
    while now < duration && started < limit {
        tick.tick().await;
        // Cut at the end, so that a late last tick still starts all that was due, and no more.
        now = run.clock.started.elapsed().min(duration);
        let due = now.as_micros() * u128::from(rate) / 1_000_000;
        let due = u64::try_from(due).unwrap_or(u64::MAX).min(limit);
        for _ in started..due {
            if in_flight.load(Ordering::Relaxed) >= MAX_IN_FLIGHT {
                run.outcome(
                    Traffic::Short,
                    Outcome::Skipped,
                    run.clock.now_ms(),
                    String::new,
                );
                continue;
            }
            in_flight.fetch_add(1, Ordering::Relaxed);
            let (run, open, in_flight) = (Arc::clone(run), open.clone(), Arc::clone(&in_flight));
            tokio::spawn(async move {
                short::connection(&run).await;
                in_flight.fetch_sub(1, Ordering::Relaxed);
                drop(open);
            });
        }
        started = started.max(due);
    }
}
