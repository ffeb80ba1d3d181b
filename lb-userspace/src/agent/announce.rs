//! Gratuitous ARP: tells the segment where a VIP is.
//!
//! As a *request* for the VIP from the VIP, which a Linux neighbour takes even within a second of
//! its last update (a reply with an empty target would be ignored). At once, again over some
//! seconds, then once a minute. Pure: the time is an argument, the frames are data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lb_common::V4;

use super::uplink::Uplink;
use super::{Agent, boot_clock};

/// Time from each announcement to the next; the last one goes on for ever.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_mins(1),
];

/// VIPs announced at a time: a thousand at once would keep the loop from everything else.
const MOST: usize = 64;
/// Time to the next ones.
pub(super) const PACE: Duration = Duration::from_millis(20);

/// When each VIP is announced next.
#[derive(Clone, Debug, Default)]
pub(super) struct Announcer {
    due: BTreeMap<V4, (Duration, usize)>,
    /// More are due than were announced.
    behind: bool,
}

impl Announcer {
    /// These VIPs are ours now; new ones are announced at once.
    pub(super) fn want(&mut self, vips: &BTreeSet<V4>, now: Duration) {
        self.due.retain(|vip, _| vips.contains(vip));
        for vip in vips {
            self.due.entry(*vip).or_insert((now, 0));
        }
    }

    /// Announces everything anew: an interface has appeared or changed.
    pub(super) fn again(&mut self) {
        for due in self.due.values_mut() {
            *due = (Duration::ZERO, 0);
        }
    }

    /// True when more are due than were announced: [`PACE`] later is the time for them.
    pub(super) fn is_behind(&self) -> bool {
        self.behind
    }

    /// The frames to send now, each with its interface.
    pub(super) fn due<'a>(
        &mut self,
        now: Duration,
        vips: &BTreeSet<V4>,
        uplinks: impl Iterator<Item = &'a Uplink>,
    ) -> Vec<(u32, Vec<u8>)> {
        let links: Vec<_> = uplinks
            .filter_map(|uplink| uplink.attachment.as_ref())
            .filter_map(|attachment| Some((attachment.link.index, attachment.link.mac?)))
            .collect();
        self.behind = false;
        if links.is_empty() {
            return Vec::new();
        }
        let announced = self.take(now, vips).into_iter();
        announced
            .flat_map(|vip| {
                links
                    .iter()
                    .map(move |(index, mac)| (*index, frame(vip, *mac)))
            })
            .collect()
    }

    /// VIPs that are due, as many as go at a time.
    fn take(&mut self, now: Duration, vips: &BTreeSet<V4>) -> Vec<V4> {
        let mut taken = Vec::new();
        self.behind = false;
        for (vip, (at, step)) in &mut self.due {
            if *at > now || !vips.contains(vip) {
                continue;
            }
            if taken.len() == MOST {
                self.behind = true;
                break;
            }
            taken.push(*vip);
            let pause = PAUSES
                .get(*step)
                .or(PAUSES.last())
                .copied()
                .unwrap_or_default();
            *at = now + pause;
            *step += 1;
        }
        taken
    }
}

impl Agent {
    /// Says where VIPs are that are due to be announced.
    pub(super) fn announce(&mut self) {
        let now = boot_clock();
        for (ifindex, frame) in self.announcer.due(now, &self.vips(), self.uplinks.values()) {
            if let Err(error) = self.datapath.emit(ifindex, &frame) {
                tracing::warn!(%error, "cannot announce a VIP");
            }
        }
    }
}

/// A broadcast request for `vip` from `vip` (RFC 5944, 4.6).
fn frame(vip: V4, mac: [u8; 6]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(60);
    frame.extend([0xff; 6]);
    frame.extend(mac);
    frame.extend([0x08, 0x06]);
    frame.extend([0, 1, 0x08, 0, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend(vip.0);
    frame.extend([0; 6]);
    frame.extend(vip.0);
    frame.resize(60, 0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_asks_for_the_vip_from_the_vip() {
        let frame = frame(V4([192, 0, 2, 7]), [2, 0, 0, 0, 0, 9]);
        assert_eq!(frame.len(), 60);
        assert_eq!(frame[..6], [0xff; 6]);
        assert_eq!(frame[20..22], [0, 1], "a request");
        assert_eq!(frame[28..32], [192, 0, 2, 7]);
        assert_eq!(frame[38..42], [192, 0, 2, 7]);
    }

    #[test]
    fn many_are_announced_in_parts_and_none_is_forgotten() {
        let vips: BTreeSet<V4> = (0..200).map(|n| V4([198, 18, 0, n])).collect();
        let mut announcer = Announcer::default();
        announcer.want(&vips, Duration::ZERO);
        let mut told = BTreeSet::new();
        let mut parts = 0;
        while parts == 0 || announcer.is_behind() {
            let now = announcer.take(Duration::ZERO, &vips);
            assert!(!now.is_empty() && now.len() <= MOST);
            for vip in now {
                assert!(told.insert(vip), "{vip:?} twice");
            }
            parts += 1;
        }
        assert_eq!((told, parts), (vips, 4));
    }

    #[test]
    fn vips_that_went_are_not_announced_again() {
        let mut announcer = Announcer::default();
        let both = BTreeSet::from([V4([1, 1, 1, 1]), V4([2, 2, 2, 2])]);
        announcer.want(&both, Duration::ZERO);
        announcer.want(&BTreeSet::from([V4([2, 2, 2, 2])]), Duration::ZERO);
        assert_eq!(
            announcer.due.keys().collect::<Vec<_>>(),
            [&V4([2, 2, 2, 2])]
        );
    }
}
