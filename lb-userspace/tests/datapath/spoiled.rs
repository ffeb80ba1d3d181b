//! Frames that nobody would send.
