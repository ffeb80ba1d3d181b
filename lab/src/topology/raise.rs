//! How a lab comes up: all namespaces, then all links, in two runs of `ip -batch`; then each namespace on its own.
//!
//! The order matters: an interface takes its sysctls from its namespace's defaults at birth.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail, ensure};

use super::{
    Client, Lab, LanServer, MAX_PODS, Node, POD_BRIDGE, Pod, PodId, UPLINK, format_mac, lan,
};
use crate::builder::{LabBuilder, Offloads, PodLinks, RpFilter};
use crate::ip::{Batch, ethtool};
use crate::ns::Ns;
use crate::xdp_pass::XdpPass;
use crate::{names, teardown};

const LAN_BRIDGE: &str = "br0";
const LAN_GATEWAY: Ipv4Addr = lan(1);

impl Lab {
    pub(crate) fn raise(options: LabBuilder) -> Result<Self> {
        teardown::cleanup_stale()?;
        let id = names::fresh_id()?;
        teardown::register_lab(&id);
        let ns = |role: &str, index: usize| Ns::named(format!("{id}-{role}{index}"));
        // From here on an early return drops the lab, and with it all that was made.
        let mut lab = Self {
            lan: Ns::named(format!("{id}-lan")),
            nodes: (0_u8..)
                .take(options.nodes)
                .map(|i| Node::new(i, ns("n", i.into())))
                .collect(),
            pods: Vec::new(),
            servers: (0_u8..)
                .take(options.lan_servers)
                .map(|i| LanServer {
                    ns: ns("s", i.into()),
                    addr: lan(30 + i),
                })
                .collect(),
            clients: (0..options.client_namespaces)
                .map(|i| Client::new(ns("c", i), i, options.clients))
                .collect(),
            id: id.clone(),
            options,
        };
        for node in 0..lab.nodes.len() {
            for _ in 0..lab.options.pods {
                let addr = lab.free_pod_addr(node)?;
                let pod = lab.new_pod(node, addr);
                lab.pods.push(pod);
            }
        }
        lab.create()?;
        lab.configure()?;
        Ok(lab)
    }

    /// Brings up one pod that is on the list already.
    pub(super) fn raise_pod(&self, id: PodId) -> Result<()> {
        let pod = &self.pods[id];
        create_namespaces(&[&pod.ns], self.options.ipv6)?;
        let mut link = Batch::default();
        link.add(self.pod_link(pod)).apply()?;
        let mut host_side = Batch::default();
        self.pod_host_side(pod, &mut host_side);
        host_side.apply_in(&self.nodes[pod.node].ns)?;
        self.configure_pod(pod)
    }

    fn create(&self) -> Result<()> {
        let mut all = vec![&self.lan];
        all.extend(self.nodes.iter().map(|node| &node.ns));
        all.extend(self.pods.iter().map(|pod| &pod.ns));
        all.extend(self.servers.iter().map(|server| &server.ns));
        all.extend(self.clients.iter().map(|client| &client.ns));
        create_namespaces(&all, self.options.ipv6)?;

        let mut batch = Batch::default();
        for node in &self.nodes {
            batch.add(self.lan_link(&node.lan_port, &node.ns, Some(node.mac)));
        }
        for (i, server) in self.servers.iter().enumerate() {
            batch.add(self.lan_link(&format!("s{i}"), &server.ns, None));
        }
        for (i, client) in self.clients.iter().enumerate() {
            batch.add(self.lan_link(&format!("c{i}"), &client.ns, None));
        }
        for pod in &self.pods {
            batch.add(self.pod_link(pod));
        }
        batch.apply()
    }

    fn configure(&mut self) -> Result<()> {
        self.configure_lan()?;
        for node in 0..self.nodes.len() {
            self.configure_node(node)?;
        }
        for pod in &self.pods {
            self.configure_pod(pod)?;
        }
        for server in &self.servers {
            server.ns.sysctls(SERVER_SYSCTLS)?;
            self.configure_host(&server.ns, &[server.addr])?;
        }
        for client in &self.clients {
            client.ns.sysctls(CLIENT_SYSCTLS)?;
            self.configure_host(&client.ns, &client.addrs)?;
        }
        if self.options.pod_routes {
            self.add_pod_routes()?;
        }
        Ok(())
    }

    fn configure_lan(&self) -> Result<()> {
        let ports = self.lan_ports();
        let mtu = self.options.mtu;
        let mut batch = Batch::default();
        batch.add("link set lo up");
        // A fixed address: a bridge otherwise takes on that of its lowest port, whichever that is today.
        batch.add(format!(
            "link add {LAN_BRIDGE} address 02:00:c0:00:02:01 mtu {mtu} type bridge mcast_snooping 0"
        ));
        batch.add(format!("addr add {LAN_GATEWAY}/24 dev {LAN_BRIDGE}"));
        for port in &ports {
            batch.add(format!("link set {port} master {LAN_BRIDGE} up"));
        }
        batch.add(format!("link set {LAN_BRIDGE} up"));
        batch.apply_in(&self.lan)?;
        for port in &ports {
            self.set_offloads(&self.lan, port)?;
        }
        Ok(())
    }

    fn configure_node(&mut self, index: usize) -> Result<()> {
        let node = &self.nodes[index];
        let filter = match self.options.rp_filter {
            RpFilter::Off => "0",
            RpFilter::Strict => "1",
            RpFilter::Loose => "2",
        };
        node.ns.sysctls(&[
            ("ipv4/ip_forward", "1"),
            ("ipv4/conf/all/rp_filter", filter),
            ("ipv4/conf/default/rp_filter", filter),
            ("ipv4/conf/eth0/rp_filter", filter),
            // Either of "all" and the interface's own would do to send them, and they name pods to clients.
            ("ipv4/conf/all/send_redirects", "0"),
            ("ipv4/conf/default/send_redirects", "0"),
            ("ipv4/conf/eth0/send_redirects", "0"),
        ])?;
        let mut batch = Batch::default();
        batch
            .add("link set lo up")
            .add(format!("addr add {}/24 dev {UPLINK}", node.addr()));
        batch
            .add(format!("link set {UPLINK} up"))
            .add(format!("route add default via {LAN_GATEWAY}"));
        if self.options.pod_links == PodLinks::Bridge {
            let (n, mtu) = (node.index, self.options.mtu);
            batch.add(format!("link add {POD_BRIDGE} address 02:00:0a:f4:{n:02x}:01 mtu {mtu} type bridge mcast_snooping 0"));
            batch.add(format!(
                "addr add {}/24 dev {POD_BRIDGE}",
                node.pod_gateway()
            ));
            batch.add(format!("link set {POD_BRIDGE} up"));
        }
        for pod in self.pods.iter().filter(|pod| pod.node == index) {
            self.pod_host_side(pod, &mut batch);
        }
        for other in self.nodes.iter().filter(|other| other.index != node.index) {
            batch.add(format!(
                "route add {} via {}",
                other.pod_subnet(),
                other.addr()
            ));
        }
        batch.apply_in(&node.ns)?;
        self.set_offloads(&node.ns, UPLINK)?;
        if self.options.lan_port_xdp_pass {
            let pass = self.lan.enter(|| XdpPass::attach(&node.lan_port))?;
            self.nodes[index].pass =
                Some(pass.with_context(|| format!("the LAN port of node {index}"))?);
        }
        Ok(())
    }

    fn configure_pod(&self, pod: &Pod) -> Result<()> {
        pod.ns.sysctls(SERVER_SYSCTLS)?;
        let gateway = self.nodes[pod.node].pod_gateway();
        let mut batch = Batch::default();
        batch.add("link set lo up");
        match self.options.pod_links {
            PodLinks::Bridge => {
                batch
                    .add(format!("addr add {}/24 dev {UPLINK}", pod.addr))
                    .add(format!("link set {UPLINK} up"));
            }
            PodLinks::Routed => {
                batch
                    .add(format!("addr add {}/32 dev {UPLINK}", pod.addr))
                    .add(format!("link set {UPLINK} up"));
                batch.add(format!("route add {gateway} dev {UPLINK} scope link"));
            }
        }
        batch.add(format!("route add default via {gateway} dev {UPLINK}"));
        batch.apply_in(&pod.ns)?;
        self.set_offloads(&pod.ns, UPLINK)?;
        self.set_offloads(&self.nodes[pod.node].ns, &pod.host_link())
    }

    fn configure_host(&self, ns: &Ns, addrs: &[Ipv4Addr]) -> Result<()> {
        let mut batch = Batch::default();
        batch.add("link set lo up");
        for addr in addrs {
            batch.add(format!("addr add {addr}/24 dev {UPLINK}"));
        }
        batch
            .add(format!("link set {UPLINK} up"))
            .add(format!("route add default via {LAN_GATEWAY}"));
        batch.apply_in(ns)?;
        self.set_offloads(ns, UPLINK)
    }

    /// What the node needs for a pod, apart from the pod's own namespace.
    fn pod_host_side(&self, pod: &Pod, batch: &mut Batch) {
        let link = pod.host_link();
        match self.options.pod_links {
            PodLinks::Bridge => {
                batch.add(format!("link set {link} master {POD_BRIDGE} up"));
            }
            PodLinks::Routed => {
                batch.add(format!(
                    "addr add {}/32 dev {link}",
                    self.nodes[pod.node].pod_gateway()
                ));
                batch
                    .add(format!("link set {link} up"))
                    .add(format!("route add {}/32 dev {link}", pod.addr));
            }
        }
    }

    fn set_offloads(&self, ns: &Ns, interface: &str) -> Result<()> {
        if self.options.offloads == Offloads::TxOff {
            ethtool(ns, interface, &["tx", "off"])?;
        }
        // Super-packets reach the uplink from whoever made them, so the senders must stop, not only the port.
        if !self.options.lan_port_tso && (*ns == self.lan || !self.is_pod_side(ns, interface)) {
            ethtool(ns, interface, &["tso", "off", "gso", "off"])?;
        }
        Ok(())
    }

    fn is_pod_side(&self, ns: &Ns, interface: &str) -> bool {
        self.pods.iter().any(|pod| pod.ns == *ns) || interface != UPLINK
    }

    fn lan_link(&self, port: &str, ns: &Ns, mac: Option<[u8; 6]>) -> String {
        let address = mac.map_or(String::new(), |mac| format!("address {} ", format_mac(mac)));
        let (lan, ns, mtu) = (self.lan.name(), ns.name(), self.options.mtu);
        format!(
            "link add {port} mtu {mtu} netns {lan} type veth peer name {UPLINK} mtu {mtu} {address}netns {ns}"
        )
    }

    fn pod_link(&self, pod: &Pod) -> String {
        let (node, ns, mtu) = (
            self.nodes[pod.node].ns.name(),
            pod.ns.name(),
            self.options.mtu,
        );
        let link = pod.host_link();
        format!(
            "link add {link} mtu {mtu} netns {node} type veth peer name {UPLINK} mtu {mtu} netns {ns}"
        )
    }

    fn lan_ports(&self) -> Vec<String> {
        let nodes = self.nodes.iter().map(|node| node.lan_port.clone());
        let servers = (0..self.servers.len()).map(|i| format!("s{i}"));
        nodes
            .chain(servers)
            .chain((0..self.clients.len()).map(|i| format!("c{i}")))
            .collect()
    }

    pub(super) fn new_pod(&self, node: usize, addr: Ipv4Addr) -> Pod {
        let id = self.pods.len();
        Pod {
            id,
            node,
            ns: Ns::named(format!("{}-p{id}", self.id)),
            addr,
            alive: true,
        }
    }

    pub(super) fn free_pod_addr(&mut self, node: usize) -> Result<Ipv4Addr> {
        ensure!(node < self.nodes.len(), "there is no node {node}");
        for _ in 0..=MAX_PODS {
            let last = self.nodes[node].next_pod;
            self.nodes[node].next_pod = if last >= 254 { 2 } else { last + 1 };
            let addr = Ipv4Addr::new(10, 244, self.nodes[node].index, last);
            if self.pods().all(|pod| pod.addr != addr) {
                return Ok(addr);
            }
        }
        bail!("node {node} has no pod address left")
    }
}

/// A client has tens of thousands of ports per address and must be able to come back to one within a minute.
const CLIENT_SYSCTLS: &[(&str, &str)] = &[
    ("ipv4/ip_local_port_range", "1024 65535"),
    ("ipv4/tcp_tw_reuse", "1"),
    ("ipv4/tcp_max_tw_buckets", "1000000"),
];

/// A full accept queue looks like a silent pod; that must happen only where a test wants it.
const SERVER_SYSCTLS: &[(&str, &str)] = &[
    ("core/somaxconn", "8192"),
    ("ipv4/tcp_max_syn_backlog", "8192"),
];

/// Names first, then sysctls, then links: an interface takes its defaults at birth.
fn create_namespaces(all: &[&Ns], ipv6: bool) -> Result<()> {
    let mut batch = Batch::default();
    for ns in all {
        batch.add(format!("netns add {}", ns.name()));
    }
    batch.apply()?;
    if ipv6 {
        return Ok(());
    }
    all.iter().try_for_each(|ns| {
        // A kernel without IPv6 has nothing to switch off.
        if std::path::Path::new("/proc/sys/net/ipv6").exists() {
            ns.sysctls(&[
                ("ipv6/conf/default/disable_ipv6", "1"),
                ("ipv6/conf/all/disable_ipv6", "1"),
            ])
        } else {
            Ok(())
        }
    })
}
