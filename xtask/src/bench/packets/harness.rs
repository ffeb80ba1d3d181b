//! Runs a program on a fresh packet each time, and says what a run took.
//!
//! The bench's own object makes the packet and calls the program under test (see
//! `lb-ebpf/src/floor`). Time is the calling thread's own processor time: what others do on the
//! machine meanwhile does not count, apart from what they do to the caches.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aya::maps::{Array, HashMap, MapData, ProgramArray};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use lb_common::abi::pod;
use nix::time::{ClockId, clock_gettime};

use super::frames::HEADERS;
use super::scene::{FLOWS, LOCAL, SERVER_MAC};
use crate::objects;

const HARNESS: &str = "floor_harness";
/// Programs by their index in the harness's table.
const FLOORS: [&str; 4] = ["floor_tx", "floor_f1", "floor_f2", "floor_f3"];

/// A program under test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Program {
    /// Bare XDP_TX.
    Tx = 0,
    /// One lookup in a table of one.
    F1 = 1,
    /// One lookup in a table of 64k.
    F2 = 2,
    /// A new entry in a table of a million.
    F3 = 3,
    /// What it is all about.
    Product = 4,
}

/// What varies from packet to packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Packets {
    /// Nothing.
    Same = 0,
    /// The source, one of 64k.
    Random = 1,
    /// Source and port: never seen before.
    Fresh = 2,
}

/// What came of some runs.
pub(super) struct Ran {
    /// Nanoseconds each.
    pub(super) each: f64,
    /// The last one's action.
    pub(super) action: u32,
    /// The last one's frame.
    pub(super) frame: Vec<u8>,
}

/// The loaded harness and floors.
pub(super) struct Harness(Ebpf);

impl Harness {
    /// Loads them, with the product's program in their reach.
    pub(super) fn load(product: &Xdp) -> Result<Self> {
        let path = objects::FLOOR.path();
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        let mut harness = Self(
            EbpfLoader::new()
                .load(&bytes)
                .context("loading the bench's object")?,
        );
        for name in FLOORS.into_iter().chain([HARNESS]) {
            let program = harness.0.program_mut(name).context(name)?;
            <&mut Xdp>::try_from(program)?.load().context(name)?;
        }
        for (index, name) in (0..).zip(FLOORS) {
            let program: &Xdp = harness.0.program(name).context(name)?.try_into()?;
            let program = program.fd()?.try_clone()?;
            harness.programs()?.set(index, &program, 0)?;
        }
        let product = product.fd()?.try_clone()?;
        harness
            .programs()?
            .set(Program::Product as u32, &product, 0)
            .context("the harness and the product do not fit together")?;
        harness.fill().context("filling the floor's maps")?;
        Ok(harness)
    }

    fn programs(&mut self) -> Result<ProgramArray<&mut MapData>> {
        let map = self.0.map_mut("programs").context("programs")?;
        Ok(ProgramArray::try_from(map)?)
    }

    /// The same flows that the product has; in the table of one, flow 0 and, for F3, the entry
    /// that stands for all clients.
    fn fill(&mut self) -> Result<()> {
        for index in 0..FLOWS {
            let (key, value) = entry(index);
            self.hash("many")?.insert(key, value, 0)?;
        }
        Ok(())
    }

    /// Puts into the table of one what F1 or F3 looks for.
    fn fill_one(&mut self, program: Program) -> Result<()> {
        let (key, value) = entry(0);
        let [_, dst, ports, protocol] = key;
        let [_, _, high, low] = ports.to_ne_bytes();
        let any = [0, dst, u32::from_ne_bytes([0, 0, high, low]), protocol];
        let (wanted, other) = if program == Program::F3 {
            (any, key)
        } else {
            (key, any)
        };
        let mut one = self.hash("one")?;
        // Not there is as good.
        let _ = one.remove(&other);
        one.insert(wanted, value, 0).context("one")
    }

    fn hash(&mut self, name: &'static str) -> Result<HashMap<&mut MapData, [u32; 4], [u8; 16]>> {
        Ok(HashMap::try_from(self.0.map_mut(name).context(name)?)?)
    }

    /// Runs a program so many times, each time on a packet like `frame`.
    pub(super) fn run(
        &mut self,
        program: Program,
        packets: Packets,
        frame: &[u8],
        times: u32,
    ) -> Result<Ran> {
        if let Program::F1 | Program::F3 = program {
            self.fill_one(program)?;
        }
        let mut template = [0; 56];
        template[..HEADERS].copy_from_slice(&frame[..HEADERS]);
        self.put("template", template)?;
        self.put("knobs", [packets as u32, program as u32])?;
        let mut out = vec![0; frame.len() + 64];
        let harness: &Xdp = self.0.program(HARNESS).context(HARNESS)?.try_into()?;
        let before = processor_time()?;
        let run = harness.test_run(TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat: times,
            ..TestRunOptions::default()
        })?;
        let spent = processor_time()?.saturating_sub(before);
        ensure!(
            run.return_value != 0,
            "{program:?} was not reached, or gave up"
        );
        out.truncate(run.data_size_out as usize);
        Ok(Ran {
            each: spent.as_secs_f64() * 1e9 / f64::from(times),
            action: run.return_value,
            frame: out,
        })
    }

    fn put<V: aya::Pod>(&mut self, name: &'static str, value: V) -> Result<()> {
        let map = self.0.map_mut(name).context(name)?;
        Array::<_, V>::try_from(map)?.set(0, value, 0).context(name)
    }
}

/// The floor's entry for flow `index` of the local frontend: the layouts of
/// `lb-ebpf/src/floor/programs.rs`.
fn entry(index: u32) -> ([u32; 4], [u8; 16]) {
    let (key, flow) = LOCAL.flow(index);
    let native = |bytes: [u8; 4]| u32::from_ne_bytes(bytes);
    let ports: [u8; 4] = copy(pod::as_bytes(&key.ports));
    let new_ports: [u8; 4] = copy(pod::as_bytes(&flow.ports));
    let delta = lb_common::checksum::add(flow.address_delta, flow.port_delta);
    let mut value = [0; 16];
    value[0..4].copy_from_slice(&flow.dst.0);
    value[4..6].copy_from_slice(&new_ports[2..4]);
    value[6..8].copy_from_slice(&flow.address_delta.to_ne_bytes());
    value[8..10].copy_from_slice(&delta.to_ne_bytes());
    value[10..12].copy_from_slice(&SERVER_MAC[4..6]);
    value[12..16].copy_from_slice(&SERVER_MAC[0..4]);
    (
        [
            native(key.src.0),
            native(key.dst.0),
            native(ports),
            u32::from(key.protocol),
        ],
        value,
    )
}

fn copy<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    all.copy_from_slice(bytes);
    all
}

fn processor_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("reading the clock")?;
    Ok(time.into())
}
