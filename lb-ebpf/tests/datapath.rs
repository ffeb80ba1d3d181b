//! Every case on the host, every one of its frames cut at every length, and every frame spoiled.

mod cases;

use cases::case::{Case, Rig, Step, apply};
use cases::host::Host;
use cases::node::{CLIENT, Node, VIP};
use lb_common::{Outcome, Reason};

/// All cases run; then the failed ones are named together.
#[test]
fn cases_hold_on_the_host() {
    let mut rig = Host::new(&Node::bare());
    let cases = cases::all();
    assert!(cases.len() > 100, "{} cases", cases.len());
    let failed: Vec<_> = cases
        .iter()
        .filter(|case| {
            let run = std::panic::AssertUnwindSafe(|| case.run(&mut rig));
            std::panic::catch_unwind(run).is_err()
        })
        .map(|case| case.name)
        .collect();
    assert!(failed.is_empty(), "failed: {failed:#?}");
}

/// Counts are the host's to show: in the kernel a second may pass in between.
#[test]
fn refusals_are_counted_by_the_second() {
    let mut rig = Host::new(&Node::local().with(|node| node.refusals = 2));
    let unused = cases::scenes::syn().to(VIP, 81).bytes();
    let mut reasons = |wait| {
        rig.wait(wait);
        [(); 3].map(|()| rig.ingress(&unused).reason)
    };
    let limited = [
        Reason::RefusedPort,
        Reason::RefusedPort,
        Reason::RateLimited,
    ];
    assert_eq!(reasons(0), limited);
    assert_eq!(reasons(1025), limited);
}

/// The kernel's table of handshakes makes room; a refusal would be a fault of its own.
#[test]
fn a_full_handshake_table_drops_new_connections_only() {
    let mut rig = Host::new(&Node::local());
    rig.0.handshakes.limit(1);
    let first = cases::scenes::syn();
    let second = first.clone().from(CLIENT, 7).bytes();
    assert_eq!(rig.ingress(&first.bytes()).reason, Reason::NewLocal);
    assert_eq!(rig.ingress(&second).reason, Reason::HandshakeTable);
    assert_eq!(rig.ingress(&first.bytes()).reason, Reason::RepeatedSyn);
}

/// The host's node as it stands before step `index`.
fn before(case: &Case, index: usize) -> Host {
    let mut rig = Host::new(&case.node);
    for step in &case.steps[..index] {
        if !matches!(step, Step::Tables(_)) {
            apply(&mut rig, step);
        }
    }
    rig
}

/// Bytes from which on a frame is whole: what is behind them is padding.
fn whole(frame: &[u8]) -> usize {
    let claimed = match frame.get(12..18) {
        Some([8, 0, _, _, high, low]) => 14 + usize::from(u16::from_be_bytes([*high, *low])),
        Some([8, 6, ..]) => 42,
        _ => frame.len(),
    };
    claimed.min(frame.len())
}

#[test]
fn frames_cut_at_any_length_are_passed_untouched_or_dropped() {
    for case in cases::all() {
        for (index, step) in case.steps.iter().enumerate() {
            let Step::Ingress(frame, ..) = step else {
                continue;
            };
            for length in (0..whole(frame)).filter(|length| *length < 300 || length % 97 == 0) {
                let mut rig = before(&case, index);
                let tables = rig.tables().timeless();
                let ran = rig.ingress(&frame[..length]);
                let what = format!("\"{}\", step {index}, {length} bytes: {ran:?}", case.name);
                match ran.reason.outcome() {
                    Outcome::Pass => assert_eq!(ran.frame, frame[..length], "{what}"),
                    Outcome::Drop => {}
                    Outcome::Transmit | Outcome::Redirect => panic!("{what}"),
                }
                assert_eq!(rig.tables().timeless(), tables, "{what}");
            }
        }
    }
}

#[test]
fn leaving_frames_cut_at_any_length_leave_untouched() {
    for case in cases::all() {
        for (index, step) in case.steps.iter().enumerate() {
            let Step::Egress(frame, partial, ..) = step else {
                continue;
            };
            for length in 0..whole(frame) {
                let mut rig = before(&case, index);
                let ran = rig.egress(&frame[..length], *partial);
                assert_eq!(ran.reason, Reason::EgressOther, "{}", case.name);
                assert_eq!(ran.frame, frame[..length], "{}", case.name);
            }
        }
    }
}
