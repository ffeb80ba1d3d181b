//! State machines of the agent that depend on time, without a clock of their own.
//!
//! Time is an argument (the boot clock, as a `Duration` since boot), effects are data, and
//! `poll_timeout` says when to call again. Nothing here reads a clock, a map or a socket, so
//! every race is a unit test.

pub mod drain;
