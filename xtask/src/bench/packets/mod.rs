//! What a packet costs: the product's program against the floor, through one harness.
//!
//! Each case is checked in each round: the last packet must have become what it should, with its
//! checksums right, and the product's counters must have counted all of them under the one
//! reason that is measured. Figures are net of a bare TX of the same kind of packets.

mod cases;
mod frames;
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
use harness::{Harness, Packets, Program};
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

/// Turns that short cases have in a round: what disturbs a few milliseconds then disturbs a few
/// figures of many.
const SHORT_TURNS: usize = 10;

struct Bench {
    product: Product,
    harness: Harness,
    samples: Samples,
}

impl Bench {
    fn load(link: LinkKind) -> Result<Self> {
        run::step("packets: loading the programs and filling their maps");
        let product = Product::load(link)?;
        let harness = Harness::load(product.program()?)?;
        Ok(Self {
            product,
            harness,
            samples: Samples::default(),
        })
    }

    fn measure(mut self, rounds: u32) -> Result<Vec<Row>> {
        let cases = cases::all();
        run::step(&format!(
            "packets: {rounds} rounds of {} cases",
            cases.len()
        ));
        let (short, long): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.is_short());
        for _ in 0..rounds {
            let turns = std::iter::repeat_n(&short, SHORT_TURNS).flatten();
            for case in turns.chain(&long) {
                if run::interrupted() {
                    bail!("interrupted");
                }
                let figure = self.run(case).with_context(|| case.name.to_owned())?;
                self.samples.add(case.name, figure);
            }
        }
        Ok(rows(&cases, &self.samples))
    }

    fn run(&mut self, case: &Case) -> Result<f64> {
        match case.handshakes {
            Handshakes::Any => {}
            Handshakes::Empty => self.product.clear_handshakes()?,
            Handshakes::Full => {
                // More than there is room for.
                let times = lb_common::limits::HANDSHAKES as u32 * 5 / 4;
                self.harness
                    .run(case.program, Packets::Fresh, &case.frame, times)?;
            }
        }
        let (times, before) = case.times();
        self.harness
            .run(case.program, case.packets, &case.frame, before)?;
        let counted = self.count(case)?;
        let ran = self
            .harness
            .run(case.program, case.packets, &case.frame, times)?;
        case.check(&ran)?;
        let counted = self.count(case)? - counted;
        ensure!(
            case.program != Program::Product || counted == u64::from(times),
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

/// A line of the table: a case against a floor.
struct Line {
    what: &'static str,
    case: &'static str,
    floor: &'static str,
    at_most: f64,
}

const fn line(what: &'static str, case: &'static str, floor: &'static str, at_most: f64) -> Line {
    Line {
        what,
        case,
        floor,
        at_most,
    }
}

const LINES: [Line; 12] = [
    line("established, Local, 1 flow", "local", "f1", 1.5),
    line("established, Nat, 1 flow", "nat", "f1", 1.5),
    line("established, Nat's reply, 1 flow", "reply", "f1", 1.5),
    line("established, Local, 64k flows", "local64k", "f2", 1.15),
    line("established, Nat, 64k flows", "nat64k", "f2", 1.15),
    line(
        "established, Nat's reply, 64k flows",
        "reply64k",
        "f2",
        1.15,
    ),
    line("SYN, Local, handshake map not full", "newlocal", "f3", 1.3),
    line("SYN, Nat, handshake map not full", "newnat", "f3", 1.3),
    line("SYN, Local, handshake map full", "newlocal full", "f3", 2.5),
    line("SYN, Nat, handshake map full", "newnat full", "f3", 2.5),
    line("not ours, 1 source", "other", "f1", 0.4),
    line("not ours, 64k sources", "other64k", "f1", 0.4),
];

/// The bare TX that a case's figures are net of.
fn bare(packets: Packets) -> &'static str {
    match packets {
        Packets::Same => "tx",
        Packets::Random => "tx64k",
        Packets::Fresh => "txnew",
    }
}

fn rows(cases: &[Case], samples: &Samples) -> Vec<Row> {
    let net = |name| {
        let case = cases.iter().find(|case| case.name == name);
        case.map_or_else(Vec::new, |case| samples.net(name, bare(case.packets)))
    };
    let row = |line: &Line| {
        let (product, floor) = (net(line.case), net(line.floor));
        let name = line.floor.to_uppercase();
        Row {
            what: line.what.to_owned(),
            measured: median(&ratios(&product, &floor)),
            unit: match line.floor {
                "f1" => "x F1",
                "f2" => "x F2",
                _ => "x F3",
            },
            target: Some(Target::AtMost(line.at_most)),
            detail: format!(
                "{:.1} ns, {name} {:.1} ns",
                median(&product),
                median(&floor)
            ),
        }
    };
    LINES.iter().map(row).collect()
}
