//! The pods of a Service through rolling updates: their processes, and how the list has them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

use crate::drive::Server;
use crate::manifests::{Condition, Endpoint};
use crate::serve::Kind;
use crate::stage::PORT;
use crate::{Lab, Ns, PodId, Proc};

/// What a kubelet does before a pod counts as ready: it asks it, by the way that packets take. A bridge forwards to a
/// new port only once its kernel has noticed that the link is up, and a first ARP request that is lost costs a second.
fn probe(node: &Ns, pod: Ipv4Addr) -> Result<()> {
    let target = SocketAddr::from((pod, PORT));
    node.enter(|| TcpStream::connect_timeout(&target, PROBE_LIMIT))?
        .with_context(|| format!("the pod at {target} does not answer its node"))
        .map(drop)
}

const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// Whoever is told which endpoints there are.
pub trait Directory {
    /// Takes the whole list.
    fn list(&mut self, endpoints: &[Endpoint]) -> Result<()>;
}

/// One pod.
#[derive(Debug)]
struct Member {
    proc: Option<Proc>,
    listed: Option<Endpoint>,
    stopped: bool,
}

/// All pods that there were.
#[derive(Debug, Default)]
pub struct Fleet {
    members: BTreeMap<PodId, Member>,
    /// Servers on the LAN: listed as ready throughout, never stopped.
    lan: Vec<(Proc, Endpoint)>,
}

impl Fleet {
    /// Starts so many pods on node 0 of a lab without any, and a server in each of its LAN
    /// servers.
    pub fn begin(lab: &mut Lab, pods: usize, kind: Kind) -> Result<Self> {
        let mut fleet = Self::default();
        for _ in 0..pods {
            fleet.start(lab, kind)?;
        }
        for (index, server) in lab.lan_servers().iter().enumerate() {
            let uid = format!("lan-{index}");
            let proc = Server::named(&uid).start(server.netns())?;
            let listed = Endpoint {
                address: server.addr(),
                node: None,
                uid,
                condition: Condition::Ready,
            };
            fleet.lan.push((proc, listed));
        }
        Ok(fleet)
    }

    /// Starts one more pod; it listens and counts as ready on return.
    pub fn start(&mut self, lab: &mut Lab, kind: Kind) -> Result<PodId> {
        let id = lab.add_pod(0)?;
        let uid = format!("pod-{id}");
        let pod = lab.pod(id);
        let proc = Server::named(&uid).kind(kind).start(pod.netns())?;
        probe(lab.node(0).netns(), pod.addr())?;
        let listed = Endpoint {
            address: pod.addr(),
            node: Some("n0".to_owned()),
            uid,
            condition: Condition::Ready,
        };
        self.members.insert(
            id,
            Member {
                proc: Some(proc),
                listed: Some(listed),
                stopped: false,
            },
        );
        Ok(id)
    }

    /// Pods that nobody has stopped, oldest first.
    pub fn listed(&self) -> Vec<PodId> {
        let alive = self.members.iter().filter(|(_, member)| !member.stopped);
        alive.map(|(id, _)| *id).collect()
    }

    /// The list as it is to be told.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let pods = self.members.values();
        pods.filter_map(|member| member.listed.clone())
            .chain(self.lan.iter().map(|(_, listed)| listed.clone()))
            .collect()
    }

    /// A pod's name.
    pub fn name(&self, id: PodId) -> String {
        format!("pod-{id}")
    }

    /// Sends its server a signal that is to end it.
    pub fn signal(&mut self, id: PodId, signal: Signal) -> Result<()> {
        let member = self.members.get_mut(&id).context("no such pod")?;
        member.stopped = true;
        member.proc.as_mut().context("it has ended")?.signal(signal)
    }

    /// Takes the pod away with its namespace.
    pub fn kill_namespace(&mut self, lab: &mut Lab, id: PodId) -> Result<()> {
        let member = self.members.get_mut(&id).context("no such pod")?;
        member.stopped = true;
        lab.kill_pod(id)?;
        if let Some(mut proc) = member.proc.take() {
            proc.wait()?;
        }
        Ok(())
    }

    /// True once its process has ended.
    pub fn has_ended(&mut self, id: PodId) -> Result<bool> {
        let member = self.members.get_mut(&id).context("no such pod")?;
        match &mut member.proc {
            Some(proc) => Ok(proc.try_wait()?.is_some()),
            None => Ok(true),
        }
    }

    /// From now on the list says that it ends: still serving while its process lives.
    pub fn mark_terminating(&mut self, id: PodId) {
        let ended = self.has_ended(id).unwrap_or(true);
        if let Some(listed) = self
            .members
            .get_mut(&id)
            .and_then(|member| member.listed.as_mut())
        {
            listed.condition = if ended {
                Condition::Dead
            } else {
                Condition::Terminating
            };
        }
    }

    /// From now on the list does not have it.
    pub fn unlist(&mut self, id: PodId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.listed = None;
        }
    }

    /// True while the list has it.
    pub fn is_listed(&self, id: PodId) -> bool {
        self.members
            .get(&id)
            .is_some_and(|member| member.listed.is_some())
    }

    /// Kills what was stopped and has not ended: the end of a grace period.
    pub fn kill_leftovers(&mut self) -> Result<()> {
        for member in self.members.values_mut().filter(|member| member.stopped) {
            if let Some(mut proc) = member.proc.take() {
                proc.kill()?;
            }
        }
        Ok(())
    }
}
