//! Addresses as people and old controllers write them.

use std::net::{IpAddr, Ipv4Addr};

/// Parses an address; `010.004.0.1` is 10.4.0.1 (decimal, as Kubernetes reads it), so that two
/// spellings are one endpoint.
pub(super) fn parse(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address);
    }
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let digits = part.trim_start_matches('0');
        let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        *octet = match (plain, digits) {
            (false, _) => return None,
            (true, "") => 0,
            (true, digits) => digits.parse().ok()?,
        };
    }
    parts
        .next()
        .is_none()
        .then(|| Ipv4Addr::from(octets).into())
}

/// Why an address can be neither a VIP nor an endpoint; `None` when it can.
pub(super) fn not_unicast(address: IpAddr) -> Option<&'static str> {
    if address.is_unspecified() {
        return Some("unspecified");
    }
    if address.is_loopback() {
        return Some("loopback");
    }
    if address.is_multicast() {
        return Some("multicast");
    }
    match address {
        IpAddr::V4(a) if a.is_link_local() => Some("link-local"),
        IpAddr::V4(a) if a.is_broadcast() => Some("broadcast"),
        IpAddr::V4(a) if a.octets()[0] == 0 => Some("unspecified"),
        IpAddr::V6(a) if a.is_unicast_link_local() => Some("link-local"),
        IpAddr::V6(a) if a.to_ipv4_mapped().is_some() => Some("IPv4-mapped"),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_address_are_equal() {
        let table = [
            ("10.4.0.1", Some("10.4.0.1")),
            ("010.004.000.001", Some("10.4.0.1")),
            ("0.0.0.0", Some("0.0.0.0")),
            ("2001:0db8:0:0:0:0:0:1", Some("2001:db8::1")),
            ("10.4.0", None),
            ("10.4.0.1.5", None),
            ("10.4.0.256", None),
            ("10.4..1", None),
            ("+1.2.3.4", None),
            ("db.example.com", None),
            ("", None),
        ];
        for (text, expected) in table {
            let expected = expected.map(|e| e.parse::<IpAddr>().expect("address"));
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn only_unicast_is_served() {
        for bad in [
            "127.0.0.1",
            "0.1.2.3",
            "224.0.0.1",
            "169.254.1.1",
            "255.255.255.255",
        ] {
            assert!(
                not_unicast(bad.parse().expect("address")).is_some(),
                "{bad}"
            );
        }
        for bad in ["::", "::1", "ff02::1", "fe80::1", "::ffff:10.0.0.1"] {
            assert!(
                not_unicast(bad.parse().expect("address")).is_some(),
                "{bad}"
            );
        }
        for good in ["10.0.0.1", "192.0.2.255", "2001:db8::1", "fd00::1"] {
            assert_eq!(not_unicast(good.parse().expect("address")), None, "{good}");
        }
    }
}
