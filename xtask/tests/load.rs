//! `cargo xtask load` on a lab's node: a client is served while it runs, and nothing is left after
//! Ctrl-C. Pins of somebody else are not touched.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::drive::Server;
use lab::manifests::{Condition, Endpoint, Manifests};
use lab::{Lab, Ns, Proc, UPLINK};
use nix::sys::signal::Signal;

fn lab_or_skip(test: &str) -> Option<Lab> {
    if nix::unistd::geteuid().is_root() {
        lab::teardown::teardown_on_signal();
        return Some(Lab::builder().pods(1).build().expect("lab"));
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "{test}: needs root, and CI is set"
    );
    eprintln!("SKIPPED: needs root: {test}");
    None
}

/// A pin folder that goes with the test, whatever becomes of it.
struct Pins(PathBuf);

impl Pins {
    fn of(lab: &Lab, name: &str) -> Self {
        Self(Path::new("/sys/fs/bpf").join(format!("{}-{name}", lab.id())))
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        // The usual case: there is none.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn load(node: &Ns, interface: &str, pins: &Path, manifests: &Path, mode: &str) -> Proc {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command
        .args([
            "load",
            "--no-build",
            "--node-name=n0",
            "--interface",
            interface,
            "--mode",
            mode,
        ])
        .arg("--pin-dir")
        .arg(pins)
        .arg("--manifests")
        .arg(manifests);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    node.spawn(command).expect("starts")
}

fn programs(node: &Ns) -> String {
    let link = node.run("ip", &["-details", "link", "show", UPLINK]);
    let net = node.run("bpftool", &["net", "show", "dev", UPLINK]);
    format!("{}{}", link.expect("ip"), net.expect("bpftool"))
}

fn serves_until_interrupted(mode: &str, shown: &str) {
    let Some(lab) = lab_or_skip("serves_until_interrupted") else {
        return;
    };
    let (node, pod) = (lab.node(0).netns(), lab.pods().next().expect("a pod"));
    let _server = Server::named("blue").start(pod.netns()).expect("a server");
    let vip = SocketAddrV4::new(Lab::vip(0), 80);
    let manifests = Manifests::create(&format!("load-{mode}")).expect("a folder");
    let endpoint = Endpoint {
        address: pod.addr(),
        node: Some("n0".to_owned()),
        uid: "blue".to_owned(),
        condition: Condition::Ready,
    };
    manifests.write(vip, 8080, &[endpoint]).expect("written");
    let pins = Pins::of(&lab, "load");
    let before = programs(node);

    let mut load = load(node, UPLINK, &pins.0, manifests.dir(), mode);
    let mut told = Vec::new();
    let stdout = BufReader::new(load.take_stdout().expect("piped"));
    let attached = stdout.lines().map_while(Result::ok).any(|line| {
        told.push(line);
        told.last()
            .is_some_and(|line| line.contains("Ctrl-C detaches"))
    });
    let told = told.join("\n");
    assert!(attached, "{told}");
    assert!(told.contains(shown), "{told}");
    assert!(pins.0.exists());
    let url = format!("http://{vip}/");
    let client = lab.client(0).netns();
    let answer = client.run("curl", &["-sS", "--max-time", "5", &url]);
    assert!(answer.expect("served").starts_with("blue "));
    // What it says to type has to work.
    let typed = told
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("bpftool "));
    let typed: Vec<_> = typed.collect();
    assert!(typed.len() >= 4, "{told}");
    for line in typed {
        let output = node.run("sh", &["-c", line]).expect(line);
        assert!(!output.is_empty(), "{line}");
    }

    load.signal(Signal::SIGINT).expect("sent");
    let status = load.wait_timeout(Duration::from_secs(25)).expect("ends");
    assert_eq!(status.code(), Some(0));
    assert!(!pins.0.exists(), "pins are left");
    let after = programs(node);
    assert_eq!(after, before, "something is left on {UPLINK}");
}

#[test]
#[ignore = "root"]
fn generic_serves_until_interrupted_and_leaves_nothing() {
    serves_until_interrupted("generic", "generic");
}

#[test]
#[ignore = "root"]
fn native_serves_until_interrupted_and_leaves_nothing() {
    serves_until_interrupted("native", "native");
}

/// Why it does not even start.
fn refusal(mut load: Proc) -> String {
    let mut told = String::new();
    let mut stderr = load.take_stderr().expect("piped");
    stderr.read_to_string(&mut told).expect("read");
    let status = load.wait_timeout(Duration::from_secs(5)).expect("ends");
    assert_eq!(status.code(), Some(1), "{told}");
    told
}

#[test]
#[ignore = "root"]
fn pins_of_another_agent_stay() {
    let Some(lab) = lab_or_skip("pins_of_another_agent_stay") else {
        return;
    };
    let (node, pins) = (lab.node(0).netns(), Pins::of(&lab, "other"));
    std::fs::create_dir(&pins.0).expect("made");
    let told = refusal(load(node, UPLINK, &pins.0, Path::new("examples"), "auto"));
    assert!(
        told.contains("another agent") && told.contains("sluice detach"),
        "{told}"
    );
    assert!(pins.0.exists());
}

#[test]
#[ignore = "root"]
fn a_mistyped_interface_is_named() {
    let Some(lab) = lab_or_skip("a_mistyped_interface_is_named") else {
        return;
    };
    let (node, pins) = (lab.node(0).netns(), Pins::of(&lab, "none"));
    let told = refusal(load(node, "eth9", &pins.0, Path::new("examples"), "auto"));
    assert!(told.contains("no interface `eth9`"), "{told}");
    assert!(!pins.0.exists());
}
