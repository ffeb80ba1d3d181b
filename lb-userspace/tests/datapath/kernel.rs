//! The kernel's rig: the product's own object, loaded without pins, run by BPF_PROG_TEST_RUN.
//! A packet's reason is the counter that moved.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::path::PathBuf;

use aya::maps::{Array, HashMap, LpmTrie, PerCpuArray, lpm_trie};
use aya::programs::{
    RawTracePoint, RawTracePointRunOptions, SchedClassifier, TestRun as _, TestRunOptions, Xdp,
};
use aya::{Ebpf, EbpfLoader, Pod};
use lb_common::abi::{
    Affinity, AffinityKey, Answered, Conflict, Counter, Endpoint, Flow, FlowKey, Frontend,
    FrontendKey, Handshake, Health, Reverse, SourceRange, Vip,
};
use lb_common::{Outcome, Reason, V4};

use super::cases::case::{Ran, Rig, Tables};
use super::cases::host::{filler, is_filler};
use super::cases::node::{FLOWS, Node};

/// Longest frame of a program that takes its frames in one piece: a page less what the kernel
/// puts before and behind.
pub(crate) const LONGEST: usize = 4096 - 256 - 320;

/// Smaller maps than the product's: loading is quicker, and full is reached sooner.
const SIZES: [(&str, u32); 13] = [
    ("flows", FLOWS as u32),
    ("reverse", FLOWS as u32),
    ("handshakes", 2048),
    ("answered", 2048),
    ("affinity", 2048),
    ("conflicts", 256),
    ("frontends", 64),
    ("vips", 64),
    ("source_ranges", 64),
    ("endpoints", 32),
    ("health", 32),
    ("usage", 32),
    ("tables", 256),
];

/// What a program returns for each outcome: XDP's and TCX's actions.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;
const TC_UNSPEC: u32 = u32::MAX;
const TC_REDIRECT: u32 = 7;
const TC_SHOT: u32 = 2;

/// The programs, loaded once for each kind of link.
pub(crate) struct Kernel {
    object: Vec<u8>,
    loaded: BTreeMap<u8, Loaded>,
    /// Flags of the link of the present case.
    flags: u8,
}

struct Loaded {
    ebpf: Ebpf,
    counters: Vec<u64>,
}

impl Kernel {
    /// Reads the object.
    pub(crate) fn new() -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/ebpf/sluice.o");
        let object = std::fs::read(&path).unwrap_or_default();
        assert!(
            !object.is_empty(),
            "{} is missing: run `cargo xtask build` first",
            path.display()
        );
        Self {
            object,
            loaded: BTreeMap::new(),
            flags: 0,
        }
    }

    fn load(&self, node: &Node) -> Loaded {
        let link = node.link();
        let mut loader = EbpfLoader::new();
        for (map, entries) in SIZES {
            loader.map_max_entries(map, entries);
        }
        let mut ebpf = loader
            .override_global("LINK", &link, true)
            .load(&self.object)
            .expect("the object loads");
        for name in ["sluice_xdp", "sluice_xdp_frags"] {
            let program: &mut Xdp = ebpf.program_mut(name).unwrap().try_into().unwrap();
            program
                .load()
                .unwrap_or_else(|error| panic!("{name}: {}", last_line(&error)));
        }
        let sweep = ebpf.program_mut("sluice_sweep").unwrap();
        let sweep: &mut RawTracePoint = sweep.try_into().unwrap();
        sweep.load().expect("sluice_sweep loads");
        let egress = ebpf.program_mut("sluice_egress").unwrap();
        let egress: &mut SchedClassifier = egress.try_into().unwrap();
        egress.load().expect("sluice_egress loads");
        Loaded {
            ebpf,
            counters: vec![0; Reason::COUNT],
        }
    }

    fn now(&mut self) -> &mut Loaded {
        self.loaded.get_mut(&self.flags).expect("a case is set up")
    }

    /// Instructions that the verifier walked, by program.
    pub(crate) fn verified(&mut self) -> Vec<(String, u32)> {
        let programs = self.now().ebpf.programs();
        programs
            .filter_map(|(name, program)| {
                let info = program.info().ok()?;
                Some((name.to_owned(), info.verified_instruction_count()?))
            })
            .collect()
    }

    /// Runs a frame through the program for frames in several pieces.
    pub(crate) fn ingress_in_pieces(&mut self, frame: &[u8]) -> Ran {
        self.now().ingress("sluice_xdp_frags", frame)
    }
}

/// The end of an error: of the verifier's log, what it says.
fn last_line(error: &aya::programs::ProgramError) -> String {
    let all = format!("{error}");
    let lines: Vec<_> = all.lines().rev().take(4).collect();
    lines.join("; ")
}

impl Loaded {
    fn hash<K: Pod, V: Pod>(&mut self, name: &str) -> HashMap<&mut aya::maps::MapData, K, V> {
        HashMap::try_from(self.ebpf.map_mut(name).unwrap()).unwrap()
    }

    fn entries<K: Pod + Eq + Hash, V: Pod>(&self, name: &str) -> Vec<(K, V)> {
        let map = HashMap::<_, K, V>::try_from(self.ebpf.map(name).unwrap()).unwrap();
        map.iter().map(Result::unwrap).collect()
    }

    fn put<V: Pod>(&mut self, name: &str, index: u32, value: V) {
        let mut array = Array::<_, V>::try_from(self.ebpf.map_mut(name).unwrap()).unwrap();
        array.set(index, value, 0).unwrap();
    }

    fn clear<K: Pod + Eq + Hash, V: Pod>(&mut self, name: &str) {
        for (key, _) in self.entries::<K, V>(name) {
            self.hash::<K, V>(name).remove(&key).unwrap();
        }
    }

    /// Changes all values of a table: how time passes here.
    fn age<K: Pod + Eq + Hash, V: Pod>(&mut self, name: &str, change: impl Fn(&mut V)) {
        for (key, mut value) in self.entries::<K, V>(name) {
            change(&mut value);
            self.hash(name).insert(key, value, 0).unwrap();
        }
    }

    fn set_up(&mut self, node: &Node) {
        self.clear::<FlowKey<V4>, Flow<V4>>("flows");
        self.clear::<FlowKey<V4>, Reverse<V4>>("reverse");
        self.clear::<FlowKey<V4>, Handshake<V4>>("handshakes");
        self.clear::<FlowKey<V4>, Answered>("answered");
        self.clear::<AffinityKey<V4>, Affinity>("affinity");
        self.clear::<V4, Conflict>("conflicts");
        self.clear::<FrontendKey<V4>, Frontend>("frontends");
        self.clear::<V4, Vip>("vips");
        {
            let map = self.ebpf.map_mut("source_ranges").unwrap();
            let mut ranges = LpmTrie::<_, SourceRange<V4>, u32>::try_from(map).unwrap();
            let keys: Vec<_> = ranges.keys().map(Result::unwrap).collect();
            for key in keys {
                ranges.remove(&key).unwrap();
            }
            for (prefix, range) in node.ranges() {
                let key = lpm_trie::Key::new(32 + u32::from(prefix), range);
                ranges.insert(&key, 1, 0).unwrap();
            }
        }
        for index in 0..32 {
            self.put("endpoints", index, Endpoint::<V4>::default());
            self.put("health", index, Health::default());
        }
        for index in 0..256 {
            self.put("tables", index, [0u32; 16]);
        }
        self.put("refusals", 0, [0u32; 2]);
        self.put("config", 0, node.config());
        let mut bitmap = BTreeMap::new();
        for bit in node.bits() {
            *bitmap.entry(bit >> 6).or_insert(0u64) |= 1 << (bit & 63);
        }
        for (index, word) in bitmap {
            self.put("dest_bitmap", index, word);
        }
        for (vip, value) in node.vips() {
            self.hash("vips").insert(vip, value, 0).unwrap();
        }
        for (key, value) in node.frontends() {
            self.hash("frontends").insert(key, value, 0).unwrap();
        }
        for &(id, endpoint) in &node.endpoints {
            self.put("endpoints", id, endpoint);
        }
        let mut elements = BTreeMap::new();
        for ((element, lane), word) in node.words() {
            elements.entry(element).or_insert([0u32; 16])[lane] = word;
        }
        for (index, words) in elements {
            self.put("tables", index, words);
        }
        self.moved();
    }

    /// Reasons whose counters have moved since the last call.
    fn moved(&mut self) -> Vec<Reason> {
        let counters = PerCpuArray::<_, Counter>::try_from(self.ebpf.map("counters").unwrap());
        let counters = counters.unwrap();
        let mut moved = vec![];
        for &reason in Reason::ALL {
            let slots = counters.get(&(reason as u32), 0).unwrap();
            let packets = slots.iter().map(|counter| counter.packets).sum();
            let before = std::mem::replace(&mut self.counters[reason as usize], packets);
            moved.extend((before..packets).map(|_| reason));
        }
        moved
    }

    fn reason(&mut self) -> Reason {
        let moved = self.moved();
        let [reason] = moved[..] else {
            panic!("one packet, these reasons: {moved:?}");
        };
        reason
    }

    fn ingress(&mut self, program: &str, frame: &[u8]) -> Ran {
        let mut out = vec![0; frame.len() + 4096];
        let xdp: &Xdp = self.ebpf.program(program).unwrap().try_into().unwrap();
        let run = xdp
            .test_run(TestRunOptions {
                data_in: Some(frame),
                data_out: Some(&mut out),
                ..TestRunOptions::default()
            })
            .unwrap();
        out.truncate(run.data_size_out as usize);
        let reason = self.reason();
        let action = match reason.outcome() {
            Outcome::Pass => XDP_PASS,
            Outcome::Transmit => XDP_TX,
            Outcome::Redirect => XDP_REDIRECT,
            Outcome::Drop => XDP_DROP,
        };
        assert_eq!(run.return_value, action, "{reason:?}");
        Ran {
            reason,
            frame: out,
            redirect: None,
        }
    }

    fn egress(&mut self, frame: &[u8]) -> Ran {
        let mut out = vec![0; frame.len() + 64];
        let program = self.ebpf.program("sluice_egress").unwrap();
        let egress: &SchedClassifier = program.try_into().unwrap();
        let run = egress
            .test_run(TestRunOptions {
                data_in: Some(frame),
                data_out: Some(&mut out),
                ..TestRunOptions::default()
            })
            .unwrap();
        out.truncate(run.data_size_out as usize);
        let reason = self.reason();
        let action = match reason.outcome() {
            Outcome::Drop => TC_SHOT,
            Outcome::Pass | Outcome::Transmit => TC_UNSPEC,
            Outcome::Redirect => TC_REDIRECT,
        };
        assert_eq!(run.return_value, action, "{reason:?}");
        Ran {
            reason,
            frame: out,
            redirect: None,
        }
    }
}

impl Rig for Kernel {
    fn set_up(&mut self, node: &Node) {
        self.flags = node.flags;
        if !self.loaded.contains_key(&node.flags) {
            let loaded = self.load(node);
            self.loaded.insert(node.flags, loaded);
        }
        self.now().set_up(node);
    }

    fn ingress(&mut self, frame: &[u8]) -> Ran {
        self.now().ingress("sluice_xdp", frame)
    }

    fn egress(&mut self, frame: &[u8], partial: bool) -> Ran {
        assert!(!partial, "test runs make no unfinished checksums");
        self.now().egress(frame)
    }

    fn sweep(&mut self) {
        let program = self.now().ebpf.program("sluice_sweep").unwrap();
        let sweep: &RawTracePoint = program.try_into().unwrap();
        let run = sweep.test_run(RawTracePointRunOptions::new()).unwrap();
        assert_eq!(run.return_value, 0);
    }

    fn wait(&mut self, millis: u32) {
        let ticks = millis >> 10;
        let now = self.now();
        now.age::<FlowKey<V4>, Flow<V4>>("flows", |flow| {
            flow.seen = flow.seen.wrapping_sub(ticks);
            flow.replied = flow.replied.wrapping_sub(ticks);
        });
        now.age::<FlowKey<V4>, Reverse<V4>>("reverse", |reverse| {
            reverse.seen = reverse.seen.wrapping_sub(ticks);
        });
        now.age::<FlowKey<V4>, Handshake<V4>>("handshakes", |handshake| {
            handshake.started = handshake.started.wrapping_sub(millis);
        });
        now.age::<AffinityKey<V4>, Affinity>("affinity", |affinity| {
            affinity.seen = affinity.seen.wrapping_sub(ticks);
        });
    }

    fn set_endpoint(&mut self, id: u32, endpoint: Endpoint<V4>) {
        self.now().put("endpoints", id, endpoint);
    }

    fn set_health(&mut self, id: u32, health: Health) {
        self.now().put("health", id, health);
    }

    fn fill(&mut self, flows: usize, reverse: usize) {
        let now = self.now();
        let used = now.entries::<FlowKey<V4>, Flow<V4>>("flows").len();
        for index in used..FLOWS - flows {
            let (key, flow, _) = filler(index);
            now.hash("flows").insert(key, flow, 0).unwrap();
        }
        let used = now.entries::<FlowKey<V4>, Reverse<V4>>("reverse").len();
        for index in used..FLOWS - reverse {
            let (key, _, reverse) = filler(index);
            now.hash("reverse").insert(key, reverse, 0).unwrap();
        }
    }

    fn tables(&self) -> Tables {
        let now = &self.loaded[&self.flags];
        let mut tables = Tables {
            flows: now.entries("flows"),
            reverse: now.entries("reverse"),
            handshakes: now.entries("handshakes"),
            answered: now.entries("answered"),
            affinity: now.entries("affinity"),
            conflicts: now.entries("conflicts"),
        };
        tables.flows.retain(|(key, _)| !is_filler(key));
        tables.reverse.retain(|(key, _)| !is_filler(key));
        tables
    }
}
