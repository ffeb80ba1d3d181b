//! Which addresses may be a VIP at all: inside a pool or an allowed network, and nobody's own.
//!
//! A Service must not be able to take the gateway's or a node's address, whoever wrote it
//! into the status.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use thiserror::Error;

use crate::model::address;
use crate::model::context::Context;
use crate::model::pool::Pool;
use crate::watch::object::Node;

/// Why an address cannot be a VIP.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub(super) enum VipError {
    /// Multicast and the like.
    #[error("is {0}: expected a unicast address")]
    NotUnicast(&'static str),
    /// Somebody's own.
    #[error("is {0}: a Service cannot have it")]
    Taken(String),
    /// In no pool.
    #[error("is outside every AddressPool: expected an address of a pool, or --allow-addresses")]
    Outside,
}

/// Everything that decides on an address.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission {
    /// By name.
    pub(super) pools: Vec<Pool>,
    allowed: Vec<IpNet>,
    refused: BTreeMap<IpNet, String>,
    /// Prefix lengths that occur in `refused`: a look-up per length instead of per network.
    lengths: BTreeSet<(bool, u8)>,
}

impl Admission {
    pub(super) fn new<'a>(
        context: &Context,
        pools: Vec<Pool>,
        nodes: impl Iterator<Item = &'a Node>,
    ) -> Self {
        let mut refused = BTreeMap::new();
        for node in nodes {
            let name = &node.name.name;
            for address in &node.addresses {
                refused.insert(IpNet::from(*address), format!("an address of Node {name}"));
            }
            for net in &node.pod_cidrs {
                refused.insert(net.trunc(), format!("in the pod range of Node {name}"));
            }
        }
        let told = &context.refuse_addresses;
        refused.extend(told.iter().map(|(net, what)| (net.trunc(), what.clone())));
        let lengths = refused
            .keys()
            .map(|n| (n.addr().is_ipv4(), n.prefix_len()))
            .collect();
        Self {
            pools,
            allowed: context.allow_addresses.clone(),
            refused,
            lengths,
        }
    }

    /// Says whether the address may be a VIP; pool selectors and sharing come later.
    pub(super) fn check(&self, address: IpAddr) -> Result<(), VipError> {
        if let Some(kind) = address::not_unicast(address) {
            return Err(VipError::NotUnicast(kind));
        }
        if let Some((_, what)) = self.refusal(address) {
            return Err(VipError::Taken(what.to_owned()));
        }
        if self.is_allowed(address) || self.pool_of(address).is_some() {
            Ok(())
        } else {
            Err(VipError::Outside)
        }
    }

    /// The network that makes the address unusable, and what it is.
    pub(super) fn refusal(&self, address: IpAddr) -> Option<(&IpNet, &str)> {
        let lengths = self
            .lengths
            .iter()
            .filter(|(v4, _)| *v4 == address.is_ipv4());
        let nets = lengths.filter_map(|(_, length)| IpNet::new(address, *length).ok());
        let known = nets.filter_map(|net| self.refused.get_key_value(&net.trunc()));
        known.map(|(net, what)| (net, what.as_str())).next()
    }

    /// In one of `--allow-addresses`.
    pub(super) fn is_allowed(&self, address: IpAddr) -> bool {
        self.allowed.iter().any(|net| net.contains(&address))
    }

    /// The first pool by name that has the address.
    pub(super) fn pool_of(&self, address: IpAddr) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::ObjectName;
    use crate::watch::object;

    #[test]
    fn a_vip_is_in_a_pool_and_nobodys_own() {
        let mut context = Context::new("n1");
        context.allow_addresses = vec!["198.51.100.0/24".parse().expect("net")];
        let gateway = (
            "192.0.2.1/32".parse().expect("net"),
            "the default gateway".to_owned(),
        );
        context.refuse_addresses.extend([gateway]);
        let spec = object::Pool {
            addresses: vec!["192.0.2.0/24".into()],
            ..Default::default()
        };
        let node = Node {
            name: ObjectName {
                name: "n2".into(),
                ..ObjectName::default()
            },
            addresses: vec!["192.0.2.7".parse().expect("address")],
            pod_cidrs: vec!["192.0.2.64/26".parse().expect("net")],
            ..Node::default()
        };
        let admission = Admission::new(&context, vec![Pool::of(&spec).0], [&node].into_iter());
        let table = [
            ("192.0.2.10", "good"),
            ("198.51.100.9", "good"),
            ("192.0.2.1", "the default gateway"),
            ("192.0.2.7", "an address of Node n2"),
            ("192.0.2.65", "in the pod range of Node n2"),
            ("203.0.113.1", "outside every AddressPool"),
            ("224.0.0.1", "multicast"),
            ("2001:db8::1", "outside every AddressPool"),
        ];
        for (address, expected) in table {
            let result = admission.check(address.parse().expect("address"));
            let said = result.map_or_else(|e| e.to_string(), |()| "good".to_owned());
            assert!(said.contains(expected), "{address}: {said}");
        }
    }
}
