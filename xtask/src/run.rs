//! Child processes: started in a group of their own, ended by that group's id.
//!
//! A test run is a tree (cargo, test binaries, servers in namespaces). On Ctrl-C or SIGTERM
//! the whole tree hears SIGINT first and gets time to clean up its namespaces and pins, then
//! SIGTERM, then SIGKILL. Nothing that this process did not start is ever signalled.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

const POLL: Duration = Duration::from_millis(20);
/// How long a tree may take to clean up after each signal before the next, harsher one.
const GRACE: [(Signal, Duration); 3] = [
    (Signal::SIGINT, Duration::from_secs(20)),
    (Signal::SIGTERM, Duration::from_secs(5)),
    (Signal::SIGKILL, Duration::from_secs(2)),
];

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Turns SIGINT, SIGTERM and SIGHUP into a flag that every wait looks at.
pub(crate) fn watch_signals() -> Result<()> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(flag)).context("watching for signals")?;
    }
    Ok(())
}

/// Whether the user or the system has asked this process to stop.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED
        .get()
        .is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// From here on the signals that end this process take its labs down first, in another thread.
pub(crate) fn teardown_on_signal() {
    lab::teardown::teardown_on_signal();
    lab::teardown::on_teardown(|| eprintln!("xtask: interrupted; what it had started is gone"));
    LABS.store(true, Ordering::Relaxed);
}

/// Returns only if no lab has to go: else the thread that takes labs down ends the process, and
/// must not be cut short by a main thread that fails for want of them.
pub(crate) fn await_teardown() {
    while LABS.load(Ordering::Relaxed) {
        thread::park();
    }
}

static LABS: AtomicBool = AtomicBool::new(false);
static QUIET_STDOUT: AtomicBool = AtomicBool::new(false);

/// Sends headings to standard error from now on: standard output is for a program to read.
pub(crate) fn progress_to_stderr() {
    QUIET_STDOUT.store(true, Ordering::Relaxed);
}

/// Prints a heading for a step that takes time.
pub(crate) fn step(text: &str) {
    note(&format!("==> {text}"));
}

/// Prints a line of progress.
pub(crate) fn note(text: &str) {
    if QUIET_STDOUT.load(Ordering::Relaxed) {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}

/// Runs a command with the terminal's output; an error unless it succeeds.
pub(crate) fn checked(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed ({status})", display(command));
    }
    Ok(())
}

/// Runs a command with the terminal's output and returns how it ended.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    let mut child = spawn(command)?;
    wait(&mut child, command)
}

/// Runs a command, passing each line of its standard output on to `line` as it comes.
pub(crate) fn lines(
    command: &mut Command,
    mut line: impl FnMut(&str) + Send,
) -> Result<ExitStatus> {
    command.stdout(Stdio::piped());
    let mut child = spawn(command)?;
    let stdout = child.stdout.take().context("no standard output")?;
    thread::scope(|scope| {
        scope.spawn(move || {
            for text in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                line(String::from_utf8_lossy(&text).trim_end_matches('\r'));
            }
        });
        wait(&mut child, command)
    })
}

/// Runs a short command quietly: its standard output if it succeeded, else None.
pub(crate) fn quiet(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn spawn(command: &mut Command) -> Result<Child> {
    if interrupted() {
        bail!("interrupted");
    }
    command
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting `{}`", display(command)))
}

fn wait(child: &mut Child, command: &Command) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().context("waiting for a child")? {
            return Ok(status);
        }
        if interrupted() {
            end(child)?;
            bail!("`{}` interrupted", display(command));
        }
        thread::sleep(POLL);
    }
}

/// Ends a child and everything in its group, gently at first.
fn end(child: &mut Child) -> Result<()> {
    let group = Pid::from_raw(i32::try_from(child.id()).context("process id")?);
    for (signal, patience) in GRACE {
        // An error means that the group is empty: nothing is left to end.
        if killpg(group, signal).is_err() {
            break;
        }
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            child.try_wait().context("waiting for a child")?;
            if killpg(group, None).is_err() {
                return Ok(());
            }
            thread::sleep(POLL);
        }
    }
    Ok(())
}

fn display(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}
