//! AddressPools: the text of their ranges checked, and which Service may use which.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use thiserror::Error;

use crate::model::{Family, address};
use crate::watch::object::{Labels, Pool as Spec, Selector, Service};

/// The only label of a namespace that is known without watching namespaces: every namespace
/// carries it, with its own name.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// Inclusive range of addresses of one family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Range {
    pub(super) first: IpAddr,
    pub(super) last: IpAddr,
}

/// A pool that can be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) ranges: Vec<Range>,
    pub(super) auto_assign: bool,
    avoid_buggy_ips: bool,
    services: Option<Selector>,
    namespaces: Option<Selector>,
    pub(super) nodes: Option<Selector>,
}

/// What is wrong with a pool.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub(super) enum PoolError {
    /// No addresses.
    #[error("spec.addresses is empty: expected CIDRs or ranges")]
    Empty,
    /// Not a range.
    #[error(
        "spec.addresses[{index}] is {text:?}: expected a CIDR such as 192.0.2.96/28 or a range such as 192.0.2.120-192.0.2.127"
    )]
    Range {
        /// Place in the list.
        index: usize,
        /// What it says.
        text: String,
    },
    /// Backwards.
    #[error("spec.addresses[{index}] is {text:?}: expected the first address not above the last")]
    Backwards {
        /// Place in the list.
        index: usize,
        /// What it says.
        text: String,
    },
    /// A namespace label nobody told us.
    #[error(
        "spec.namespaceSelector asks for label {0}: expected kubernetes.io/metadata.name, the only one known; the pool serves no Service"
    )]
    NamespaceLabel(String),
}

impl Pool {
    /// Checks a pool; a bad range costs that range.
    pub(super) fn of(spec: &Spec) -> (Self, Vec<PoolError>) {
        let mut problems = Vec::new();
        let mut ranges = Vec::with_capacity(spec.addresses.len());
        if spec.addresses.is_empty() {
            problems.push(PoolError::Empty);
        }
        for (index, text) in spec.addresses.iter().enumerate() {
            match Range::parse(text) {
                Ok(range) if range.first <= range.last => ranges.push(range),
                Ok(_) => problems.push(PoolError::Backwards {
                    index,
                    text: text.clone(),
                }),
                Err(()) => problems.push(PoolError::Range {
                    index,
                    text: text.clone(),
                }),
            }
        }
        let mut keys = spec.namespace_selector.iter().flat_map(Selector::keys);
        if let Some(key) = keys.find(|key| *key != NAMESPACE_LABEL) {
            problems.push(PoolError::NamespaceLabel(key.to_owned()));
        }
        let unknown_label = problems
            .iter()
            .any(|p| matches!(p, PoolError::NamespaceLabel(_)));
        let pool = Self {
            name: spec.name.name.clone(),
            ranges,
            auto_assign: spec.auto_assign,
            avoid_buggy_ips: spec.avoid_buggy_ips,
            services: spec.service_selector.clone(),
            namespaces: if unknown_label {
                Some(nothing())
            } else {
                spec.namespace_selector.clone()
            },
            nodes: spec.node_selector.clone(),
        };
        (pool, problems)
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|r| r.contains(address))
    }

    /// True when the pool's selectors allow the Service.
    pub(super) fn admits(&self, service: &Service) -> bool {
        let namespace =
            || Labels::from([(NAMESPACE_LABEL.to_owned(), service.name.namespace.clone())]);
        self.services
            .as_ref()
            .is_none_or(|s| s.matches(&service.labels))
            && self
                .namespaces
                .as_ref()
                .is_none_or(|s| s.matches(&namespace()))
    }

    /// True for an address that the pool holds back.
    pub(super) fn avoids(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => self.avoid_buggy_ips && matches!(a.octets()[3], 0 | 255),
            IpAddr::V6(_) => false,
        }
    }

    pub(super) fn has(&self, family: Family) -> bool {
        self.ranges.iter().any(|r| Family::of(r.first) == family)
    }
}

/// A selector that no labels satisfy.
fn nothing() -> Selector {
    let labels = Labels::from([(NAMESPACE_LABEL.to_owned(), String::new())]);
    Selector {
        labels,
        expressions: Vec::new(),
    }
}

impl Range {
    fn parse(text: &str) -> Result<Self, ()> {
        if let Some((first, last)) = text.split_once('-') {
            let first = address::parse(first.trim()).ok_or(())?;
            let last = address::parse(last.trim()).ok_or(())?;
            let same = Family::of(first) == Family::of(last);
            return if same {
                Ok(Self { first, last })
            } else {
                Err(())
            };
        }
        if let Some(only) = address::parse(text.trim()) {
            return Ok(Self {
                first: only,
                last: only,
            });
        }
        let net: IpNet = text.trim().parse().map_err(|_not_a_network| ())?;
        Ok(Self {
            first: net.network(),
            last: net.broadcast(),
        })
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.first <= address && address <= self.last
    }
}

/// The address after this one, within its family.
pub(super) fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(a) => a
            .to_bits()
            .checked_add(1)
            .map(|n| Ipv4Addr::from_bits(n).into()),
        IpAddr::V6(a) => a
            .to_bits()
            .checked_add(1)
            .map(|n| Ipv6Addr::from_bits(n).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(addresses: &[&str]) -> Spec {
        Spec {
            addresses: addresses.iter().map(|a| (*a).to_owned()).collect(),
            ..Spec::default()
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("address")
    }

    #[test]
    fn ranges_and_networks_of_both_families() {
        let (pool, problems) = Pool::of(&spec(&[
            "192.0.2.96/28",
            "192.0.2.120 - 192.0.2.127",
            "192.0.2.5",
            "2001:db8::/120",
        ]));
        assert_eq!(problems, []);
        for inside in [
            "192.0.2.96",
            "192.0.2.111",
            "192.0.2.127",
            "192.0.2.5",
            "2001:db8::ff",
        ] {
            assert!(pool.contains(ip(inside)), "{inside}");
        }
        for outside in ["192.0.2.95", "192.0.2.112", "192.0.2.128", "2001:db8::100"] {
            assert!(!pool.contains(ip(outside)), "{outside}");
        }
    }

    #[test]
    fn a_bad_range_is_named_and_the_others_stay() {
        let (pool, problems) = Pool::of(&spec(&[
            "192.0.2.9-192.0.2.1",
            "192.0.2.0/33",
            "192.0.2.1-2001:db8::1",
            "192.0.2.1/32",
        ]));
        let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert!(
            said[0].contains("spec.addresses[0]") && said[0].contains("not above"),
            "{said:?}"
        );
        assert!(said[1].contains("spec.addresses[1]"), "{said:?}");
        assert!(said[2].contains("spec.addresses[2]"), "{said:?}");
        assert_eq!(pool.ranges.len(), 1);
        assert_eq!(Pool::of(&spec(&[])).1, [PoolError::Empty]);
    }

    #[test]
    fn an_unknown_namespace_label_admits_nobody() {
        let selector = |key: &str| {
            let labels = Labels::from([(key.to_owned(), "shop".to_owned())]);
            Some(Selector {
                labels,
                expressions: vec![],
            })
        };
        let mut service = Service::default();
        service.name.namespace = "shop".into();
        let (pool, problems) = Pool::of(&Spec {
            namespace_selector: selector(NAMESPACE_LABEL),
            ..spec(&["192.0.2.1"])
        });
        assert!(problems.is_empty() && pool.admits(&service));
        let (pool, problems) = Pool::of(&Spec {
            namespace_selector: selector("team"),
            ..spec(&["192.0.2.1"])
        });
        assert!(!problems.is_empty() && !pool.admits(&service));
    }
}
