//! `kubectl rollout restart` under load, and what clients saw of it.

use std::fmt;
use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::{Result, bail};
use lab::cluster::{Cluster, until};
use lab::drive::Load;
use lab::load::{Options, Sources};
use lab::report::{Report, Traffic};

use super::app::{App, PORT};
use crate::run;

/// One scenario's outcome.
#[derive(Debug)]
pub(super) struct Row {
    what: String,
    /// Ours: has to be without a failure.
    ours: bool,
    rounds: usize,
    report: Report,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Rows(Vec<Row>);

impl Rows {
    /// One more, said at once.
    pub(super) fn push(&mut self, row: Row) {
        run::note(&format!("    {row}"));
        self.0.push(row);
    }

    /// An error when a client of ours saw what it must not see.
    pub(super) fn verdict(&self) -> Result<()> {
        let failed: Vec<_> = self
            .0
            .iter()
            .filter(|row| row.ours && row.report.tcp().before() > 0)
            .map(ToString::to_string)
            .collect();
        if !failed.is_empty() {
            bail!("failed before SYN-ACK:\n{}", failed.join("\n"));
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tcp = self.report.tcp();
        let share = |failed: u64| failed as f64 * 100.0 / tcp.attempts.max(1) as f64;
        write!(
            f,
            "{:<34} {:>3} rollouts {:>8} connections {:>6} failed before SYN-ACK ({:.2} %) {:>5} after ({:.2} %); connect {}",
            self.what,
            self.rounds,
            tcp.attempts,
            tcp.before(),
            share(tcp.before()),
            tcp.after(),
            share(tcp.after()),
            self.report.connect.summary()
        )
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}

/// Rollouts with kube-proxy serving the VIP: the client is told that the node is the way there.
pub(super) fn through_kube_proxy(
    cluster: &Cluster,
    app: &App,
    rate: u64,
    rounds: usize,
) -> Result<Row> {
    let vip = app.vip.to_string();
    let node = cluster.lab.node(0).addr().to_string();
    let client = cluster.lab.client(0).netns();
    client.run("ip", &["route", "replace", &vip, "via", &node])?;
    let report = under_load(cluster, app, rate, || rolled(cluster, app, rounds));
    client.run("ip", &["route", "del", &vip])?;
    row(
        format!("kind {}, kube-proxy (nftables)", app.kind.letter()),
        false,
        rounds,
        report,
    )
}

/// Rollouts with Sluice serving it.
pub(super) fn through_sluice(
    cluster: &Cluster,
    app: &App,
    rate: u64,
    rounds: usize,
) -> Result<Row> {
    let report = under_load(cluster, app, rate, || rolled(cluster, app, rounds));
    row(
        format!("kind {}, Sluice", app.kind.letter()),
        true,
        rounds,
        report,
    )
}

fn row(what: String, ours: bool, rounds: usize, report: Result<Report>) -> Result<Row> {
    Ok(Row {
        what,
        ours,
        rounds,
        report: report?,
    })
}

fn rolled(cluster: &Cluster, app: &App, rounds: usize) -> Result<()> {
    (0..rounds).try_for_each(|_| app.restart(cluster))
}

/// Runs `work` under load, once the VIP answers; what the clients saw.
pub(super) fn under_load(
    cluster: &Cluster,
    app: &App,
    rate: u64,
    work: impl FnOnce() -> Result<()>,
) -> Result<Report> {
    let client = cluster.lab.client(0);
    let vip = SocketAddrV4::new(app.vip, PORT);
    let url = format!("http://{vip}/");
    until(Duration::from_secs(30), "the VIP to answer", || {
        let args = ["--silent", "--fail", "--max-time", "1", &url];
        client.netns().run("curl", &args).map(|_| true)
    })?;
    let mut options = Options::to(vip);
    options.sources = Some(Sources(client.addrs().to_vec()));
    options.rate = rate;
    options.mix = Traffic::ALL.to_vec();
    options.duration = 24.0 * 3600.0;
    let load = Load::start(client.netns(), &options)?;
    work()?;
    load.stop()
}
