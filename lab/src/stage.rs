//! A lab with servers behind a VIP and an agent that serves it: what most tests need to begin.
//!
//! Pods become `Local` endpoints, LAN servers `Nat` ones. It tells the agent only what it is asked
//! to: a server that is killed stays listed until somebody says otherwise, as in real life.

use std::net::SocketAddrV4;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::agent::Agent;
use crate::drive::{Load, Server};
use crate::load::{Options, Sources};
use crate::manifests::{Condition, Endpoint, Manifests};
use crate::report::{Report, Traffic};
use crate::serve::Kind;
use crate::{Lab, LabBuilder, Ns, Proc};

/// Port that the servers listen on.
pub const PORT: u16 = 8080;

/// One server and how it is listed.
#[derive(Debug)]
pub struct Member {
    /// Its process; taken when it is killed.
    pub proc: Option<Proc>,
    /// Where it runs.
    pub ns: Ns,
    /// How the manifests list it; `None` when they do not.
    pub listed: Option<Endpoint>,
}

/// The whole; dropped, the agent detaches before its namespace goes.
#[derive(Debug)]
pub struct Stage {
    /// The agent on node 0.
    pub agent: Agent,
    /// Pods first, then LAN servers.
    pub members: Vec<Member>,
    /// What the agent reads.
    pub manifests: Manifests,
    /// The network.
    pub lab: Lab,
    /// Where clients connect to.
    pub vip: SocketAddrV4,
}

impl Stage {
    /// Builds it: every pod and LAN server runs a server of this kind and is listed as ready.
    /// `binary` is the agent's, `more` its further arguments.
    pub fn build(
        name: &str,
        builder: LabBuilder,
        kind: Kind,
        binary: &Path,
        more: &[&str],
    ) -> Result<Self> {
        let start = |ns: &Ns, uid: &str| Server::named(uid).kind(kind).start(ns);
        Self::serving(name, builder, start, binary, more)
    }

    /// The same with servers of the caller's own; `start` returns once one listens on [`PORT`].
    pub fn serving(
        name: &str,
        builder: LabBuilder,
        mut start: impl FnMut(&Ns, &str) -> Result<Proc>,
        binary: &Path,
        more: &[&str],
    ) -> Result<Self> {
        let lab = builder.build()?;
        let vip = SocketAddrV4::new(Lab::vip(0), 80);
        let pods = lab.pods().map(|pod| {
            (
                pod.netns(),
                pod.addr(),
                Some("n0"),
                format!("pod-{}", pod.id()),
            )
        });
        let servers =
            lab.lan_servers().iter().enumerate().map(|(index, server)| {
                (server.netns(), server.addr(), None, format!("lan-{index}"))
            });
        let members = pods
            .chain(servers)
            .map(|(ns, address, node, uid)| {
                Ok(Member {
                    proc: Some(start(ns, &uid)?),
                    ns: ns.clone(),
                    listed: Some(Endpoint {
                        address,
                        node: node.map(str::to_owned),
                        uid,
                        condition: Condition::Ready,
                    }),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let manifests = Manifests::create(name)?;
        manifests.write(vip, PORT, &listed(&members))?;
        let agent = Agent::start(lab.node(0).netns(), binary, manifests.dir(), more)?;
        Ok(Self {
            agent,
            members,
            manifests,
            lab,
            vip,
        })
    }

    /// Tells the agent how the members are listed now.
    pub fn tell(&self) -> Result<()> {
        self.manifests.write(self.vip, PORT, &listed(&self.members))
    }

    /// Ends a member's process by SIGKILL: its kernel lives on, and refuses. It stays listed.
    pub fn kill(&mut self, member: usize) -> Result<()> {
        let proc = self.members[member].proc.take();
        proc.context("it was killed before")?.kill().map(|_| ())
    }

    /// Options for a load on the VIP from all addresses of the first client.
    pub fn options(&self, mix: &[Traffic], rate: u64, seconds: f64) -> Options {
        let mut options = Options::to(self.vip);
        options.sources = Some(Sources(self.lab.client(0).addrs().to_vec()));
        options.mix = mix.to_vec();
        options.rate = rate;
        options.duration = seconds;
        options
    }

    /// Starts a load from the first client.
    pub fn load(&self, options: &Options) -> Result<Load> {
        Load::start(self.lab.client(0).netns(), options)
    }

    /// Runs a load to its end.
    pub fn run(&self, options: &Options) -> Result<Report> {
        self.load(options)?.finish()
    }

    /// How many packets had this reason.
    pub fn counted(&self, reason: &str) -> Result<u64> {
        let text = self.agent.command(&["status", "-o", "json"])?;
        let status: serde_json::Value = serde_json::from_str(&text)?;
        let reasons = status["reasons"].as_array().context("no reasons")?;
        Ok(reasons
            .iter()
            .find(|row| row["reason"] == reason)
            .and_then(|row| row["packets"].as_u64())
            .unwrap_or(0))
    }
}

fn listed(members: &[Member]) -> Vec<Endpoint> {
    members
        .iter()
        .filter_map(|member| member.listed.clone())
        .collect()
}
