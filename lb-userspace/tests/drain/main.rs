//! What becomes of connections when endpoints go: real pods, real clients, a real agent.

mod hold;
mod reset;
mod restart;
mod sight;
mod stage;
mod udp;
