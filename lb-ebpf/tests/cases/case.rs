//! A case: a node, then frames one after the other, each with what must become of it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use lb_common::abi::{
    Affinity, AffinityKey, Answered, Conflict, Endpoint, Flow, FlowKey, Handshake, Health, Reverse,
};
use lb_common::wire::Be32;
use lb_common::{Outcome, Reason, V4};

use super::node::Node;
use super::packet::{P, Sum};
use super::sound;

/// Something that carries out the pipeline: on the host, or in the kernel.
pub trait Rig {
    /// Starts afresh with this node.
    fn set_up(&mut self, node: &Node);
    /// Runs the XDP program.
    fn ingress(&mut self, frame: &[u8]) -> Ran;
    /// Runs the egress program; `partial` for a buffer with an unfinished checksum.
    fn egress(&mut self, frame: &[u8], partial: bool) -> Ran;
    /// Runs the sweep.
    fn sweep(&mut self);
    /// Lets time pass, in units of 2^20 ns.
    fn wait(&mut self, millis: u32);
    fn set_endpoint(&mut self, id: u32, endpoint: Endpoint<V4>);
    fn set_health(&mut self, id: u32, health: Health);
    /// Fills the flow and reverse tables up to so many free entries.
    fn fill(&mut self, flows: usize, reverse: usize);
    fn tables(&self) -> Tables;
}

/// What became of a frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ran {
    pub reason: Reason,
    pub frame: Vec<u8>,
    /// Where it was redirected to, if that can be seen.
    pub redirect: Option<u32>,
}

/// What the data plane has written.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub flows: Vec<(FlowKey<V4>, Flow<V4>)>,
    pub reverse: Vec<(FlowKey<V4>, Reverse<V4>)>,
    pub handshakes: Vec<(FlowKey<V4>, Handshake<V4>)>,
    pub answered: Vec<(FlowKey<V4>, Answered)>,
    pub affinity: Vec<(AffinityKey<V4>, Affinity)>,
    pub conflicts: Vec<(V4, Conflict)>,
}

impl Tables {
    /// Numbers of flows, reverse entries, handshakes and answered ones.
    pub fn counts(&self) -> [usize; 4] {
        [
            self.flows.len(),
            self.reverse.len(),
            self.handshakes.len(),
            self.answered.len(),
        ]
    }

    /// All entries but for what depends on the clock, in a fixed order: for comparison.
    pub fn timeless(mut self) -> Vec<String> {
        let mut lines = vec![];
        for (key, flow) in &mut self.flows {
            (flow.seen, flow.replied, flow.ack) = (0, 0, Be32::new(0));
            lines.push(format!("flow {key:?} {flow:?}"));
        }
        for (key, reverse) in &mut self.reverse {
            reverse.seen = 0;
            lines.push(format!("reverse {key:?} {reverse:?}"));
        }
        for (key, handshake) in &mut self.handshakes {
            handshake.started = 0;
            let used = usize::from(handshake.option_words);
            handshake.options[used..].fill(0);
            lines.push(format!("handshake {key:?} {handshake:?}"));
        }
        for (key, answered) in &mut self.answered {
            answered.seen = 0;
            lines.push(format!("answered {key:?} {answered:?}"));
        }
        for (key, affinity) in &mut self.affinity {
            affinity.seen = 0;
            lines.push(format!("affinity {key:?} {affinity:?}"));
        }
        for (key, conflict) in &mut self.conflicts {
            conflict.seen = 0;
            lines.push(format!("conflict {key:?} {conflict:?}"));
        }
        lines.sort();
        lines
    }
}

/// What a frame must look like afterwards.
#[derive(Clone, Debug)]
pub enum Want {
    /// As it came.
    Same,
    /// Nobody sees it.
    Dropped,
    /// Exactly this, and sound.
    Packet(P),
    /// Exactly these bytes, and sound.
    Bytes(Vec<u8>),
    /// Exactly these bytes, which the kernel finishes later.
    Unfinished(Vec<u8>),
}

/// One step.
#[derive(Clone)]
pub enum Step {
    Ingress(Vec<u8>, Reason, Want),
    /// With whether its checksum is unfinished.
    Egress(Vec<u8>, bool, Reason, Want),
    Redirected(u32),
    Sweep,
    Wait(u32),
    Endpoint(u32, Endpoint<V4>),
    Health(u32, Health),
    Fill(usize, usize),
    Tables(fn(&Tables)),
}

/// A case.
#[derive(Clone)]
pub struct Case {
    pub name: &'static str,
    pub node: Node,
    pub steps: Vec<Step>,
}

/// The beginning of a case.
pub fn case(name: &'static str, node: Node) -> Case {
    Case {
        name,
        node,
        steps: vec![],
    }
}

impl Case {
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// A frame from the wire that must come out as `want`.
    #[must_use]
    pub fn edited(self, frame: &P, reason: Reason, want: &P) -> Self {
        self.step(Step::Ingress(
            frame.bytes(),
            reason,
            Want::Packet(want.clone()),
        ))
    }

    /// A frame from the wire that must be passed on as it came.
    #[must_use]
    pub fn untouched(self, frame: &[u8], reason: Reason) -> Self {
        self.step(Step::Ingress(frame.to_vec(), reason, Want::Same))
    }

    /// A frame from the wire that must be dropped.
    #[must_use]
    pub fn dropped(self, frame: &[u8], reason: Reason) -> Self {
        self.step(Step::Ingress(frame.to_vec(), reason, Want::Dropped))
    }

    /// A frame that leaves, with a finished checksum, and must come out as `want`.
    #[must_use]
    pub fn leaving(self, frame: &P, reason: Reason, want: &P) -> Self {
        let partial = frame.sum == Sum::Partial;
        self.step(Step::Egress(
            frame.bytes(),
            partial,
            reason,
            Want::Packet(want.clone()),
        ))
    }

    /// A frame that leaves as it is.
    #[must_use]
    pub fn leaving_untouched(self, frame: &[u8], reason: Reason) -> Self {
        self.step(Step::Egress(frame.to_vec(), false, reason, Want::Same))
    }

    #[must_use]
    pub fn wait(self, millis: u32) -> Self {
        self.step(Step::Wait(millis))
    }

    /// Numbers of flows, reverse entries, handshakes and answered ones must be these.
    #[must_use]
    pub fn tables(self, look: fn(&Tables)) -> Self {
        self.step(Step::Tables(look))
    }

    /// True for a case that the kernel's test runs cannot show: they make no buffers with
    /// unfinished checksums.
    pub fn host_only(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step, Step::Egress(_, true, ..)))
    }

    /// Runs it. Panics, with the case's name, where something is not as it must be.
    pub fn run(&self, rig: &mut dyn Rig) {
        rig.set_up(&self.node);
        let mut last = None;
        for (index, step) in self.steps.iter().enumerate() {
            let outcome = catch_unwind(AssertUnwindSafe(|| take(rig, step, &mut last)));
            if let Err(panic) = outcome {
                eprintln!("case \"{}\", step {index}", self.name);
                resume_unwind(panic);
            }
        }
    }
}

fn take(rig: &mut dyn Rig, step: &Step, last: &mut Option<u32>) {
    match step {
        Step::Ingress(frame, reason, want) => {
            let ran = rig.ingress(frame);
            *last = ran.redirect;
            judge(frame, &ran, *reason, want);
        }
        Step::Egress(frame, partial, reason, want) => {
            judge(frame, &rig.egress(frame, *partial), *reason, want);
        }
        Step::Redirected(ifindex) => {
            assert!(last.is_none_or(|last| last == *ifindex), "{last:?}");
        }
        Step::Sweep
        | Step::Wait(_)
        | Step::Endpoint(..)
        | Step::Health(..)
        | Step::Fill(..)
        | Step::Tables(_) => apply(rig, step),
    }
}

/// Carries out a step that is no frame.
pub fn apply(rig: &mut dyn Rig, step: &Step) {
    match step {
        Step::Ingress(frame, ..) => drop(rig.ingress(frame)),
        Step::Egress(frame, partial, ..) => drop(rig.egress(frame, *partial)),
        Step::Redirected(_) => {}
        Step::Sweep => rig.sweep(),
        Step::Wait(millis) => rig.wait(*millis),
        Step::Endpoint(id, endpoint) => rig.set_endpoint(*id, *endpoint),
        Step::Health(id, health) => rig.set_health(*id, *health),
        Step::Fill(flows, reverse) => rig.fill(*flows, *reverse),
        Step::Tables(look) => look(&rig.tables()),
    }
}

fn judge(frame: &[u8], ran: &Ran, reason: Reason, want: &Want) {
    assert_eq!(ran.reason, reason);
    let dropped = reason.outcome() == Outcome::Drop;
    match want {
        Want::Same => {
            assert_eq!(reason.outcome(), Outcome::Pass);
            assert_eq!(ran.frame, frame, "touched");
        }
        Want::Dropped => assert!(dropped),
        Want::Packet(packet) => {
            assert!(!dropped);
            let expected = packet.bytes();
            assert_eq!(hex(&ran.frame), hex(&expected));
            sound::check(&ran.frame, packet.sum);
        }
        Want::Unfinished(expected) => {
            assert!(!dropped);
            assert_eq!(hex(&ran.frame), hex(expected));
        }
        Want::Bytes(expected) => {
            assert!(!dropped);
            assert_eq!(hex(&ran.frame), hex(expected));
            sound::check(&ran.frame, Sum::Full);
        }
    }
}

/// Bytes by header words, so that a difference shows where it is.
fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .enumerate()
        .map(|(at, byte)| match at {
            14 | 34 | 54 => format!(" | {byte:02x}"),
            _ if at % 2 == 0 => format!(" {byte:02x}"),
            _ => format!("{byte:02x}"),
        })
        .collect()
}
