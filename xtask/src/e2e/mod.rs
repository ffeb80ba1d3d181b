//! `e2e`: the product in a real cluster, beside a real kube-proxy.
//!
//! etcd, the API server, controllers, scheduler, kubelet, containerd and kube-proxy are the real ones, in network
//! namespaces (`lab::cluster`); the agent runs as the `DaemonSet` of `deploy/`, from the image that `xtask image`
//! writes. Clients are outside of the cluster, with 16 addresses. What is counted is what they see.

#![allow(
    clippy::cast_precision_loss,
    reason = "figures for people, far below 2^52"
)]

mod app;
mod rollout;
mod sluice;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use lab::Lab;
use lab::cluster::{Cluster, Options, ProxyMode};
use lab::oci::Image;
use lab::serve::Kind;

use crate::{image, kube, run, workspace};
use app::App;

/// What `cargo xtask e2e` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// All scenarios, ten rollouts of each
    #[arg(long)]
    full: bool,
    /// Short connections per second
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// Only these kinds of pods
    #[arg(long, value_enum, value_delimiter = ',', default_value = "a,b")]
    kinds: Vec<Kind>,
    /// Keep the cluster after the last scenario, until Ctrl-C
    #[arg(long)]
    keep: bool,
}

const PAUSE: &str = "docker.io/library/pause:e2e";

/// Brings the cluster up, runs the scenarios and prints what clients saw.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !workspace::is_root() {
        bail!("a cluster takes root: it makes network namespaces and runs containers");
    }
    let options = prepare()?;
    run::teardown_on_signal();
    let started = Instant::now();
    run::step("a cluster from nothing");
    let cluster = Cluster::up(Lab::builder(), &options)?;
    run::note(&format!(
        "    ready after {:.1} s",
        started.elapsed().as_secs_f64()
    ));
    let mut rows = rollout::Rows::default();
    let rounds = if args.full { 10 } else { 2 };
    let result = scenarios(&cluster, args, rounds, &mut rows);
    println!("\n{rows}");
    if args.keep {
        run::note("the cluster stays up until Ctrl-C");
        while !run::interrupted() {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }
    result?;
    rows.verdict()
}

fn scenarios(
    cluster: &Cluster,
    args: &Args,
    rounds: usize,
    rows: &mut rollout::Rows,
) -> Result<()> {
    for &kind in &args.kinds {
        let app = App {
            name: "web",
            kind,
            replicas: 6,
            vip: Lab::vip(0),
        };
        run::step(&format!("6 pods of kind {}", kind.letter()));
        app.deploy(cluster)?;
        rows.push(rollout::through_kube_proxy(
            cluster, &app, args.rate, rounds,
        )?);
        let daemon = sluice::Daemon::deploy(cluster)?;
        rows.push(rollout::through_sluice(cluster, &app, args.rate, rounds)?);
        daemon.uninstall(cluster)?;
        app.remove(cluster)?;
    }
    Ok(())
}

/// Programs and images.
fn prepare() -> Result<Options> {
    let tools = kube::ensure()?;
    let programs = image::programs(&["lb-userspace", "lab"])?;
    lab::proc::use_executable(programs.of("lab"));
    let folder = image::folder();
    std::fs::create_dir_all(&folder)?;
    let pause = Image {
        name: PAUSE.to_owned(),
        files: vec![(PathBuf::from("/bin/busybox"), "/busybox".to_owned())],
        entrypoint: ["/busybox", "sleep", "2147483647"]
            .map(str::to_owned)
            .to_vec(),
        user: "65534:65534".to_owned(),
    };
    let server = Image {
        name: app::IMAGE.to_owned(),
        files: vec![(programs.of("lab"), "/lab".to_owned())],
        entrypoint: vec!["/lab".to_owned()],
        user: "65534:65534".to_owned(),
    };
    let images = [
        (pause, "pause.tar"),
        (server, "lab.tar"),
        (image::sluice(image::NAME, &programs), "sluice.tar"),
    ];
    let mut paths = Vec::new();
    for (image, file) in images {
        let path = folder.join(file);
        image.write(&path)?;
        paths.push(path);
    }
    Ok(Options {
        tools,
        images: paths,
        pause: PAUSE.to_owned(),
        proxy: ProxyMode::Nftables,
    })
}
