//! The two ways to compile for BPF: Debian's packages, or a rustup nightly.
//!
//! Debian ships rustc with a prebuilt `core` for BPF; elsewhere `core` is built from the
//! nightly's sources. Both link with `bpf-linker`. What the compiler is told is pinned here,
//! for the dependencies as well: a different setting is a different program to the verifier.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::objects::{self, Object};
use crate::{cargo, run, workspace};

/// The BPF target: little-endian, as every machine this runs on.
const TARGET: &str = "bpfel-unknown-none";
const DEBIAN_BIN: &str = "/usr/bin";
/// Chooses a way when a machine has both: `debian` or `rustup`.
pub(crate) const CHOICE: &str = "SLUICE_EBPF_TOOLCHAIN";

/// One code-generation unit keeps inlining, and so the stack depth, the same on every machine.
const PROFILE: [(&str, &str); 7] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "2"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "false"),
    ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "false"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_STRIP", "none"),
];

/// Left over from the cargo that runs this program; they would mislead another toolchain's.
const INHERITED: [&str; 5] = [
    "CARGO",
    "LD_LIBRARY_PATH",
    "RUSTC",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];

/// A compiler that can build for BPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// Debian's `rustc-web`, with `libstd-rust-web-dev-bpf`.
    Debian,
    /// A rustup nightly with `rust-src`.
    Rustup,
}

impl Toolchain {
    /// The way that is ready on this machine, if any.
    pub(crate) fn installed() -> Option<Self> {
        let wanted = env::var(CHOICE).ok();
        [Self::Debian, Self::Rustup]
            .into_iter()
            .filter(|way| wanted.as_deref().is_none_or(|name| name == way.name()))
            .find(|way| way.is_ready())
    }

    /// As `installed`, with an error that says what to do.
    pub(crate) fn require() -> Result<Self> {
        if linker().is_none() {
            bail!("bpf-linker is not installed: run `cargo xtask setup`");
        }
        Self::installed().context("no toolchain here can compile for BPF: run `cargo xtask setup`")
    }

    /// The name by which the environment variable chooses it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Debian => "debian",
            Self::Rustup => "rustup",
        }
    }

    /// Whether its compiler and its `core` are here.
    pub(crate) fn is_ready(self) -> bool {
        match self {
            Self::Debian => run::quiet(
                Command::new(debian("rustc"))
                    .args(["--print", "target-libdir", "--target", TARGET])
                    .env_remove("LD_LIBRARY_PATH"),
            )
            .is_some_and(|dir| has_core(Path::new(dir.trim()))),
            Self::Rustup => run::quiet(Command::new("rustup").args([
                "component",
                "list",
                "--toolchain",
                "nightly",
                "--installed",
            ]))
            .is_some_and(|list| list.lines().any(|line| line.starts_with("rust-src"))),
        }
    }

    /// The command that compiles one object.
    pub(crate) fn build(self, object: &Object) -> Command {
        let mut command = self.cargo("cargo");
        command.arg("build");
        self.arguments(&mut command, object);
        command
    }

    /// The command that lints one object for BPF, if this toolchain has clippy.
    pub(crate) fn clippy(self, object: &Object) -> Option<Command> {
        let mut command = match self {
            Self::Debian => {
                if !debian("cargo-clippy").exists() {
                    return None;
                }
                let mut command = self.cargo("cargo-clippy");
                command.env("CARGO", debian("cargo"));
                command
            }
            Self::Rustup => {
                run::quiet(self.cargo("cargo").args(["clippy", "--version"]))?;
                self.cargo("cargo")
            }
        };
        command.arg("clippy");
        self.arguments(&mut command, object);
        command.args(["--lib", "--", "-D", "warnings"]);
        Some(command)
    }

    /// Where cargo leaves the object.
    pub(crate) fn output(object: &Object) -> PathBuf {
        objects::directory()
            .join(TARGET)
            .join("release")
            .join(object.bin)
    }

    fn cargo(self, program: &str) -> Command {
        let mut command = match self {
            Self::Debian => Command::new(debian(program)),
            Self::Rustup => Command::new(program),
        };
        cargo::forget(&mut command);
        for name in INHERITED {
            command.env_remove(name);
        }
        match self {
            Self::Debian => {
                // aya-ebpf uses features of the language that are unstable for BPF.
                command
                    .env("RUSTC_BOOTSTRAP", "1")
                    .env("RUSTC", debian("rustc"));
            }
            Self::Rustup => {
                command.env("RUSTUP_TOOLCHAIN", "nightly");
            }
        }
        command
            .current_dir(workspace::root())
            .env("PATH", search_path())
            .env("CARGO_ENCODED_RUSTFLAGS", rustflags())
            .envs(PROFILE);
        command
    }

    fn arguments(self, command: &mut Command, object: &Object) {
        if self == Self::Rustup {
            command.args(["-Z", "build-std=core"]);
        }
        command
            .args(["--release", "--target", TARGET])
            .args(["--package", "lb-ebpf", "--bin", object.bin])
            .arg("--target-dir")
            .arg(objects::directory());
        if !object.features.is_empty() {
            command.arg("--features").arg(object.features.join(","));
        }
    }
}

/// The path of `bpf-linker`, if it is installed.
pub(crate) fn linker() -> Option<PathBuf> {
    env::split_paths(&search_path())
        .map(|dir| dir.join("bpf-linker"))
        .find(|path| path.is_file())
}

/// PATH, with the folder where `cargo install` puts programs: under sudo it is often missing.
pub(crate) fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let dirs = env::split_paths(&path).chain(home.map(|home| home.join("bin")));
    env::join_paths(dirs).unwrap_or(path)
}

/// Debug information and `--btf` give the maps their types, which loaders and `bpftool` read.
fn rustflags() -> String {
    let arch = env::consts::ARCH;
    [
        "-Cdebuginfo=2",
        "-Clink-arg=--btf",
        "-Ctarget-cpu=v3",
        &format!("--cfg=bpf_target_arch=\"{arch}\""),
    ]
    .join("\u{1f}")
}

fn debian(program: &str) -> PathBuf {
    Path::new(DEBIAN_BIN).join(program)
}

fn has_core(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|entries| {
        entries
            .filter_map(Result::ok)
            .any(|entry| entry.file_name().to_string_lossy().starts_with("libcore"))
    })
}
