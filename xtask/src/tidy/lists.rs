//! What the rules except. A path that ends in `/` stands for everything below it.

/// The only files that may say `unsafe`.
const UNSAFE: &[&str] = &[
    // Packet memory, map memory, kernel helpers and entry points: the eBPF program's edges.
    "lb-ebpf/src/floor/",
    "lb-ebpf/src/kernel/",
    // The map types promise aya that they are plain bytes.
    "lb-common/src/abi/pod.rs",
    // System calls that no safe crate wraps.
    "lab/src/raw/",
    "lab/src/raw.rs",
    "lab/src/xdp_pass.rs",
    "lb-userspace/src/load/",
    "lb-userspace/src/observe/batch.rs",
];

/// Files that may have more than 400 lines of code that is not a test, and why.
const LONG: &[(&str, &str)] = &[];

/// The only files of the product that may read a clock: elsewhere time is an argument.
const CLOCKS: &[&str] = &[
    "lb-userspace/src/agent.rs",
    "lb-userspace/src/agent/",
    // Watches a folder: a debounce wants a clock.
    "lb-userspace/src/watch/manifests.rs",
    "lb-userspace/src/watch/manifests/tests.rs",
    // Tests that measure.
    "lb-userspace/src/plan/table/tests.rs",
    "lb-userspace/src/testing.rs",
];

/// Folders whose code must not read a clock.
const TIMELESS: &[&str] = &["lb-common/src/", "lb-ebpf/src/", "lb-userspace/src/"];

/// Whether a file may say `unsafe`.
pub(super) fn may_be_unsafe(path: &str) -> bool {
    listed(UNSAFE, path)
}

/// Whether a file may be long.
pub(super) fn may_be_long(path: &str) -> bool {
    LONG.iter().any(|(listed, _)| *listed == path)
}

/// Whether a file may read a clock.
pub(super) fn may_read_clock(path: &str) -> bool {
    !listed(TIMELESS, path) || listed(CLOCKS, path)
}

fn listed(list: &[&str], path: &str) -> bool {
    list.iter()
        .any(|entry| *entry == path || (entry.ends_with('/') && path.starts_with(entry)))
}
