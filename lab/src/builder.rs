//! What a lab can look like: the options, and their defaults.
//!
//! The defaults are what a user's kind or docker network looks like (all offloads on, loose reverse path filter
//! off), because that is where the product has to work first.

use anyhow::{Result, ensure};

use crate::topology::{self, Lab};

/// Checksum offload of the lab's links; it decides which of the three kinds of checksum a frame carries.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Offloads {
    /// As veth comes: checksums stay partial on their way through the machine.
    #[default]
    Default,
    /// `tx off` on every link: checksums are complete on the wire.
    TxOff,
}

/// The node's `rp_filter`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RpFilter {
    /// 0.
    #[default]
    Off,
    /// 1.
    Strict,
    /// 2.
    Loose,
}

/// How pods hang on their node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PodLinks {
    /// On the bridge `cni0`, as the bridge CNI and kindnet-like networks do: a dead pod's address goes silent.
    #[default]
    Bridge,
    /// One host route per pod, as routed CNIs do: a dead pod's route is gone, packets leave by the default route.
    Routed,
}

/// Options of a [`Lab`]; start with [`Lab::builder`].
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches of a test rig, independent of each other, each set by its name"
)]
pub struct LabBuilder {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) lan_servers: usize,
    pub(crate) client_namespaces: usize,
    pub(crate) clients: usize,
    pub(crate) offloads: Offloads,
    pub(crate) lan_port_tso: bool,
    pub(crate) lan_port_xdp_pass: bool,
    pub(crate) pod_links: PodLinks,
    pub(crate) mtu: u32,
    pub(crate) rp_filter: RpFilter,
    pub(crate) pod_routes: bool,
    pub(crate) ipv6: bool,
}

impl Default for LabBuilder {
    fn default() -> Self {
        Self {
            nodes: 1,
            pods: 2,
            lan_servers: 0,
            client_namespaces: 1,
            clients: 16,
            offloads: Offloads::Default,
            lan_port_tso: true,
            lan_port_xdp_pass: true,
            pod_links: PodLinks::Bridge,
            mtu: 1500,
            rp_filter: RpFilter::Off,
            pod_routes: false,
            ipv6: false,
        }
    }
}

impl LabBuilder {
    /// Number of nodes (default 1).
    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Pods on each node (default 2); more can come later with [`Lab::add_pod`].
    #[must_use]
    pub fn pods(mut self, pods_per_node: usize) -> Self {
        self.pods = pods_per_node;
        self
    }

    /// Servers on the LAN that have no agent: endpoints to be reached by full NAT (default 0).
    #[must_use]
    pub fn lan_servers(mut self, servers: usize) -> Self {
        self.lan_servers = servers;
        self
    }

    /// Client addresses in each client namespace (default 16).
    #[must_use]
    pub fn clients(mut self, addresses_per_namespace: usize) -> Self {
        self.clients = addresses_per_namespace;
        self
    }

    /// Client namespaces (default 1): more than one when clients must differ in MAC address, too.
    #[must_use]
    pub fn client_namespaces(mut self, namespaces: usize) -> Self {
        self.client_namespaces = namespaces;
        self
    }

    /// Checksum offload of all links (default: on).
    #[must_use]
    pub fn offloads(mut self, offloads: Offloads) -> Self {
        self.offloads = offloads;
        self
    }

    /// Segmentation offload of everything that sends towards the nodes (default on). Switch it off where native
    /// XDP has to TX: a super-packet that it sends back cannot be segmented any more.
    #[must_use]
    pub fn lan_port_tso(mut self, on: bool) -> Self {
        self.lan_port_tso = on;
        self
    }

    /// A program that passes everything on the LAN's side of each uplink (default on): without one, what native
    /// XDP transmits on the node's side is lost.
    #[must_use]
    pub fn lan_port_xdp_pass(mut self, on: bool) -> Self {
        self.lan_port_xdp_pass = on;
        self
    }

    /// How pods hang on their node (default: on a bridge).
    #[must_use]
    pub fn pod_links(mut self, links: PodLinks) -> Self {
        self.pod_links = links;
        self
    }

    /// MTU of every link (default 1500).
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// Reverse path filter of the nodes (default off).
    #[must_use]
    pub fn rp_filter(mut self, filter: RpFilter) -> Self {
        self.rp_filter = filter;
        self
    }

    /// Routes from clients and LAN servers to the pods, by their node (default off): for direct runs without a
    /// balancer.
    #[must_use]
    pub fn pod_routes(mut self, on: bool) -> Self {
        self.pod_routes = on;
        self
    }

    /// IPv6 link-local addresses and their chatter (default off, so that captures hold only what a test sent).
    #[must_use]
    pub fn ipv6(mut self, on: bool) -> Self {
        self.ipv6 = on;
        self
    }

    /// Builds the lab, after removing what labs of dead processes left behind.
    pub fn build(self) -> Result<Lab> {
        ensure!(self.nodes >= 1, "a lab needs a node");
        ensure!(
            self.nodes <= topology::MAX_NODES,
            "at most {} nodes",
            topology::MAX_NODES
        );
        ensure!(
            self.pods <= topology::MAX_PODS,
            "at most {} pods on a node",
            topology::MAX_PODS
        );
        ensure!(
            self.lan_servers <= topology::MAX_SERVERS,
            "at most {} LAN servers",
            topology::MAX_SERVERS
        );
        ensure!(
            self.clients >= 1 && self.client_namespaces >= 1,
            "a lab needs a client"
        );
        ensure!(
            self.clients.saturating_mul(self.client_namespaces) <= topology::MAX_CLIENTS,
            "at most {} client addresses in all",
            topology::MAX_CLIENTS
        );
        ensure!(
            (1280..=65_535).contains(&self.mtu),
            "MTU {} is not within 1280-65535",
            self.mtu
        );
        ensure!(
            nix::unistd::geteuid().is_root(),
            "a lab needs root (namespaces, veth, XDP)"
        );
        Lab::raise(self)
    }
}
