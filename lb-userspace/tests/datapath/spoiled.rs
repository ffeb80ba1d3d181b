//! Frames that nobody would send: noise, and valid frames with bytes changed. Whatever the host
//! makes of them, the kernel must make the same.

use super::Both;
use super::cases::case::{Rig, Step, apply};
use super::cases::node::Node;
use super::cases::spoil::{Random, check, spoil};

#[test]
#[ignore = "root"]
fn spoiled_frames_meet_the_same_fate_in_the_kernel() {
    let mut both = Both::new();
    let mut random = Random(7);
    for case in super::cases() {
        both.set_up(&case.node);
        for step in &case.steps {
            for _ in 0..3 {
                if let Step::Ingress(frame, ..) = step {
                    let spoiled = spoil(&mut random, frame);
                    check(&spoiled, &both.ingress(&spoiled));
                }
                if let Step::Egress(frame, ..) = step {
                    let spoiled = spoil(&mut random, frame);
                    check(&spoiled, &both.egress(&spoiled, false));
                }
            }
            if !matches!(step, Step::Tables(_)) {
                apply(&mut both, step);
            }
        }
    }
}

#[test]
#[ignore = "root"]
fn noise_meets_the_same_fate_in_the_kernel() {
    let mut both = Both::new();
    let mut random = Random(9);
    both.set_up(&Node::local());
    for _ in 0..300 {
        let length = 14 + random.below(100);
        let mut frame: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        if random.below(2) == 0 {
            frame[12..14].copy_from_slice(&[8, 0]);
        }
        check(&frame, &both.ingress(&frame));
    }
}
