//! Says in the log who else claims a VIP: once when it is first heard, then once a minute while it
//! goes on. Never more often: a broken neighbour must not fill a disk.

use std::collections::BTreeMap;
use std::time::Duration;

use lb_common::{Mac, V4};

use crate::observe::pins::PinnedMaps;

const PAUSE: Duration = Duration::from_mins(1);

/// What was said already.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    said: BTreeMap<V4, (u32, Duration)>,
}

impl Conflicts {
    /// Looks at the claims that the data plane has counted.
    pub(super) fn look(&mut self, maps: &PinnedMaps, now: Duration) {
        let claims = match maps.conflicts() {
            Ok(claims) => claims,
            Err(error) => {
                tracing::warn!(%error, "cannot read who else claims our VIPs");
                return;
            }
        };
        for (vip, claim) in claims {
            if self.is_news(vip, claim.count, now) {
                tracing::warn!(
                    vip = %std::net::Ipv4Addr::from(vip.0), mac = %mac(claim.mac), claims = claim.count,
                    "another machine claims this VIP: clients may be talking to it"
                );
            }
        }
    }

    fn is_news(&mut self, vip: V4, count: u32, now: Duration) -> bool {
        let news = self
            .said
            .get(&vip)
            .is_none_or(|(said, at)| *said != count && now.saturating_sub(*at) >= PAUSE);
        if news {
            self.said.insert(vip, (count, now));
        }
        news
    }
}

fn mac(mac: Mac) -> String {
    mac.0.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_news_at_first_and_then_once_a_minute_while_it_goes_on() {
        let mut conflicts = Conflicts::default();
        let vip = V4([192, 0, 2, 64]);
        let mut at = |count, seconds| conflicts.is_news(vip, count, Duration::from_secs(seconds));
        assert!(at(1, 0));
        assert!(!at(2, 1));
        assert!(!at(9, 59));
        assert!(at(9, 60));
        assert!(!at(9, 200), "it has stopped");
        assert!(at(10, 201));
    }
}
