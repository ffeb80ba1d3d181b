//! Which cases are compared with each other, in what state of the tables, and the lines of the
//! table that come of it.

use super::cases::{Case, Handshakes};
use super::harness::{Packets, Program};
use super::scene::{FlowKind, Flows, LOCAL, NAT};

/// Cases that take turns.
pub(super) struct Group {
    /// What it is about.
    pub(super) name: &'static str,
    /// Flows in the product's table meanwhile.
    pub(super) flows: Flows,
    /// Turns of each case in a round: what disturbs a few milliseconds then disturbs a few
    /// figures of many.
    pub(super) turns: usize,
    /// Packets of a turn, and before it, to warm up.
    pub(super) times: (u32, u32),
    /// The cases.
    pub(super) cases: Vec<Case>,
    /// What is compared.
    pub(super) lines: Vec<Line>,
}

/// A line of the table: a case against a floor, each net of a bare TX of the same packets.
pub(super) struct Line {
    pub(super) what: String,
    pub(super) case: (&'static str, &'static str),
    pub(super) floor: (&'static str, &'static str),
    pub(super) unit: &'static str,
    pub(super) at_most: f64,
}

/// All groups.
pub(super) fn all() -> Vec<Group> {
    let kinds = [FlowKind::Local, FlowKind::Nat, FlowKind::Reply];
    [one_flow()]
        .into_iter()
        .chain(kinds.map(many_flows))
        .chain([new_connections()])
        .collect()
}

/// One flow, and packets that are not ours: all that is needed stays in the nearest cache.
fn one_flow() -> Group {
    use Packets::{Random, Same};
    let line = |what: &str, case, at_most| Line {
        what: what.to_owned(),
        case,
        floor: ("f1", "tx"),
        unit: "x F1",
        at_most,
    };
    Group {
        name: "one flow",
        flows: Flows::OneEach,
        turns: 10,
        times: (20_000, 1_000),
        cases: vec![
            Case::floor("tx", Program::Tx, Same),
            Case::floor("f1", Program::F1, Same),
            Case::established("local", Same, FlowKind::Local),
            Case::established("nat", Same, FlowKind::Nat),
            Case::established("reply", Same, FlowKind::Reply),
            Case::not_ours("other", Same),
            Case::floor("tx many", Program::Tx, Random),
            Case::not_ours("other many", Random),
        ],
        lines: vec![
            line("established, Local, 1 flow", ("local", "tx"), 1.5),
            line("established, Nat, 1 flow", ("nat", "tx"), 1.5),
            line("established, Nat's reply, 1 flow", ("reply", "tx"), 1.5),
            line("not ours, 1 source", ("other", "tx"), 0.4),
            line("not ours, 64k sources", ("other many", "tx many"), 0.4),
        ],
    }
}

/// 64k flows: a table that no near cache holds.
fn many_flows(kind: FlowKind) -> Group {
    use Packets::Random;
    let what = match kind {
        FlowKind::Local => "Local",
        FlowKind::Nat => "Nat",
        FlowKind::Reply => "Nat's reply",
    };
    Group {
        name: "64k flows",
        flows: Flows::Many(kind),
        turns: 1,
        // Nearly two packets for each flow: most entries have been used when it counts.
        times: (60_000, 60_000),
        cases: vec![
            Case::floor("tx", Program::Tx, Random),
            Case::floor("f2", Program::F2, Random),
            Case::established("flows", Random, kind),
        ],
        lines: vec![Line {
            what: format!("established, {what}, 64k flows"),
            case: ("flows", "tx"),
            floor: ("f2", "tx"),
            unit: "x F2",
            at_most: 1.15,
        }],
    }
}

/// New connections, while 64k others are established.
fn new_connections() -> Group {
    use Handshakes::{Empty, Full};
    let line = |what: &str, case, at_most| Line {
        what: what.to_owned(),
        case: (case, "tx"),
        floor: ("f3", "tx"),
        unit: "x F3",
        at_most,
    };
    Group {
        name: "new connections",
        flows: Flows::Many(FlowKind::Local),
        turns: 1,
        // With room left in a handshake map of 64k, and in the floor's table of a million after
        // all rounds.
        times: (20_000, 2_000),
        cases: vec![
            Case::floor("tx", Program::Tx, Packets::Fresh),
            Case::floor("f3", Program::F3, Packets::Fresh),
            Case::new("local", LOCAL, Empty),
            Case::new("nat", NAT, Empty),
            Case::new("local, full", LOCAL, Full),
            Case::new("nat, full", NAT, Full),
        ],
        lines: vec![
            line("SYN, Local, handshake map not full", "local", 1.3),
            line("SYN, Nat, handshake map not full", "nat", 1.3),
            line("SYN, Local, handshake map full", "local, full", 2.5),
            line("SYN, Nat, handshake map full", "nat, full", 2.5),
        ],
    }
}
