//! A child process that cannot outlive its guard.
//!
//! Every child leads a process group, and only that group is ever signalled: never a name, never a pattern.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// A running child and its process group; dropped, both are killed and reaped.
#[derive(Debug)]
pub struct Proc {
    child: Child,
    status: Option<ExitStatus>,
}

impl Proc {
    /// Starts `command` as the leader of a new process group in the caller's namespace.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        Ok(Self {
            child,
            status: None,
        })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Takes the child's standard output, if it was piped.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Takes the child's standard error, if it was piped.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Takes the child's standard input, if it was piped.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Sends a signal to the process; one that has ended already is no error.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.try_wait()?.is_some() {
            return Ok(());
        }
        match kill(self.pid()?, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => {
                Err(error).with_context(|| format!("sending {signal} to process {}", self.id()))
            }
        }
    }

    /// Asks the process to end (SIGTERM).
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Kills the whole group (SIGKILL) and reaps the process.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        // The child is not reaped yet, so its id cannot have been given to somebody else.
        match killpg(self.pid()?, Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("killing process group {}", self.id()));
            }
        }
        self.wait()
    }

    /// The exit status, if the process has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self
                .child
                .try_wait()
                .with_context(|| format!("waiting for process {}", self.id()))?;
        }
        Ok(self.status)
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        let status = self
            .child
            .wait()
            .with_context(|| format!("waiting for process {}", self.id()))?;
        self.status = Some(status);
        Ok(status)
    }

    /// Waits for the end, at most `limit`; an error when it takes longer.
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("process {} still runs after {limit:?}", self.id());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(
            i32::try_from(self.id()).context("process id out of range")?,
        ))
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        if self.status.is_none()
            && let Err(error) = self.kill()
        {
            eprintln!("lab: {error:#}");
        }
    }
}

/// True if the process was ended by this signal.
pub fn ended_by(status: ExitStatus, signal: Signal) -> bool {
    status.signal() == Some(signal as i32)
}

static EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();

/// Use this `lab` executable from now on; the first caller wins.
pub fn use_executable(path: PathBuf) {
    // Somebody was faster: as documented.
    let _ = EXECUTABLE.set(path);
}

/// The `lab` executable: the one that [`use_executable`] names, `SLUICE_LAB_BIN`, else beside the running one, else in the directory above (tests).
pub fn lab_executable() -> Result<PathBuf> {
    if let Some(path) = EXECUTABLE.get() {
        return Ok(path.clone());
    }
    if let Some(path) = std::env::var_os("SLUICE_LAB_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe().context("finding the running executable")?;
    own.ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("lab"))
        .find(|path| path.is_file())
        .with_context(|| {
            format!(
                "no `lab` executable near {} (build it, or set SLUICE_LAB_BIN)",
                own.display()
            )
        })
}
