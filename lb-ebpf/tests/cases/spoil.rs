//! Frames with bytes changed at random, and what must hold whatever becomes of them.

use lb_common::{Outcome, Reason};

use super::case::Ran;
use super::packet::sum;

/// A generator that gives the same numbers each time (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

/// One to four bytes changed; sometimes the header's checksum is made right again.
pub fn spoil(random: &mut Random, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for _ in 0..=random.below(4) {
        // Mostly headers: there is more to be spoiled.
        let at = random.below(frame.len().min(70));
        frame[at] = match random.below(4) {
            0 => random.below(256) as u8,
            1 => frame[at] ^ 1 << random.below(8),
            2 => 0xff,
            _ => 0,
        };
    }
    if random.below(2) == 0 && frame.len() >= 34 {
        frame[24..26].fill(0);
        let checksum = !sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}

/// What is passed and not steered is as it came; what is sent goes to somebody, and from us.
pub fn check(frame: &[u8], ran: &Ran) {
    let steered = matches!(
        ran.reason,
        Reason::FlowLocal | Reason::NewLocal | Reason::RepeatedSyn | Reason::ReplyLocal
    );
    match ran.reason.outcome() {
        Outcome::Pass if steered => {
            assert_eq!(ran.frame.len(), frame.len());
            assert_eq!(ran.frame[..14], frame[..14]);
        }
        Outcome::Pass => assert_eq!(ran.frame, frame, "{:?}", ran.reason),
        Outcome::Transmit | Outcome::Redirect => {
            let redirected = ran.reason.outcome() == Outcome::Redirect;
            assert!(redirected || ran.frame[6..12] == super::packet::NODE_MAC);
            assert_eq!(ran.frame[0] & 1, 0, "sent to a group: {ran:02x?}");
        }
        Outcome::Drop => {}
    }
}
