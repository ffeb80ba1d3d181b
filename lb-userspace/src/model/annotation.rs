//! Annotations on a Service: Sluice's own, and MetalLB's so that a cluster can move over.
//!
//! Where both are set Sluice's counts. A value that cannot be read is an error with its key.

use std::net::IpAddr;
use std::time::Duration;

use thiserror::Error;

use crate::watch::object::Service;

/// Addresses asked for, separated by commas.
pub(super) const ADDRESSES: &[&str] = &[
    "sluice.dev/addresses",
    "metallb.io/loadBalancerIPs",
    "metallb.universe.tf/loadBalancerIPs",
];
/// AddressPool asked for.
pub(super) const POOL: &[&str] = &[
    "sluice.dev/pool",
    "metallb.io/address-pool",
    "metallb.universe.tf/address-pool",
];
/// Services with the same key may share an address.
pub(super) const SHARED_KEY: &[&str] = &[
    "sluice.dev/shared-key",
    "metallb.io/allow-shared-ip",
    "metallb.universe.tf/allow-shared-ip",
];
/// Upper limit for draining.
pub(super) const DRAIN_TIMEOUT: &[&str] = &["sluice.dev/drain-timeout"];

/// Why an annotation cannot be used.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub(super) enum AnnotationError {
    /// Not a list of addresses.
    #[error("{key} has {value:?}: expected IP addresses separated by commas")]
    Address {
        /// The annotation or field.
        key: String,
        /// The entry that is wrong.
        value: String,
    },
    /// Not a duration.
    #[error(
        "annotation {key} is {value:?}: expected a duration such as 30s, 5m or 1h30m, or seconds"
    )]
    Duration {
        /// The annotation.
        key: String,
        /// What it says.
        value: String,
    },
}

/// The first of `keys` that is set and not empty.
pub(super) fn first<'a>(service: &'a Service, keys: &[&'a str]) -> Option<(&'a str, &'a str)> {
    let value = |key: &&'a str| service.annotations.get(*key).map(|v| (*key, v.trim()));
    keys.iter()
        .filter_map(value)
        .find(|(_, value)| !value.is_empty())
}

/// Reads a list of addresses; no address twice.
pub(super) fn addresses(key: &str, value: &str) -> Result<Vec<IpAddr>, AnnotationError> {
    let mut found = Vec::new();
    for entry in value.split(',').map(str::trim) {
        let parsed = entry
            .parse::<IpAddr>()
            .map_err(|_source| AnnotationError::Address {
                key: key.to_owned(),
                value: entry.to_owned(),
            });
        let address = parsed?;
        if !found.contains(&address) {
            found.push(address);
        }
    }
    Ok(found)
}

/// Reads a duration in Go's spelling, or plain seconds.
pub(super) fn duration(key: &str, value: &str) -> Result<Duration, AnnotationError> {
    go_duration(value).ok_or_else(|| AnnotationError::Duration {
        key: key.to_owned(),
        value: value.to_owned(),
    })
}

fn go_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    // Longer than any connection lives: a typo rather than a wish, and clocks would overflow.
    let sane = total <= Duration::from_secs(u32::MAX.into());
    (!text.is_empty() && sane).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos_or_seconds() {
        let good = [
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("90", 90_000),
            ("0", 0),
            ("0s", 0),
        ];
        for (text, millis) in good {
            assert_eq!(
                go_duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for bad in [
            "",
            "5 min",
            "-5s",
            "s",
            "1.2.3s",
            "1d",
            "99999999999h",
            "5m3",
        ] {
            assert_eq!(go_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn our_own_annotation_comes_first_and_empty_ones_do_not_count() {
        let mut service = Service::default();
        let set = |s: &mut Service, k: &str, v: &str| s.annotations.insert(k.into(), v.into());
        assert_eq!(first(&service, POOL), None);
        set(&mut service, "metallb.universe.tf/address-pool", "old");
        assert_eq!(
            first(&service, POOL),
            Some(("metallb.universe.tf/address-pool", "old"))
        );
        set(&mut service, "metallb.io/address-pool", "newer");
        set(&mut service, "sluice.dev/pool", " ");
        assert_eq!(
            first(&service, POOL),
            Some(("metallb.io/address-pool", "newer"))
        );
        set(&mut service, "sluice.dev/pool", "ours");
        assert_eq!(first(&service, POOL), Some(("sluice.dev/pool", "ours")));
    }

    #[test]
    fn a_bad_address_names_its_key() {
        let error = addresses("sluice.dev/addresses", "192.0.2.1, 192.0.2").expect_err("refused");
        assert_eq!(
            error.to_string(),
            "sluice.dev/addresses has \"192.0.2\": expected IP addresses separated by commas"
        );
    }
}
