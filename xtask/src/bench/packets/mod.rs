//! What a packet costs: the product's program against the floor, through one harness.
//!
//! Each case is checked in each round: the last packet must have become what it should, with its
//! checksums right, and the product's counters must have counted all of them under the one
//! reason that is measured. Figures are net of a bare TX of the same kind of packets.

mod cases;
mod frames;
mod groups;
mod harness;
mod product;
mod scene;

use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use super::rounds::{Samples, median, ratios};
use super::table::{Row, Target};
use crate::run;
use cases::{Case, Handshakes};
use groups::{Group, Line};
use harness::Harness;
use product::Product;

/// The link that the packets come from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum LinkKind {
    /// Its frames may carry unfinished checksums (veth, virtio): each packet is tested for that
    #[default]
    Virtual,
    /// They never do
    Physical,
}

/// Measures all cases in rounds.
pub(super) fn measure(rounds: u32, link: LinkKind) -> Result<Vec<Row>> {
    // On a thread of its own, which stays on one processor: the harness numbers its packets
    // there, and the caches are one processor's.
    std::thread::scope(|scope| {
        scope
            .spawn(|| -> Result<Vec<Row>> {
                let mut here = CpuSet::new();
                here.set(sched_getcpu().context("which processor is this?")?)?;
                sched_setaffinity(Pid::from_raw(0), &here).context("staying on one processor")?;
                Bench::load(link)?.measure(rounds)
            })
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

struct Bench {
    product: Product,
    harness: Harness,
}

impl Bench {
    fn load(link: LinkKind) -> Result<Self> {
        run::step("packets: loading the programs and filling their maps");
        let product = Product::load(link)?;
        let harness = Harness::load(product.program()?)?;
        Ok(Self { product, harness })
    }

    fn measure(&mut self, rounds: u32) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for group in groups::all() {
            run::step(&format!(
                "packets: {}, {rounds} rounds of {} cases",
                group.name,
                group.cases.len()
            ));
            let samples = self.take_turns(&group, rounds)?;
            rows.extend(group.lines.iter().map(|line| row(line, &samples)));
        }
        Ok(rows)
    }

    fn take_turns(&mut self, group: &Group, rounds: u32) -> Result<Samples> {
        self.product.hold(group.flows)?;
        let mut samples = Samples::default();
        for turn in 0..group.turns * rounds as usize {
            // Each begins another turn, so that none has always the same one's traces in the
            // caches.
            let (after, before) = group.cases.split_at(turn % group.cases.len());
            for case in before.iter().chain(after) {
                if run::interrupted() {
                    bail!("interrupted");
                }
                let figure = self.run(case, group.times);
                samples.add(case.name, figure.with_context(|| case.name.to_owned())?);
            }
        }
        Ok(samples)
    }

    fn run(&mut self, case: &Case, (times, before): (u32, u32)) -> Result<f64> {
        match case.handshakes {
            Handshakes::Any => {}
            Handshakes::Empty => self.product.clear_handshakes()?,
            Handshakes::Full => {
                // More than there is room for.
                let times = lb_common::limits::HANDSHAKES as u32 * 5 / 4;
                self.harness
                    .run(case.program, case.packets, &case.frame, times)?;
            }
        }
        self.harness
            .run(case.program, case.packets, &case.frame, before)?;
        let counted = self.count(case)?;
        let ran = self
            .harness
            .run(case.program, case.packets, &case.frame, times)?;
        case.check(&ran)?;
        let counted = self.count(case)? - counted;
        ensure!(
            case.reason.is_none() || counted == u64::from(times),
            "{counted} of {times} packets met the fate that is measured"
        );
        Ok(ran.each)
    }

    fn count(&self, case: &Case) -> Result<u64> {
        match case.reason {
            Some(reason) => self.product.count(reason),
            None => Ok(0),
        }
    }
}

fn row(line: &Line, samples: &Samples) -> Row {
    let net = |(case, bare)| samples.net(case, bare);
    let (product, floor) = (net(line.case), net(line.floor));
    Row {
        what: line.what.clone(),
        measured: median(&ratios(&product, &floor)),
        unit: line.unit,
        target: Some(Target::AtMost(line.at_most)),
        detail: format!(
            "{:.1} ns, {} {:.1} ns",
            median(&product),
            line.floor.0.to_uppercase(),
            median(&floor)
        ),
    }
}
