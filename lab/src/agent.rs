//! The balancer's agent as a process on a lab's node.
//!
//! Each has a pin folder of its own under the one bpffs that all namespaces share, and takes
//! everything out of the kernel again when it is dropped, however it ended.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::{Ns, Proc, UPLINK};

/// Where it serves health inside its namespace.
const HTTP: &str = "127.0.0.1:9095";
/// How long it may take to become ready.
const READY: Duration = Duration::from_secs(30);

/// An agent on a node.
#[derive(Debug)]
pub struct Agent {
    ns: Ns,
    binary: PathBuf,
    args: Vec<String>,
    more: Vec<String>,
    pins: PathBuf,
    state: PathBuf,
    log: PathBuf,
    proc: Option<Proc>,
    wrapper: Vec<String>,
}

impl Agent {
    /// Starts `binary` in a node's namespace and returns once it is ready. `more` are further
    /// arguments, such as `--xdp-mode=native`.
    pub fn start(ns: &Ns, binary: &Path, manifests: &Path, more: &[&str]) -> Result<Self> {
        let mut agent = Self::prepare(ns, binary, manifests, more)?;
        agent.run()?;
        Ok(agent)
    }

    /// The same without starting it: [`Self::run`] or [`Self::spawn`] does.
    pub fn prepare(ns: &Ns, binary: &Path, manifests: &Path, more: &[&str]) -> Result<Self> {
        let pins = PathBuf::from("/sys/fs/bpf").join(ns.name());
        let state = manifests.join(".allocations");
        let log = std::env::temp_dir().join(format!("{}.log", ns.name()));
        let mut args: Vec<String> = ["agent", "--node-name", "n0", "--interface", UPLINK]
            .map(str::to_owned)
            .into();
        for (flag, path) in [
            ("--manifests", manifests),
            ("--pin-dir", &pins),
            ("--state-file", &state),
        ] {
            args.push(flag.to_owned());
            args.push(path.display().to_string());
        }
        let (left, files) = (pins.clone(), [state.clone(), log.clone()]);
        crate::teardown::on_teardown(move || {
            // The namespace is gone by then; what was pinned would outlive it. Nothing is left of
            // an agent that ended in peace.
            let _ = std::fs::remove_dir_all(left);
            for file in files {
                let _ = std::fs::remove_file(file);
            }
        });
        Ok(Self {
            ns: ns.clone(),
            binary: binary.to_owned(),
            args,
            more: more.iter().map(|&arg| arg.to_owned()).collect(),
            pins,
            state,
            log,
            proc: None,
            wrapper: Vec::new(),
        })
    }

    /// Other further arguments, from its next start on.
    pub fn set_more(&mut self, more: &[&str]) {
        self.more = more.iter().map(|&arg| arg.to_owned()).collect();
    }

    /// Has it run under another program, such as one that takes rights away. Before it starts.
    #[must_use]
    pub fn under(mut self, wrapper: &[&str]) -> Self {
        self.set_wrapper(wrapper);
        self
    }

    /// Has it run under another program from its next start on.
    pub fn set_wrapper(&mut self, wrapper: &[&str]) {
        self.wrapper = wrapper.iter().map(|&arg| arg.to_owned()).collect();
    }

    /// Starts the process (again) without waiting for anything.
    pub fn spawn(&mut self) -> Result<()> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("opening {}", self.log.display()))?;
        let binary = self.binary.display().to_string();
        let mut words = self.wrapper.iter().chain([&binary]);
        let mut command = Command::new(words.next().context("no program")?);
        command
            .args(words)
            .args(&self.args)
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.proc = Some(self.ns.spawn(command)?);
        Ok(())
    }

    /// Starts the process (again) and waits until it is ready.
    pub fn run(&mut self) -> Result<()> {
        self.spawn()?;
        let started = Instant::now();
        let mut last = String::new();
        while started.elapsed() < READY {
            if let Some(proc) = &mut self.proc
                && let Some(status) = proc.try_wait()?
            {
                bail!("the agent ended: {status}\n{}", self.log());
            }
            match self.get("/readyz") {
                Ok(answer) if answer.starts_with("HTTP/1.1 200") => return Ok(()),
                Ok(answer) => last = answer,
                Err(error) => last = error.to_string(),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!(
            "the agent is not ready after {READY:?}: {last}\n{}",
            self.log()
        )
    }

    /// Asks its HTTP server.
    pub fn get(&self, path: &str) -> Result<String> {
        self.ns.enter(|| -> Result<String> {
            let mut stream = TcpStream::connect(HTTP)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })?
    }

    /// Runs another subcommand of the same binary against the same pins.
    pub fn command(&self, args: &[&str]) -> Result<String> {
        let pins = self.pins.display().to_string();
        let args: Vec<_> = args.iter().copied().chain(["--pin-dir", &pins]).collect();
        self.ns.run(&self.binary.display().to_string(), &args)
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Where it pins.
    pub fn pins(&self) -> &Path {
        &self.pins
    }

    /// Its process, while there is one.
    pub fn id(&self) -> Option<u32> {
        self.proc.as_ref().map(Proc::id)
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Result<Option<std::process::ExitStatus>> {
        match &mut self.proc {
            Some(proc) => proc.try_wait(),
            None => Ok(None),
        }
    }

    /// SIGKILL; programs and maps stay.
    pub fn kill(&mut self) -> Result<()> {
        match self.proc.take() {
            Some(mut proc) => proc.kill().map(|_| ()),
            None => Ok(()),
        }
    }

    /// SIGTERM, and waits for the end; programs and maps stay.
    pub fn terminate(&mut self) -> Result<()> {
        let Some(mut proc) = self.proc.take() else {
            return Ok(());
        };
        proc.terminate()?;
        proc.wait_timeout(Duration::from_secs(10))
            .context("the agent does not end on SIGTERM")?;
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Each is tried whatever became of the one before; a test has nobody else to tell.
        let _ = self.kill();
        let _ = self.command(&["detach"]);
        let _ = std::fs::remove_dir(&self.pins);
        let _ = std::fs::remove_file(&self.state);
        let _ = std::fs::remove_file(&self.log);
    }
}
