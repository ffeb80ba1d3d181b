//! `load`: the data plane on an interface, for a developer's look, until Ctrl-C.
//!
//! The agent itself loads and attaches, with example manifests, so that what is looked at is what
//! runs in earnest; pins and port are its own, so that it never meets an agent in service. Pins that
//! are there already are somebody's: they are left alone, and nothing is started. However it ends,
//! what was attached is detached.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use lb_common::abi::SCHEMA;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{build, run, setup, workspace};

/// How long the agent may take to be ready, and to end.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);

/// What `cargo xtask load` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Interface to attach to; may be repeated, the first is the uplink
    #[arg(long = "interface", value_name = "IF", required = true)]
    interfaces: Vec<String>,
    /// How to attach: native XDP, generic, or auto (native, on veth generic)
    #[arg(long, default_value = "auto", value_parser = ["auto", "native", "generic"])]
    mode: String,
    /// Folder of manifests; the repository's examples by default
    #[arg(long, value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// Which node of the manifests this is
    #[arg(long, default_value = "n1")]
    node_name: String,
    /// Where maps and links are pinned
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/sluice-look")]
    pin_dir: PathBuf,
    /// Where the agent serves health and metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9096")]
    metrics_address: SocketAddr,
    /// Use what is built instead of setting up and building first
    #[arg(long)]
    no_build: bool,
}

/// Attaches, says how to look, waits for Ctrl-C, detaches.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        workspace::is_root(),
        "loading takes root: it attaches programs to an interface"
    );
    for interface in &args.interfaces {
        // The agent would wait for it; whoever wants to look has mistyped it.
        nix::net::if_::if_nametoindex(interface.as_str())
            .with_context(|| format!("--interface: there is no interface `{interface}` here"))?;
    }
    let pins = args.pin_dir.display();
    ensure!(
        !args.pin_dir.exists(),
        "{pins} holds the pins of another agent, running or not: give another --pin-dir, or take \
         them out with `sluice detach --pin-dir {pins}`"
    );
    if !args.no_build {
        setup::ensure()?;
        build::debug()?;
    }
    let sluice = workspace::target().join("debug/sluice");
    let manifests = args
        .manifests
        .clone()
        .unwrap_or_else(|| workspace::root().join("examples"));
    run::step(&format!(
        "{} on {}",
        sluice.display(),
        args.interfaces.join(", ")
    ));
    let mut agent = Attached::start(args, sluice, &manifests)?;
    if !agent.is_ready(args.metrics_address)? {
        return Ok(());
    }
    println!("{}", agent.status()?);
    println!("{}", how_to_look(args, &agent.sluice));
    while !run::interrupted() {
        if let Some(status) = agent.child.try_wait().context("waiting for the agent")? {
            bail!("the agent ended by itself ({status}); its own words are above");
        }
        thread::sleep(POLL);
    }
    Ok(())
}

fn how_to_look(args: &Args, sluice: &Path) -> String {
    let interface = args.interfaces.first().map_or("", String::as_str);
    let (root, address, sluice) = (
        args.pin_dir.display(),
        args.metrics_address,
        sluice.display(),
    );
    let pins = format!("{root}/v{SCHEMA}");
    format!(
        "
How to look, from another terminal:
  bpftool net show dev {interface}
  bpftool link show pinned {pins}/links/xdp-{interface}
  bpftool prog show                                   # sluice_*: run time, size, maps
  bpftool map dump pinned {pins}/maps/frontends    # docs/maps.md explains each map
  {sluice} status --pin-dir {root} --agent {address}
  {sluice} services --pin-dir {root} --agent {address}
  curl -s http://{address}/metrics

attached; Ctrl-C detaches"
    )
}

/// The agent and what it attaches; dropped, both are gone.
struct Attached {
    child: Child,
    sluice: PathBuf,
    pin_dir: PathBuf,
    address: SocketAddr,
    /// A folder for what the agent remembers.
    state: PathBuf,
}

impl Attached {
    fn start(args: &Args, sluice: PathBuf, manifests: &Path) -> Result<Self> {
        let state = std::env::temp_dir().join(format!("sluice-load-{}", std::process::id()));
        let mut command = Command::new(&sluice);
        command
            .args(["agent", "--xdp-mode", &args.mode])
            .args(["--node-name", &args.node_name])
            .args(["--metrics-address", &args.metrics_address.to_string()])
            .arg("--manifests")
            .arg(manifests)
            .arg("--pin-dir")
            .arg(&args.pin_dir)
            .arg("--state-file")
            .arg(state.join("allocations.json"));
        for interface in &args.interfaces {
            command.args(["--interface", interface]);
        }
        // A group of its own: Ctrl-C is for this process, which then ends the agent.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("starting {}", sluice.display()))?;
        Ok(Self {
            child,
            sluice,
            pin_dir: args.pin_dir.clone(),
            address: args.metrics_address,
            state,
        })
    }

    /// Waits until it is; false when the user did not want to wait.
    fn is_ready(&mut self, address: SocketAddr) -> Result<bool> {
        let begin = Instant::now();
        while !run::interrupted() {
            if let Some(status) = self.child.try_wait().context("waiting for the agent")? {
                bail!("the agent did not start ({status}); its own words are above");
            }
            let answer = ask(address, "/readyz").unwrap_or_default();
            if answer.starts_with("HTTP/1.1 200") {
                return Ok(true);
            }
            if begin.elapsed() > PATIENCE {
                bail!("the agent is not ready after {PATIENCE:?}: {answer}");
            }
            thread::sleep(POLL);
        }
        Ok(false)
    }

    /// What `sluice status` says of the agent and of interfaces.
    fn status(&self) -> Result<String> {
        let output = Command::new(&self.sluice)
            .arg("status")
            .args(["--agent", &self.address.to_string()])
            .arg("--pin-dir")
            .arg(&self.pin_dir)
            .output()
            .context("running `sluice status`")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().take_while(|line| !line.starts_with("MAP"));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    fn end(&mut self) -> Result<()> {
        let pid = i32::try_from(self.child.id()).context("process id")?;
        let begin = Instant::now();
        // Not reaped yet, so the id is still its own.
        while self
            .child
            .try_wait()
            .context("waiting for the agent")?
            .is_none()
        {
            kill(Pid::from_raw(pid), Signal::SIGTERM).context("ending the agent")?;
            if begin.elapsed() > PATIENCE {
                self.child.kill().context("killing the agent")?;
                self.child.wait().context("waiting for the agent")?;
                break;
            }
            thread::sleep(POLL);
        }
        // Not by `run`: that starts nothing after an interruption.
        let status = Command::new(&self.sluice)
            .arg("detach")
            .arg("--pin-dir")
            .arg(&self.pin_dir)
            .stdin(Stdio::null())
            .status()
            .context("running `sluice detach`")?;
        ensure!(status.success(), "`sluice detach` failed ({status})");
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("xtask: not everything is detached: {error:#}");
        }
        // There is none if the agent did not get that far.
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

fn ask(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
