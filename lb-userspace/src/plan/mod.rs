//! From what should be to what to write: selection tables, regions of the array, stable ids.
//!
//! Everything in here is a function of its arguments. It must never do IO or read a clock: where
//! time matters it is an argument, a duration on the boot clock.

pub mod ids;
pub mod region;
pub mod table;
