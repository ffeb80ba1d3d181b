//! A short demo shows what it claims, and Ctrl-C in the middle of one leaves no namespace, pin, file
//! or process.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process and when it started, for ids are given out again.
type Process = (u32, String);

fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may hold spaces and brackets; fields are counted after it. A zombie is
    // gone for all that matters.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (*fields.first()? != "Z").then(|| fields.get(19).map(|start| (*start).to_owned()))?
}

fn descendants(of: u32, found: &mut BTreeSet<Process>) {
    let tasks = fs::read_dir(format!("/proc/{of}/task"))
        .into_iter()
        .flatten();
    for task in tasks.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
        {
            found.extend(started(child).map(|start| (child, start)));
            descendants(child, found);
        }
    }
}

/// What in this folder has a name that begins with one of these.
fn named(folder: &str, prefixes: &[String]) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .collect()
}

fn wait(child: &mut Child, limit: Duration) -> Option<i32> {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if let Some(status) = child.try_wait().expect("waits") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("killed");
    panic!("the demo still ran {limit:?} after the signal");
}

fn interrupted(signal: Signal, code: i32) {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["demo", "--no-build", "--late=2", "--seconds=20", "-o=json"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("starts");
    let pid = demo.id();
    let mut lines = BufReader::new(demo.stderr.take().expect("piped")).lines();
    let mut told = Vec::new();
    let stopped = lines.by_ref().map_while(Result::ok).any(|line| {
        told.push(line);
        told.last()
            .is_some_and(|line| line.contains("IS TOLD TO END"))
    });
    assert!(stopped, "it ended first:\n{}", told.join("\n"));

    let names = [format!("slab-{pid:x}-"), format!("slab-{pid}-")];
    let temporary = std::env::temp_dir().display().to_string();
    let places = ["/run/netns", "/sys/fs/bpf", &temporary];
    for place in places {
        assert!(
            !named(place, &names).is_empty(),
            "nothing to clean up in {place}"
        );
    }
    let mut processes = BTreeSet::new();
    descendants(pid, &mut processes);
    assert!(processes.len() >= 5, "agent, load, servers: {processes:?}");

    kill(Pid::from_raw(i32::try_from(pid).expect("pid")), signal).expect("sent");
    // Whoever writes to a closed pipe ends of that, and not of the signal.
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
    assert_eq!(wait(&mut demo, Duration::from_secs(15)), Some(code));
    let rest = rest.join().expect("read");
    assert!(
        rest.iter().any(|line| line.contains("interrupted")),
        "{rest:?}"
    );
    for place in places {
        assert_eq!(
            named(place, &names),
            Vec::<String>::new(),
            "left in {place}"
        );
    }
    for (pid, start) in &processes {
        let command = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("cmdline"));
        assert_ne!(
            started(*pid).as_ref(),
            Some(start),
            "{pid} lives: {command:?}"
        );
    }
}

fn root_or_skip(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        assert!(
            std::env::var_os("CI").is_none(),
            "{test}: needs root, and CI is set"
        );
        eprintln!("SKIPPED: needs root: {test}");
    }
    root
}

#[test]
#[ignore = "root"]
fn a_short_demo_shows_what_it_claims() {
    if !root_or_skip("a_short_demo_shows_what_it_claims") {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["demo", "--no-build", "--late=1", "--seconds=1", "-o=json"])
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    for part in ["IS TOLD TO END", "the list says", " tries "] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let row = |balancer: &str| {
        let rows = report["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["balancer"] == balancer);
        row.unwrap_or_else(|| panic!("no {balancer}: {report}"))
    };
    let (sluice, peer) = (row("sluice"), row("nftables"));
    for row in [sluice, peer] {
        assert!(row["attempts"].as_u64() > Some(500), "{row}");
        assert_eq!(row["wrong_bytes"], 0, "{row}");
    }
    assert_eq!(sluice["failed_before_syn_ack"], 0, "{sluice}\n{told}");
    // The stopped pods were met indeed, and moving is what saved the attempts.
    assert!(peer["failed_before_syn_ack"].as_u64() > Some(0), "{peer}");
    assert!(
        sluice["reasons"]["failover_reinjected"].as_u64() > Some(0),
        "{sluice}"
    );
}

#[test]
#[ignore = "root"]
fn an_interrupted_demo_leaves_nothing() {
    if !root_or_skip("an_interrupted_demo_leaves_nothing") {
        return;
    }
    interrupted(Signal::SIGINT, 130);
    interrupted(Signal::SIGTERM, 143);
}
