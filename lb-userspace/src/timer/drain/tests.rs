//! Tests of draining: each row of the table, and properties of random histories.

mod properties;
mod rows;
mod support;
mod vips;
