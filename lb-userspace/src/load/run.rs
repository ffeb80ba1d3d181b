//! Programs that the agent runs itself, through BPF_PROG_TEST_RUN: sending a frame, sweeping the
//! flows. Neither needs a raw socket, and the sweep never leaves the kernel.

use std::collections::{BTreeMap, BTreeSet};

use aya::programs::{
    RawTracePoint, RawTracePointRunOptions, SchedClassifier, TestRun as _, TestRunOptions,
};

use super::{Datapath, LoadError, program};

/// The shortest frame that a test run takes.
const SHORTEST: usize = 14;

/// Where the mark is in `struct __sk_buff`.
const MARK: usize = 8;

impl Datapath {
    /// Sends a frame, Ethernet header included, out of an interface. False when the kernel did
    /// not take it (the interface is down or gone).
    pub fn emit(&self, ifindex: u32, frame: &[u8]) -> Result<bool, LoadError> {
        let program = self.tools.program(program::EMIT);
        let program: &SchedClassifier = program
            .ok_or(LoadError::Missing {
                what: "program",
                name: program::EMIT,
            })?
            .try_into()
            .map_err(LoadError::program("find the sender"))?;
        let mut context = [0; MARK + 4];
        context[MARK..].copy_from_slice(&ifindex.to_ne_bytes());
        let mut padded = frame.to_vec();
        padded.resize(frame.len().max(SHORTEST), 0);
        let mut options = TestRunOptions::new();
        options.data_in = Some(&padded);
        options.ctx_in = Some(&context);
        let result = program
            .test_run(options)
            .map_err(LoadError::program("send a frame"))?;
        Ok(result.return_value == 0)
    }

    /// Walks all flows inside the kernel: forgets what has ended, and counts the rest.
    pub fn sweep(&mut self) -> Result<Sweep, LoadError> {
        self.maps.clear_usage().map_err(LoadError::io("usage"))?;
        let program = self.tools.program(program::SWEEP);
        let program: &RawTracePoint = program
            .ok_or(LoadError::Missing {
                what: "program",
                name: program::SWEEP,
            })?
            .try_into()
            .map_err(LoadError::program("find the sweep"))?;
        let result = program
            .test_run(RawTracePointRunOptions::new())
            .map_err(LoadError::program("sweep the flows"))?;
        if result.return_value != 0 {
            return Err(LoadError::SweepFailed {
                code: result.return_value,
            });
        }
        let usage = self.maps.usage().map_err(LoadError::io("usage"))?;
        let flows = (0u32..).zip(usage).filter(|(_, count)| *count > 0);
        let flows = flows.map(|(id, count)| (id, u32::try_from(count).unwrap_or(u32::MAX)));
        Ok(Sweep {
            flows: flows.collect(),
        })
    }
}

/// What a sweep found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sweep {
    /// Entries of the flow table by endpoint id; a flow by full NAT has two.
    pub flows: BTreeMap<u32, u32>,
}

impl Sweep {
    /// Ids that must not be given to others, for [`crate::plan::Planner::reclaim`].
    pub fn held(&self) -> BTreeSet<u32> {
        self.flows.keys().copied().collect()
    }
}
