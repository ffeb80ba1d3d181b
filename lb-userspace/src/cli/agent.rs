//! `sluice agent`: serves the VIPs of a cluster or of a folder of manifests. Only arguments and
//! start-up.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use ipnet::IpNet;

use crate::agent::{self, Settings, Source};
use crate::load::{DEFAULT_PIN_DIR, XdpMode};
use crate::model::DEFAULT_CLASS;
use crate::observe::{self, logs};

/// Arguments of `sluice agent`.
#[derive(Args, Clone, Debug)]
pub struct AgentArgs {
    /// Folder of manifests: Services, EndpointSlices, Nodes and AddressPools. Without it they
    /// come from the Kubernetes API, by default that of the cluster this runs in
    #[arg(
        long,
        env = "SLUICE_MANIFESTS",
        value_name = "DIR",
        conflicts_with = "kubeconfig"
    )]
    pub manifests: Option<PathBuf>,
    /// Follow the Kubernetes API that this file describes
    #[arg(long, env = "SLUICE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// With the Kubernetes API: follow the pods of this node too, so that one that is deleted gets
    /// nothing new before its process is told to stop
    #[arg(
        long,
        env = "SLUICE_WATCH_PODS",
        value_name = "BOOL",
        action = ArgAction::Set,
        default_value_t = true
    )]
    pub watch_pods: bool,
    /// Name of this node: endpoints with this nodeName are local
    #[arg(long, env = "SLUICE_NODE_NAME", value_name = "NAME")]
    pub node_name: String,
    /// Interface to serve; may be repeated, the first with an address lends it to full NAT
    #[arg(
        long = "interface",
        env = "SLUICE_INTERFACE",
        value_name = "IF",
        required = true,
        value_delimiter = ','
    )]
    pub interfaces: Vec<String>,
    /// How to attach: native XDP, generic, or auto (native, on veth generic)
    #[arg(long, env = "SLUICE_XDP_MODE", value_enum, default_value_t)]
    pub xdp_mode: Mode,
    /// Where maps and links are pinned
    #[arg(long, env = "SLUICE_PIN_DIR", value_name = "DIR", default_value = DEFAULT_PIN_DIR)]
    pub pin_dir: PathBuf,
    /// Address of /healthz, /readyz, /metrics and /state
    #[arg(long, env = "SLUICE_METRICS_ADDRESS", value_name = "ADDRESS", default_value = observe::DEFAULT_HTTP_ADDRESS)]
    pub metrics_address: SocketAddr,
    /// loadBalancerClass that is ours
    #[arg(long, env = "SLUICE_LOAD_BALANCER_CLASS", value_name = "CLASS", default_value = DEFAULT_CLASS)]
    pub load_balancer_class: String,
    /// Serve Services without a class as well
    #[arg(long, env = "SLUICE_DEFAULT_CLASS")]
    pub default_class: bool,
    /// Network in which a VIP needs no AddressPool; may be repeated
    #[arg(
        long,
        env = "SLUICE_ALLOW_ADDRESSES",
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub allow_addresses: Vec<IpNet>,
    /// Seed of the selection tables; the same on all nodes
    #[arg(
        long,
        env = "SLUICE_SEED",
        value_name = "NUMBER",
        default_value_t = 0x736c_7569_6365_0001
    )]
    pub seed: u64,
    /// Source address of full NAT; by default that of the first interface which has one
    #[arg(long, env = "SLUICE_SNAT_ADDRESS", value_name = "ADDRESS")]
    pub snat_address: Option<Ipv4Addr>,
    /// Seconds that the flows of an endpoint are kept after it vanished
    #[arg(
        long,
        env = "SLUICE_DRAIN_TIMEOUT",
        value_name = "SECONDS",
        default_value_t = 60
    )]
    pub drain_timeout: u64,
    /// File that remembers which Service has which VIP; the last good manifests are kept beside it
    #[arg(
        long,
        env = "SLUICE_STATE_FILE",
        value_name = "FILE",
        default_value = "/run/sluice/allocations.json"
    )]
    pub state_file: PathBuf,
    /// Do not move a connection to another endpoint when its own refuses it or is silent
    #[arg(long, env = "SLUICE_NO_FAILOVER")]
    pub no_failover: bool,
    /// Form of the logs
    #[arg(long, env = "SLUICE_LOG_FORMAT", value_enum, default_value_t)]
    pub log_format: logs::LogFormat,
    /// What is logged
    #[arg(
        long,
        env = "SLUICE_LOG",
        value_name = "FILTER",
        default_value = "info"
    )]
    pub log: String,
}

/// How to attach.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Mode {
    /// Native; generic on veth, where native sending can be lost unseen.
    #[default]
    Auto,
    /// In the driver or not at all.
    Native,
    /// On socket buffers.
    Generic,
}

/// Runs until it is told to end.
pub fn run(args: &AgentArgs) -> anyhow::Result<()> {
    logs::init(args.log_format, &args.log)?;
    let settings = Settings {
        source: match &args.manifests {
            Some(folder) => Source::Manifests(folder.clone()),
            None => Source::Kubernetes {
                kubeconfig: args.kubeconfig.clone(),
                watch_pods: args.watch_pods,
            },
        },
        node_name: args.node_name.clone(),
        interfaces: args.interfaces.clone(),
        xdp_mode: match args.xdp_mode {
            Mode::Auto => XdpMode::Auto,
            Mode::Native => XdpMode::Native,
            Mode::Generic => XdpMode::Generic,
        },
        pin_dir: args.pin_dir.clone(),
        metrics_address: args.metrics_address,
        class: args.load_balancer_class.clone(),
        default_class: args.default_class,
        allow_addresses: args.allow_addresses.clone(),
        seed: args.seed,
        snat_address: args.snat_address,
        drain_timeout: Duration::from_secs(args.drain_timeout),
        state_file: args.state_file.clone(),
        failover: !args.no_failover,
    };
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(agent::run(settings))
}
