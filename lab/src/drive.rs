//! Servers and load generators as children: the lab's binary, started where it is wanted, ready when this returns.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::load::{self, Second};
use crate::ns::Ns;
use crate::proc::{Proc, lab_executable};
use crate::report::Report;
use crate::serve::Kind;

/// A server to start: `Server::named("blue").kind(Kind::B).start(pod.netns())?`.
#[derive(Clone, Debug)]
pub struct Server {
    name: String,
    port: u16,
    kind: Kind,
    udp: bool,
    more: Vec<String>,
}

impl Server {
    /// Kind a on port 8080, TCP and UDP.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            port: 8080,
            kind: Kind::A,
            udp: true,
            more: Vec::new(),
        }
    }

    /// How it takes SIGTERM.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Its port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// TCP only.
    #[must_use]
    pub fn without_udp(mut self) -> Self {
        self.udp = false;
        self
    }

    /// Milliseconds before each HTTP answer.
    #[must_use]
    pub fn slow_ms(mut self, ms: u64) -> Self {
        self.more.push(format!("--slow-ms={ms}"));
        self
    }

    /// Kind a: how long open connections may take to end.
    #[must_use]
    pub fn grace(mut self, seconds: u64) -> Self {
        self.more.push(format!("--grace={seconds}"));
        self
    }

    /// Starts it in a namespace and returns once it listens.
    pub fn start(&self, ns: &Ns) -> Result<Proc> {
        let mut command = Command::new(lab_executable()?);
        command
            .arg("serve")
            .args(["--name", &self.name, "--kind", self.kind.letter()])
            .args(&self.more);
        command.args([
            "--listen",
            &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, self.port).to_string(),
        ]);
        if self.udp {
            command.arg("--udp");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut proc = ns.spawn(command)?;
        let mut stdout = BufReader::new(proc.take_stdout().context("no pipe from the server")?);
        await_ready(&mut stdout, &format!("server {}", self.name))?;
        Ok(proc)
    }
}

/// A load generator that runs.
#[derive(Debug)]
pub struct Load {
    proc: Proc,
    report: JoinHandle<io::Result<String>>,
}

/// Hears what each second of a load brought.
pub type EachSecond = Box<dyn FnMut(Second) + Send>;

impl Load {
    /// Starts `lab load` in a namespace; it sends from the moment this returns.
    pub fn start(ns: &Ns, options: &load::Options) -> Result<Self> {
        Self::start_live(ns, options, Box::new(|_| {}))
    }

    /// The same, and tells what each second brought, from a thread of its own, if the options say so.
    pub fn start_live(ns: &Ns, options: &load::Options, each: EachSecond) -> Result<Self> {
        let options = load::Options {
            barrier: true,
            ..options.clone()
        };
        let mut command = Command::new(lab_executable()?);
        command.arg("load").args(options.to_args());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut proc = ns.spawn(command)?;
        let mut stdout = BufReader::new(
            proc.take_stdout()
                .context("no pipe from the load generator")?,
        );
        await_ready(&mut stdout, "the load generator")?;
        let mut stdin = proc.take_stdin().context("no pipe to the load generator")?;
        stdin.write_all(b"go\n").context("starting the load")?;
        let report = std::thread::spawn(move || read_report(stdout, each));
        Ok(Self { proc, report })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.proc.id()
    }

    /// True once it has ended by itself.
    pub fn is_over(&mut self) -> Result<bool> {
        Ok(self.proc.try_wait()?.is_some())
    }

    /// Waits for its end by time or count, and takes the report.
    pub fn finish(mut self) -> Result<Report> {
        let text = match self.report.join() {
            Ok(text) => text.context("reading the report")?,
            Err(_) => bail!("whoever reads the load's lines panicked"),
        };
        let status = self.proc.wait_timeout(Duration::from_secs(10))?;
        if !status.success() {
            bail!("the load generator ended with {status}");
        }
        serde_json::from_str(&text).context("the report is not what was expected")
    }

    /// Ends it early and takes the report; what is under way still gets its answer or its timeout.
    pub fn stop(mut self) -> Result<Report> {
        self.proc.terminate()?;
        self.finish()
    }
}

/// All lines but those about seconds; ends with the load.
fn read_report(stdout: BufReader<ChildStdout>, mut each: EachSecond) -> io::Result<String> {
    let mut text = String::new();
    for line in stdout.lines() {
        let line = line?;
        match line.parse() {
            Ok(second) => each(second),
            Err(_) => text.push_str(&line),
        }
    }
    Ok(text)
}

fn await_ready(stdout: &mut impl BufRead, who: &str) -> Result<()> {
    let mut line = String::new();
    stdout
        .read_line(&mut line)
        .with_context(|| format!("waiting for {who}"))?;
    if line.starts_with("ready") {
        return Ok(());
    }
    bail!("{who} did not start (its own words are above)")
}
