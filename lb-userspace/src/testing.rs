//! Tests that need root: a network namespace per test, and pins that are gone afterwards.
//!
//! Without root, or without an eBPF object, a test says that it is skipped and passes; where `CI`
//! is set it fails instead, so that a pipeline never skips by accident.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};

use crate::load::{Datapath, EBPF_OBJECT, Options, Pins, detach_all};

/// The maps take hundreds of megabytes: one data plane at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Runs the test on a thread in a network namespace of its own, one such test at a time.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        skip("needs root");
        return;
    }
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        ip("link set lo up");
        test();
    });
    let result = thread.join();
    drop(guard);
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn skip(why: &str) {
    assert!(
        std::env::var_os("CI").is_none(),
        "{why}, and CI must not skip"
    );
    println!("SKIPPED: {why}");
}

/// How long something takes; the only place of the tests that reads a clock.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = std::time::Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// Runs `ip` in this thread's namespace.
pub(crate) fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .status()
        .expect("ip runs");
    assert!(status.success(), "ip {arguments}");
}

/// The object to test with, if there is one.
pub(crate) fn object() -> Option<&'static [u8]> {
    if EBPF_OBJECT.is_empty() {
        skip("needs the eBPF object (`cargo xtask build`)");
        return None;
    }
    Some(EBPF_OBJECT)
}

/// A folder of pins for a test, made as the agent makes its own: also where nobody mounted a bpf filesystem yet.
pub(crate) fn pins(name: &str) -> Pins {
    let root = format!("/sys/fs/bpf/sluice-test-{}-{name}", std::process::id());
    Pins::prepare(Path::new(&root)).expect("a bpf filesystem and the right to use it")
}

/// A pin directory of this test's own.
pub(crate) struct PinDir {
    path: PathBuf,
}

impl PinDir {
    pub(crate) fn new(name: &str) -> Self {
        remove_stale();
        let path = format!("/sys/fs/bpf/sluice-test-{}-{name}", std::process::id());
        Self {
            path: PathBuf::from(path),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn options(&self, object: &'static [u8]) -> Options {
        Options::new(object).pin_dir(&self.path)
    }

    pub(crate) fn open(&self, object: &'static [u8]) -> Datapath {
        Datapath::open(self.options(object)).expect("opens")
    }
}

/// Pins of test programs that were killed: maps of a third of a gigabyte each.
fn remove_stale() {
    let entries = std::fs::read_dir("/sys/fs/bpf").into_iter().flatten();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let pid = name
            .strip_prefix("sluice-test-")
            .and_then(|rest| rest.split('-').next());
        let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another test may be at it as well.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for PinDir {
    fn drop(&mut self) {
        let result = detach_all(&self.path);
        if !std::thread::panicking() {
            result.expect("detaches");
        }
    }
}

/// Another namespace, for as long as this lives.
pub(crate) struct Peer {
    /// Thread id, which `ip link set ... netns` takes.
    pub(crate) tid: i32,
    commands: Option<Sender<String>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    pub(crate) fn new() -> Self {
        let (commands, inbox) = channel::<String>();
        let (outbox, done) = channel();
        let (tell, tid) = channel();
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            tell.send(nix::unistd::gettid().as_raw())
                .expect("somebody asked");
            for command in inbox {
                ip(&command);
                outbox.send(()).expect("somebody waits");
            }
        });
        let tid = tid.recv().expect("the thread says its id");
        Self {
            tid,
            commands: Some(commands),
            done,
            thread: Some(thread),
        }
    }

    /// Runs `ip` over there.
    pub(crate) fn ip(&self, arguments: &str) {
        let commands = self.commands.as_ref().expect("alive");
        commands.send(arguments.to_owned()).expect("alive");
        self.done.recv().expect("the command worked");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.commands.take();
        let thread = self.thread.take().map(JoinHandle::join);
        drop(thread);
    }
}
