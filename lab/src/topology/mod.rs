//! The network itself.
//!
//! ```text
//! client --- br0 (namespace "lan", 192.0.2.0/24) --- eth0 NODE cni0 --- pods (10.244.N.0/24)
//!             +--- LAN servers (no agent)
//! ```
//!
//! LAN addresses: .1 the LAN's gateway, .10+ nodes, .30+ LAN servers, .64-.127 free for VIPs, .130+ clients.
//! Every interface lives inside a namespace of the lab; the host's own namespace is never changed.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail, ensure};

use crate::builder::LabBuilder;
use crate::ip::Batch;
use crate::ns::Ns;
use crate::teardown;
use crate::xdp_pass::XdpPass;

mod raise;

pub(crate) const MAX_NODES: usize = 16;
pub(crate) const MAX_PODS: usize = 250;
pub(crate) const MAX_SERVERS: usize = 32;
pub(crate) const MAX_CLIENTS: usize = 120;

/// Name of every namespace's link towards the lab: the node's uplink, and the only link of all others.
pub const UPLINK: &str = "eth0";
/// The node's pod bridge.
pub const POD_BRIDGE: &str = "cni0";

/// A running lab; dropped, it is gone.
#[derive(Debug)]
pub struct Lab {
    id: String,
    options: LabBuilder,
    lan: Ns,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    servers: Vec<LanServer>,
    clients: Vec<Client>,
}

/// A machine that runs an agent.
#[derive(Debug)]
pub struct Node {
    index: u8,
    ns: Ns,
    mac: [u8; 6],
    lan_port: String,
    next_pod: u8,
    pass: Option<XdpPass>,
}

/// Names a pod for as long as the lab lives; never given out twice.
pub type PodId = usize;

/// A pod: a namespace with one link to its node.
#[derive(Clone, Debug)]
pub struct Pod {
    id: PodId,
    node: usize,
    ns: Ns,
    addr: Ipv4Addr,
    alive: bool,
}

/// A server on the LAN without an agent.
#[derive(Clone, Debug)]
pub struct LanServer {
    ns: Ns,
    addr: Ipv4Addr,
}

/// A client namespace with its addresses.
#[derive(Clone, Debug)]
pub struct Client {
    ns: Ns,
    addrs: Vec<Ipv4Addr>,
}

impl Lab {
    /// Options with their defaults.
    pub fn builder() -> LabBuilder {
        LabBuilder::default()
    }

    /// Removes leftovers of labs whose owner is dead; returns how many labs that were.
    pub fn cleanup_stale() -> Result<usize> {
        teardown::cleanup_stale()
    }

    /// The lab's id, the prefix of its namespaces' names.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The node with this index.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The pod with this id, dead or alive.
    ///
    /// # Panics
    /// If there never was such a pod.
    pub fn pod(&self, id: PodId) -> &Pod {
        &self.pods[id]
    }

    /// The pods that are alive.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| pod.alive)
    }

    /// The LAN server with this index.
    ///
    /// # Panics
    /// If there is no such server.
    pub fn lan_server(&self, index: usize) -> &LanServer {
        &self.servers[index]
    }

    /// All LAN servers.
    pub fn lan_servers(&self) -> &[LanServer] {
        &self.servers
    }

    /// The client namespace with this index.
    ///
    /// # Panics
    /// If there is no such client.
    pub fn client(&self, index: usize) -> &Client {
        &self.clients[index]
    }

    /// All client namespaces.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// The namespace of the LAN's bridge.
    pub fn lan_netns(&self) -> &Ns {
        &self.lan
    }

    /// An address nobody has, for a VIP: 192.0.2.64 and on, 64 of them.
    ///
    /// # Panics
    /// If `index` is above 63.
    pub fn vip(index: u8) -> Ipv4Addr {
        assert!(index < 64, "the lab keeps 64 addresses for VIPs");
        lan(64 + index)
    }

    /// Adds a pod to a node, with the node's next free address (addresses come back only after a whole round).
    pub fn add_pod(&mut self, node: usize) -> Result<PodId> {
        let addr = self.free_pod_addr(node)?;
        self.add_pod_at(node, addr)
    }

    /// Adds a pod with this very address: another pod under a dead one's address.
    pub fn add_pod_at(&mut self, node: usize, addr: Ipv4Addr) -> Result<PodId> {
        ensure!(node < self.nodes.len(), "there is no node {node}");
        ensure!(
            self.pods().all(|pod| pod.addr != addr),
            "{addr} belongs to a living pod"
        );
        let pod = self.new_pod(node, addr);
        let id = pod.id;
        self.pods.push(pod);
        self.raise_pod(id)?;
        Ok(id)
    }

    /// Takes a pod away at once and in silence: first its link, so that nothing it does while dying gets out, then
    /// its processes and its namespace.
    pub fn kill_pod(&mut self, id: PodId) -> Result<()> {
        let pod = self
            .pods
            .get_mut(id)
            .with_context(|| format!("there is no pod {id}"))?;
        if !pod.alive {
            bail!("pod {id} is dead already");
        }
        pod.alive = false;
        let (node, host_link, ns) = (pod.node, pod.host_link(), pod.ns.clone());
        self.nodes[node]
            .ns
            .run("ip", &["link", "del", &host_link])?;
        teardown::remove_namespace(&ns)
    }

    /// Routes from all clients and LAN servers to all pods, by the pods' nodes.
    pub fn add_pod_routes(&self) -> Result<()> {
        let mut batch = Batch::default();
        for node in &self.nodes {
            batch.add(format!(
                "route replace {} via {}",
                node.pod_subnet(),
                node.addr()
            ));
        }
        let clients = self.clients.iter().map(|client| &client.ns);
        clients
            .chain(self.servers.iter().map(|server| &server.ns))
            .try_for_each(|ns| batch.apply_in(ns))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = teardown::forget_lab(&self.id) {
            eprintln!("lab: removing {}: {error:#}", self.id);
        }
    }
}

impl Node {
    fn new(index: u8, ns: Ns) -> Self {
        let mac = [0x02, 0x00, 0xc0, 0x00, 0x02, 10 + index];
        Self {
            index,
            ns,
            mac,
            lan_port: format!("n{index}"),
            next_pod: 2,
            pass: None,
        }
    }

    /// The node's name for manifests: `n0`, `n1`, ...
    pub fn name(&self) -> String {
        format!("n{}", self.index)
    }

    /// The node's namespace.
    pub fn netns(&self) -> &Ns {
        &self.ns
    }

    /// The node's LAN address.
    pub fn addr(&self) -> Ipv4Addr {
        lan(10 + self.index)
    }

    /// The uplink's MAC address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The uplink's name in the node's namespace.
    pub fn uplink(&self) -> &'static str {
        UPLINK
    }

    /// The uplink's peer, a port of the LAN's bridge in [`Lab::lan_netns`].
    pub fn lan_port_ifname(&self) -> &str {
        &self.lan_port
    }

    /// True if a passing XDP program sits on the LAN port, without which native XDP cannot transmit on the uplink.
    pub fn lan_port_has_xdp(&self) -> bool {
        self.pass.is_some()
    }

    /// The node's address on the pods' side.
    pub fn pod_gateway(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 244, self.index, 1)
    }

    /// The subnet of the node's pods, in CIDR notation.
    pub fn pod_subnet(&self) -> String {
        format!("10.244.{}.0/24", self.index)
    }
}

impl Pod {
    /// The pod's id.
    pub fn id(&self) -> PodId {
        self.id
    }

    /// The pod's namespace.
    pub fn netns(&self) -> &Ns {
        &self.ns
    }

    /// The pod's address.
    pub fn addr(&self) -> Ipv4Addr {
        self.addr
    }

    /// The index of the node it runs on.
    pub fn node(&self) -> usize {
        self.node
    }

    /// False once it was killed.
    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// The node's end of its link.
    pub fn host_link(&self) -> String {
        format!("p{}", self.id)
    }
}

impl LanServer {
    /// The server's namespace.
    pub fn netns(&self) -> &Ns {
        &self.ns
    }

    /// The server's LAN address.
    pub fn addr(&self) -> Ipv4Addr {
        self.addr
    }
}

impl Client {
    fn new(ns: Ns, index: usize, count: usize) -> Self {
        let addrs = (130_u8..)
            .skip(index * count)
            .take(count)
            .map(lan)
            .collect();
        Self { ns, addrs }
    }

    /// The client's namespace.
    pub fn netns(&self) -> &Ns {
        &self.ns
    }

    /// All its addresses.
    pub fn addrs(&self) -> &[Ipv4Addr] {
        &self.addrs
    }

    /// Its first address.
    ///
    /// # Panics
    /// Never: the builder insists on one.
    pub fn addr(&self) -> Ipv4Addr {
        self.addrs[0]
    }
}

/// Formats a MAC address.
pub fn format_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

const fn lan(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, last)
}
