//! The two traits on plain collections, for tests on the host.
