//! A test program that is interrupted leaves nothing behind; one that is killed leaves nothing that
//! the next lab does not remove.

use std::collections::BTreeSet;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lab::report::Traffic;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{builder, stage, until};

/// Set for the program that is going to be interrupted.
const VICTIM: &str = "SLUICE_TEST_VICTIM";

/// A process and when it started, for ids are given out again.
type Process = (u32, String);

/// Parent and start of a process that lives.
fn look(pid: u32) -> Option<(u32, String)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Fields are counted after the command's name, which may hold anything.
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, parent, start) = (fields.first()?, fields.get(1)?, fields.get(19)?);
    (*state != "Z").then_some((parent.parse().ok()?, (*start).to_owned()))
}

fn descendants(of: u32) -> BTreeSet<Process> {
    let entries = std::fs::read_dir("/proc").expect("proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<_> = pids
        .filter_map(|pid| look(pid).map(|(parent, start)| (pid, parent, start)))
        .collect();
    let mut found = BTreeSet::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for (pid, _, start) in all.iter().filter(|(_, of, _)| *of == parent) {
            found.insert((*pid, start.clone()));
            parents.push(*pid);
        }
    }
    found
}

/// What of this process there is: namespaces, pins, files.
fn left(pid: u32) -> Vec<PathBuf> {
    let prefix = format!("slab-{pid:x}-");
    let temporary = std::env::temp_dir();
    [
        Path::new("/run/netns"),
        Path::new("/sys/fs/bpf"),
        &temporary,
    ]
    .iter()
    .flat_map(|place| std::fs::read_dir(place).into_iter().flatten().flatten())
    .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
    .map(|entry| entry.path())
    .collect()
}

/// A victim in full swing, and the processes that it started.
fn victim() -> (Child, BTreeSet<Process>) {
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--include-ignored", "--exact", "interrupted::the_victim"])
        .env(VICTIM, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("starts");
    let pid = child.id();
    until("the victim is in full swing", || {
        let ready = std::env::temp_dir().join(format!("slab-{pid:x}-ready"));
        std::fs::remove_file(ready).is_ok()
    });
    let processes = descendants(pid);
    assert!(processes.len() >= 4, "agent, load, servers: {processes:?}");
    let places: BTreeSet<_> = left(pid)
        .iter()
        .filter_map(|path| path.parent().map(Path::to_owned))
        .collect();
    assert_eq!(places.len(), 3, "something to clean up in each: {places:?}");
    (child, processes)
}

fn alive(processes: &BTreeSet<Process>) -> Vec<u32> {
    let same = |(pid, start): &&Process| look(*pid).is_some_and(|(_, now)| now == *start);
    processes.iter().filter(same).map(|(pid, _)| *pid).collect()
}

#[test]
#[ignore = "root"]
fn the_victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let Some(builder) = builder("the_victim") else {
        return;
    };
    let stage = stage("victim", builder.pods(2), &[]);
    let load = stage
        .load(&stage.options(&[Traffic::Short, Traffic::Keepalive], 50, 60.0))
        .expect("load");
    let ready = format!("slab-{:x}-ready", std::process::id());
    std::fs::write(std::env::temp_dir().join(ready), "").expect("written");
    load.finish().expect("report");
}

#[test]
#[ignore = "root"]
fn an_interrupted_test_leaves_nothing() {
    if builder("an_interrupted_test").is_none() {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (mut child, processes) = victim();
        let pid = child.id();
        kill(Pid::from_raw(pid.cast_signed()), signal).expect("sent");
        let status = child.wait().expect("ends");
        assert_eq!(status.code(), Some(128 + signal as i32));
        assert_eq!(left(pid), Vec::<PathBuf>::new());
        assert_eq!(alive(&processes), Vec::<u32>::new());
    }
}

#[test]
#[ignore = "root"]
fn what_a_killed_test_leaves_is_removed_by_the_next_lab() {
    if builder("a_killed_test").is_none() {
        return;
    }
    let (mut child, processes) = victim();
    let pid = child.id();
    child.kill().expect("killed");
    let status = child.wait().expect("ends");
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    // Labs of other tests do the same when they begin.
    lab::Lab::cleanup_stale().expect("removed");
    until("nothing is left", || {
        left(pid).is_empty() && alive(&processes).is_empty()
    });
}
