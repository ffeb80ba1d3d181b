//! The peer that Sluice is measured against: an nftables DNAT map, as kube-proxy's nftables mode
//! keeps one.
//!
//! The kernel's own stack answers for the VIP and conntrack pins each connection; the map is
//! replaced as a whole in one transaction. Like kube-proxy it prefers ready endpoints, falls back
//! to terminating ones that serve, refuses when there is none, translates the client's address for
//! endpoints on the LAN (their replies would not come back here), and forgets the UDP entries of
//! endpoints that have left.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context as _, Result};

use crate::manifests::{Condition, Endpoint};
use crate::rollout::Directory;
use crate::{Lab, Ns, UPLINK};

/// The map on a node.
#[derive(Debug)]
pub struct NftablesPeer {
    node: Ns,
    vip: SocketAddrV4,
    port: u16,
    last: Vec<Ipv4Addr>,
}

impl NftablesPeer {
    /// Puts the VIP on node 0 and serves these endpoints behind it.
    pub fn start(lab: &Lab, vip: SocketAddrV4, port: u16, endpoints: &[Endpoint]) -> Result<Self> {
        let node = lab.node(0).netns().clone();
        let address = format!("{}/32", vip.ip());
        node.run("ip", &["addr", "add", &address, "dev", UPLINK])?;
        let mut peer = Self {
            node,
            vip,
            port,
            last: Vec::new(),
        };
        peer.list(endpoints)?;
        Ok(peer)
    }
}

impl Directory for NftablesPeer {
    fn list(&mut self, endpoints: &[Endpoint]) -> Result<()> {
        let having = |condition| {
            let these = endpoints
                .iter()
                .filter(move |endpoint| endpoint.condition == condition);
            these.cloned().collect::<Vec<_>>()
        };
        let mut targets = having(Condition::Ready);
        if targets.is_empty() {
            targets = having(Condition::Terminating);
        }
        let rules = rules(self.vip, self.port, &targets);
        let targets: Vec<_> = targets.iter().map(|target| target.address).collect();
        self.node
            .run("nft", &[&rules])
            .context("replacing the map")?;
        for gone in self.last.iter().filter(|last| !targets.contains(last)) {
            // It says so by its exit status when there was no such entry.
            let gone = gone.to_string();
            let forget = ["-D", "-p", "udp", "--reply-src", &gone];
            let _ = self.node.run("conntrack", &forget);
        }
        self.last = targets;
        Ok(())
    }
}

fn rules(vip: SocketAddrV4, port: u16, targets: &[Endpoint]) -> String {
    let (address, from) = (vip.ip(), vip.port());
    let verdict = if targets.is_empty() {
        "reject with tcp reset".to_owned()
    } else {
        let map: Vec<_> = targets
            .iter()
            .enumerate()
            .map(|(index, target)| format!("{index} : {}", target.address))
            .collect();
        let (count, map) = (targets.len(), map.join(", "));
        format!("dnat to numgen random mod {count} map {{ {map} }} : {port}")
    };
    let chain = if targets.is_empty() {
        format!(
            "chain refuse {{ type filter hook input priority 0; ip daddr {address} tcp dport {from} {verdict}; }}"
        )
    } else {
        format!(
            "chain services {{ type nat hook prerouting priority dstnat; \
             ip daddr {address} tcp dport {from} {verdict}; \
             ip daddr {address} udp dport {from} {verdict};\n}}"
        )
    };
    let lan: Vec<_> = targets
        .iter()
        .filter(|target| target.node.is_none())
        .map(|target| format!("ip daddr {} ct status dnat masquerade;", target.address))
        .collect();
    let lan = lan.join(" ");
    let after = format!("chain masquerading {{ type nat hook postrouting priority srcnat; {lan}}}");
    format!("table ip peer; delete table ip peer; table ip peer {{ {chain}\n{after}\n}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_has_every_target_once() {
        let vip = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 64), 80);
        let targets =
            [("10.0.0.1", Some("n0")), ("10.0.0.2", None)].map(|(address, node)| Endpoint {
                address: address.parse().expect("an address"),
                node: node.map(str::to_owned),
                uid: String::new(),
                condition: Condition::Ready,
            });
        let text = rules(vip, 8080, &targets);
        assert!(
            text.contains("mod 2 map { 0 : 10.0.0.1, 1 : 10.0.0.2 } : 8080"),
            "{text}"
        );
        assert_eq!(text.matches("masquerade;").count(), 1, "{text}");
        assert!(text.contains("ip daddr 10.0.0.2 ct status"), "{text}");
        assert!(rules(vip, 8080, &[]).contains("reject"));
    }
}
