//! Programs that the agent runs itself, through BPF_PROG_TEST_RUN: sending a frame, sweeping the
//! flows. Neither needs a raw socket, and the sweep never leaves the kernel.

use std::time::Duration;

use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions, Xdp};

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

    /// Runs the sweep once; `input` is what it is told, and the answer is written over `output`.
    /// Returns the program's return value and the time it took.
    pub fn sweep(&self, input: &[u8], output: &mut [u8]) -> Result<(u32, Duration), LoadError> {
        let program = self.tools.program(program::SWEEP);
        let program: &Xdp = program
            .ok_or(LoadError::Missing {
                what: "program",
                name: program::SWEEP,
            })?
            .try_into()
            .map_err(LoadError::program("find the sweep"))?;
        let mut padded = input.to_vec();
        padded.resize(input.len().max(SHORTEST), 0);
        let mut options = TestRunOptions::new();
        options.data_in = Some(&padded);
        if !output.is_empty() {
            options.data_out = Some(output);
        }
        let result = program
            .test_run(options)
            .map_err(LoadError::program("sweep the flows"))?;
        Ok((result.return_value, result.duration))
    }
}
