//! Entry points.
fn main() {}
