//! How labs go away: by drop, by signal, and after their owner died without either.
//!
//! Only processes that live inside a lab's own namespaces are killed, each by its id, and only namespaces that carry
//! the lab's id are removed. Links go with their namespaces.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::names;
use crate::ns::Ns;

/// Where agents of labs pin, each in a folder named as its namespace.
const BPF_FS: &str = "/sys/fs/bpf";

type Hook = Box<dyn FnOnce() + Send>;

static LIVE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static HOOKS: Mutex<Vec<Hook>> = Mutex::new(Vec::new());

/// Removes what labs of dead processes left behind (namespaces, and the processes in them, then pins and temporary
/// files); returns their number.
pub fn cleanup_stale() -> Result<usize> {
    let ids = names::stale_ids();
    ids.iter().try_for_each(|id| remove_lab(id))?;
    for folder in [Path::new(BPF_FS), &std::env::temp_dir()] {
        for path in names::stale_in(folder) {
            // Somebody else may clean up as well, and what is left is found by the next.
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
    }
    crate::cgroups::remove_stale();
    Ok(ids.len())
}

/// A folder for as long as this lives, and no longer than the process.
#[derive(Debug)]
pub struct TemporaryDir {
    path: PathBuf,
}

impl TemporaryDir {
    /// Makes one under the system's temporary folder; names are this process's own.
    pub fn new(name: &str) -> Result<Self> {
        let path = names::temporary(name)?;
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        let left = path.clone();
        on_teardown(move || {
            let _ = fs::remove_dir_all(left);
        });
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        // What stays is found by whoever cleans up next.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// From here on SIGINT, SIGTERM and SIGHUP tear down every lab of this process, then end it with status 128 + n.
///
/// Meant for programs that own labs (demo, benches, test binaries); calling it again changes nothing.
pub fn teardown_on_signal() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let (ready, installed) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let result = wait_for_signal(&ready);
            let number = match result {
                Ok(number) => number,
                Err(error) => {
                    eprintln!("lab: no teardown on Ctrl-C: {error:#}");
                    return;
                }
            };
            teardown_all();
            std::process::exit(128 + number);
        });
        // Wait until the handlers are in place; a failed thread drops its end, which is as good.
        installed.recv().ok();
    });
}

/// Something else to undo when a signal ends the process, after the labs are gone: pins, temporary directories.
pub fn on_teardown(hook: impl FnOnce() + Send + 'static) {
    HOOKS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Box::new(hook));
}

/// Tears down every lab of this process at once, then runs the hooks.
pub fn teardown_all() {
    let ids: Vec<String> = LIVE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .cloned()
        .collect();
    for id in ids {
        if let Err(error) = forget_lab(&id) {
            eprintln!("lab: removing {id}: {error:#}");
        }
    }
    let hooks = std::mem::take(&mut *HOOKS.lock().unwrap_or_else(PoisonError::into_inner));
    for hook in hooks {
        hook();
    }
}

fn wait_for_signal(ready: &std::sync::mpsc::Sender<()>) -> Result<i32> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("a runtime for signals")?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("catching SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("catching SIGTERM")?;
        let mut hangup = signal(SignalKind::hangup()).context("catching SIGHUP")?;
        ready.send(()).ok();
        Ok(tokio::select! {
            _ = interrupt.recv() => Signal::SIGINT as i32,
            _ = terminate.recv() => Signal::SIGTERM as i32,
            _ = hangup.recv() => Signal::SIGHUP as i32,
        })
    })
}

/// Must come before the first namespace is made, so that a signal in between finds it.
pub(crate) fn register_lab(id: &str) {
    LIVE.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(id.to_owned());
}

pub(crate) fn forget_lab(id: &str) -> Result<()> {
    let result = remove_lab(id);
    LIVE.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(id);
    result
}

/// Kills what lives in one namespace and takes its name away.
pub(crate) fn remove_namespace(ns: &Ns) -> Result<()> {
    kill_inside(std::slice::from_ref(ns))?;
    unlink(ns)
}

fn remove_lab(id: &str) -> Result<()> {
    let namespaces: Vec<Ns> = names::namespaces_of(id)
        .into_iter()
        .map(Ns::named)
        .collect();
    kill_inside(&namespaces)?;
    namespaces.iter().try_for_each(unlink)
}

fn unlink(ns: &Ns) -> Result<()> {
    let path = ns.path();
    // EINVAL: no longer a mount point, another cleaner was faster.
    match umount2(&path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(error) => return Err(error).with_context(|| format!("unmounting {}", path.display())),
    }
    match fs::remove_file(&path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("removing {}", path.display())),
    }
}

/// Kills until nothing is left: a process may fork between the look and the kill.
fn kill_inside(namespaces: &[Ns]) -> Result<()> {
    let inodes: HashSet<(u64, u64)> = namespaces
        .iter()
        .filter_map(|ns| fs::metadata(ns.path()).ok())
        .map(|meta| (meta.dev(), meta.ino()))
        .collect();
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let pids = processes_in(&inodes);
        if pids.is_empty() {
            return Ok(());
        }
        for pid in &pids {
            match kill(*pid, Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error).with_context(|| format!("killing process {pid}")),
            }
        }
        anyhow::ensure!(Instant::now() < deadline, "processes {pids:?} do not die");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn processes_in(inodes: &HashSet<(u64, u64)>) -> Vec<Pid> {
    let own = Pid::this();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter(|pid| *pid != own)
        // A zombie has no namespace any more, so this ends by itself.
        .filter(|pid| {
            fs::metadata(format!("/proc/{pid}/ns/net"))
                .is_ok_and(|meta| inodes.contains(&(meta.dev(), meta.ino())))
        })
        .collect()
}
