//! The data plane's cases through the real programs, by BPF_PROG_TEST_RUN: the same frames, the
//! same reasons, the same bytes and the same tables as on the host.
//!
//! Takes root, and the object that `cargo xtask build` leaves; nothing is pinned or attached.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../../../lb-ebpf/tests/cases/mod.rs"]
mod cases;
mod kernel;
mod spoiled;

use cases::case::{Case, Rig, Step, apply};
use cases::host::Host;
use cases::node::{CLIENT, Node, VIP};
use cases::packet::{P, Sum};
use cases::scenes::{DATA, connected, connected_nat, data};
use kernel::Kernel;
use lb_common::Outcome;
use lb_common::abi::LINK_VIRTUAL;

/// The host's rig and the kernel's side by side: each step must have the same outcome in both.
struct Both {
    host: Host,
    kernel: Kernel,
}

impl Both {
    fn new() -> Self {
        Self {
            host: Host::new(&Node::bare()),
            kernel: Kernel::new(),
        }
    }

    /// Fails where the two have written different things.
    fn compare(&self) {
        let (host, kernel) = (self.host.tables(), self.kernel.tables());
        assert_eq!(host.timeless(), kernel.timeless(), "host, kernel");
    }
}

impl Rig for Both {
    fn set_up(&mut self, node: &Node) {
        self.host.set_up(node);
        self.kernel.set_up(node);
    }

    fn ingress(&mut self, frame: &[u8]) -> cases::case::Ran {
        let host = self.host.ingress(frame);
        let mut kernel = self.kernel.ingress(frame);
        kernel.redirect = host.redirect;
        assert_eq!(host, kernel, "host, kernel");
        self.compare();
        kernel
    }

    fn egress(&mut self, frame: &[u8], partial: bool) -> cases::case::Ran {
        let host = self.host.egress(frame, partial);
        let kernel = self.kernel.egress(frame, partial);
        assert_eq!(host, kernel, "host, kernel");
        self.compare();
        kernel
    }

    fn sweep(&mut self) {
        self.host.sweep();
        self.kernel.sweep();
        self.compare();
    }

    fn wait(&mut self, millis: u32) {
        self.host.wait(millis);
        self.kernel.wait(millis);
    }

    fn set_endpoint(&mut self, id: u32, endpoint: lb_common::abi::Endpoint<lb_common::V4>) {
        self.host.set_endpoint(id, endpoint);
        self.kernel.set_endpoint(id, endpoint);
    }

    fn set_health(&mut self, id: u32, health: lb_common::abi::Health) {
        self.host.set_health(id, health);
        self.kernel.set_health(id, health);
    }

    fn fill(&mut self, flows: usize, reverse: usize) {
        self.host.fill(flows, reverse);
        self.kernel.fill(flows, reverse);
    }

    fn tables(&self) -> cases::case::Tables {
        self.kernel.tables()
    }
}

/// The cases that the kernel's test runs can show.
fn cases() -> Vec<Case> {
    let fits =
        |step: &Step| !matches!(step, Step::Ingress(frame, ..) if frame.len() > kernel::LONGEST);
    cases::all()
        .into_iter()
        .filter(|case| !case.host_only() && case.steps.iter().all(fits))
        .collect()
}

#[test]
#[ignore = "root"]
fn cases_hold_in_the_kernel() {
    let mut both = Both::new();
    let cases = cases();
    assert!(cases.len() > 100, "{} cases", cases.len());
    let failed: Vec<_> = cases
        .iter()
        .filter(|case| {
            let run = std::panic::AssertUnwindSafe(|| case.run(&mut both));
            std::panic::catch_unwind(run).is_err()
        })
        .map(|case| case.name)
        .collect();
    assert!(failed.is_empty(), "failed: {failed:#?}");
}

/// The kernel refuses test runs with less than an Ethernet header.
#[test]
#[ignore = "root"]
fn frames_cut_at_any_length_meet_the_same_fate_in_the_kernel() {
    let mut both = Both::new();
    for case in cases() {
        both.set_up(&case.node);
        for (index, step) in case.steps.iter().enumerate() {
            if let Step::Ingress(frame, ..) = step {
                let lengths = (14..frame.len()).filter(|length| *length < 100 || length % 97 == 0);
                for length in lengths {
                    let run = std::panic::AssertUnwindSafe(|| both.ingress(&frame[..length]));
                    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
                        eprintln!("case \"{}\", step {index}, {length} bytes", case.name);
                        std::panic::resume_unwind(panic)
                    });
                }
            }
            if !matches!(step, Step::Tables(_)) {
                apply(&mut both, step);
            }
        }
    }
}

/// A jumbo frame is in memory in pieces, of which a program sees the first.
#[test]
#[ignore = "root"]
fn jumbo_frames_in_pieces_meet_the_same_fate() {
    let mut both = Both::new();
    let long = data(DATA).data(&[0x5a; 8001]);
    let unused = data(DATA).to(VIP, 81).data(&[0x5a; 8001]);
    let datagram = P::udp((CLIENT, 9), (VIP, 9999)).data(&[7; 8000]);
    let echo = P::icmp(CLIENT, VIP, 8, 0, [0; 4]).data(&[7; 8000]);
    let reserved = long.clone().sum(Sum::Partial);
    let nat = [
        (0, connected_nat("", Node::nat()), &long),
        (
            LINK_VIRTUAL,
            connected_nat("", Node::nat().flags(LINK_VIRTUAL)),
            &long,
        ),
        (
            LINK_VIRTUAL,
            connected_nat("", Node::nat().flags(LINK_VIRTUAL)),
            &reserved,
        ),
    ];
    let local =
        [&long, &unused, &datagram, &echo].map(|frame| (0, connected("", Node::local()), frame));
    for (flags, case, frame) in nat.into_iter().chain(local) {
        case.run(&mut both);
        let frame = frame.bytes();
        let host = both.host.ingress(&frame);
        let kernel = both.kernel.ingress_in_pieces(&frame);
        assert_eq!(kernel, host, "link flags {flags}");
        assert!(
            host.reason.outcome() != Outcome::Drop || flags == LINK_VIRTUAL,
            "{host:?}"
        );
    }
}

/// The object must load for every kind of link: the verifier walks what the flags leave alive.
#[test]
#[ignore = "root"]
fn the_programs_load_for_every_kind_of_link() {
    let mut kernel = Kernel::new();
    for flags in 0..4 {
        kernel.set_up(&Node::local().flags(flags));
        for (program, verified) in kernel.verified() {
            println!("link flags {flags}: {program}: {verified}");
            assert!(
                verified < 800_000,
                "{program} comes close to the verifier's limit"
            );
        }
    }
}
