//! What becomes of connections when endpoints go: real pods, real clients, a real agent.

mod reset;
mod restart;
mod stage;
