//! What the kernel program and the agent share.
#![no_std]
