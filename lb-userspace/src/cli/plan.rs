//! `sluice plan`: what a node would do with a directory of manifests.
//!
//! For people's CI and for our own tests: it reads the manifests exactly as the agent does and
//! touches nothing. The JSON form is a contract, written down in `docs/plan.md`.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use comfy_table::Table;
use ipnet::IpNet;
use serde::Serialize;

use crate::cli::Output;
use crate::desired::{
    Desired, Endpoint, EndpointState, Frontend, FrontendKey, FrontendVerdict, Ignored, Policy,
    Protocol, Tier,
};
use crate::model::{Allocations, Context, DEFAULT_CLASS, World};
use crate::watch::Kept;
use crate::watch::manifests::ManifestDir;

/// Arguments of `sluice plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// Directory with manifests: *.yaml, *.yml and *.json.
    #[arg(long, env = "SLUICE_MANIFESTS", value_name = "DIR")]
    pub manifests: PathBuf,
    /// The node to plan for.
    #[arg(long, env = "SLUICE_NODE_NAME", value_name = "N")]
    pub node_name: String,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// Addresses given before (JSON), so that Services keep theirs.
    #[arg(long, value_name = "FILE")]
    pub prior: Option<PathBuf>,
    /// loadBalancerClass that is ours.
    #[arg(long, env = "SLUICE_LOAD_BALANCER_CLASS", default_value = DEFAULT_CLASS)]
    pub load_balancer_class: String,
    /// Serve Services without a class as well.
    #[arg(long, env = "SLUICE_DEFAULT_CLASS")]
    pub default_class: bool,
    /// Networks in which a VIP needs no AddressPool (may be repeated).
    #[arg(
        long,
        env = "SLUICE_ALLOW_ADDRESSES",
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub allow_addresses: Vec<IpNet>,
    /// Answer in spite of node.kubernetes.io/exclude-from-external-load-balancers.
    #[arg(long, env = "SLUICE_IGNORE_EXCLUDE_LABEL")]
    pub ignore_exclude_label: bool,
}

/// The plan as it is printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// By address, port and protocol.
    pub frontends: Vec<FrontendReport>,
    /// By address.
    pub eligible: Vec<EligibleReport>,
    /// By object and reason.
    pub ignored: Vec<Ignored>,
}

/// One VIP:port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontendReport {
    /// `namespace/name`.
    pub service: String,
    /// The VIP.
    pub address: IpAddr,
    /// Port clients connect to.
    pub port: u16,
    /// `TCP` or `UDP`.
    pub protocol: Protocol,
    /// Name of the Service's port; may be empty.
    pub port_name: String,
    /// `Cluster` or `Local`.
    pub policy: Policy,
    /// `forward`, `drop` or `reject`.
    pub verdict: FrontendVerdict,
    /// Endpoints that new connections are spread over.
    pub new_connections: Vec<String>,
    /// All endpoints that are listed.
    pub endpoints: Vec<EndpointReport>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are Kubernetes' own conditions"
)]
pub struct EndpointReport {
    /// Address and port.
    pub address: String,
    /// Node, when the slice says one.
    pub node: Option<String>,
    /// On the node planned for.
    pub local: bool,
    /// Condition, null counted as true.
    pub ready: bool,
    /// Condition, null counted as true.
    pub serving: bool,
    /// Condition, null counted as false.
    pub terminating: bool,
    /// `active`, `unready` or `draining`.
    pub state: EndpointState,
}

/// One VIP.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EligibleReport {
    /// The VIP.
    pub address: IpAddr,
    /// `ready`, `draining`, `any` or `excluded`.
    pub tier: Tier,
}

/// Reads the manifests and writes the plan down.
pub fn run(args: &PlanArgs) -> anyhow::Result<String> {
    let report = plan(args)?;
    Ok(match args.output {
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
        Output::Yaml => serde_saphyr::to_string(&report)?,
        Output::Table => table(&report),
    })
}

/// Reads the manifests as the agent would, and says what it would want.
pub fn plan(args: &PlanArgs) -> anyhow::Result<Report> {
    let prior = match &args.prior {
        None => Allocations::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("cannot read --prior {}", path.display()))?;
            let prior = Allocations::from_json(&text);
            prior.with_context(|| format!("--prior {}", path.display()))?
        }
    };
    let context = Context {
        class: args.load_balancer_class.clone(),
        default_class: args.default_class,
        allow_addresses: args.allow_addresses.clone(),
        ignore_exclude_label: args.ignore_exclude_label,
        ..Context::new(&args.node_name)
    };
    let mut world = World::new(context, prior);
    for event in ManifestDir::open(&args.manifests, Kept::nothing())?.events() {
        world.apply(event);
    }
    let not_ours: Vec<_> = world.not_ours().collect();
    Ok(report(world.desired(), not_ours))
}

/// Puts a desired state into its printed form.
pub fn report(desired: &Desired, also_ignored: Vec<Ignored>) -> Report {
    let mut ignored = desired.ignored.clone();
    ignored.extend(also_ignored);
    ignored.sort();
    let vips = desired.vips.iter();
    Report {
        frontends: desired
            .frontends
            .iter()
            .map(|(key, f)| frontend(key, f))
            .collect(),
        eligible: vips
            .map(|(a, vip)| EligibleReport {
                address: *a,
                tier: vip.tier,
            })
            .collect(),
        ignored,
    }
}

fn frontend(key: &FrontendKey, frontend: &Frontend) -> FrontendReport {
    let new = frontend.endpoints.iter().filter(|e| e.new_connections);
    FrontendReport {
        service: frontend.service.to_string(),
        address: key.address,
        port: key.port,
        protocol: key.protocol,
        port_name: frontend.port_name.clone(),
        policy: frontend.policy,
        verdict: frontend.verdict,
        new_connections: new.map(|e| e.address.to_string()).collect(),
        endpoints: frontend.endpoints.iter().map(endpoint).collect(),
    }
}

fn endpoint(endpoint: &Endpoint) -> EndpointReport {
    EndpointReport {
        address: endpoint.address.to_string(),
        node: endpoint.node.clone(),
        local: endpoint.local,
        ready: endpoint.ready,
        serving: endpoint.serving,
        terminating: endpoint.terminating,
        state: endpoint.state,
    }
}

fn table(report: &Report) -> String {
    let mut frontends = rows(&[
        "VIP", "SERVICE", "POLICY", "VERDICT", "ENDPOINT", "NODE", "STATE",
    ]);
    for f in &report.frontends {
        let vip = format!("{} {}/{}", f.address, f.port, f.protocol);
        let policy = format!("{:?}", f.policy);
        let head = [vip, f.service.clone(), policy, lower(&f.verdict)];
        if f.endpoints.is_empty() {
            frontends.add_row(head.iter().map(String::as_str).chain(["-", "", ""]));
        }
        for (index, e) in f.endpoints.iter().enumerate() {
            let node = e.node.clone().unwrap_or_default();
            let here = if e.local {
                format!("{node} (here)")
            } else {
                node
            };
            let new = if f.new_connections.contains(&e.address) {
                " +new"
            } else {
                ""
            };
            let state = lower(&e.state) + new;
            let head = head
                .iter()
                .map(|h| if index == 0 { h.as_str() } else { "" });
            frontends.add_row(head.chain([e.address.as_str(), &here, &state]));
        }
    }
    let mut vips = rows(&["VIP", "THIS NODE"]);
    for e in &report.eligible {
        vips.add_row([e.address.to_string(), lower(&e.tier)]);
    }
    let mut text = format!("{frontends}\n\n{vips}\n");
    if !report.ignored.is_empty() {
        let mut ignored = rows(&["IGNORED", "REASON"]);
        for i in &report.ignored {
            ignored.add_row([&i.object, &i.reason]);
        }
        text = format!("{text}\n{ignored}\n");
    }
    text
}

fn rows(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header);
    table
}

/// The word that JSON has for it too.
fn lower(value: &impl Serialize) -> String {
    let json = serde_json::to_value(value).ok();
    json.and_then(|v| v.as_str().map(str::to_owned))
        .unwrap_or_default()
}
