//! A network namespace by name, and how to do things inside it.
//!
//! Everything enters by `setns(2)` on a thread of its own, and children are spawned from such a thread, so no
//! wrapper process is needed. `ip netns exec` must never be used: it remounts `/sys`, and bpffs pins vanish.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sched::{CloneFlags, setns};

use crate::proc::Proc;

/// Where `ip netns` keeps its bind mounts.
pub const RUN_DIR: &str = "/run/netns";

/// The name of a network namespace; cheap to clone, owns nothing.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ns {
    name: String,
}

impl Ns {
    /// Names a namespace; it need not exist yet.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// The name, as `ip netns list` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bind mount, for `nsenter --net=PATH` and for tools that want a file.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(RUN_DIR).join(&self.name)
    }

    /// True while the name exists (processes may keep a nameless namespace alive for longer).
    pub fn exists(&self) -> bool {
        self.path().exists()
    }

    /// Runs `work` on a fresh thread inside the namespace and waits for it.
    ///
    /// Sockets made there belong to the namespace for good; threads started there inherit it.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = self.path();
        let file = File::open(&path)
            .with_context(|| format!("no network namespace at {}", path.display()))?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || -> Result<T> {
                setns(&file, CloneFlags::CLONE_NEWNET)
                    .with_context(|| format!("entering {} (root is needed)", path.display()))?;
                Ok(work())
            });
            thread
                .join()
                .map_err(|panic| match panic.downcast_ref::<&str>() {
                    Some(text) => anyhow!("work in {} panicked: {text}", self.name),
                    None => anyhow!("work in {} panicked", self.name),
                })?
        })
    }

    /// Runs a command to its end and gives its output, whatever its exit status.
    pub fn output(&self, mut command: Command) -> Result<Output> {
        let shown = format!("{command:?}");
        self.enter(move || command.output())?
            .with_context(|| format!("running {shown} in {}", self.name))
    }

    /// Runs a command that must succeed and gives its standard output as text.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command.args(args);
        let output = self.output(command)?;
        ensure!(
            output.status.success(),
            "`{program} {}` in {} ended with {}: {}",
            args.join(" "),
            self.name,
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a command in a process group of its own; the guard kills that group when dropped.
    pub fn spawn(&self, mut command: Command) -> Result<Proc> {
        let shown = format!("{command:?}");
        self.enter(move || -> io::Result<Proc> { Proc::spawn(&mut command) })?
            .with_context(|| format!("starting {shown} in {}", self.name))
    }

    /// Writes `net.*` sysctls (`/proc/sys/net` shows the namespace of the thread that looks).
    pub fn sysctls(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.enter(|| {
            settings.iter().try_for_each(|(key, value)| {
                std::fs::write(format!("/proc/sys/net/{key}"), value)
                    .with_context(|| format!("setting net/{key} to {value}"))
            })
        })?
        .with_context(|| format!("in namespace {}", self.name))
    }
}
