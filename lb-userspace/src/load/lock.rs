//! One agent per pin directory: a lock on the directory itself.
//!
//! A bpf filesystem holds no ordinary files, but its folders can be locked like any other. The
//! kernel lets go of the lock when the process ends, however it ends.

use std::fs::File;
use std::os::linux::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::LoadError;

/// Held for as long as the pins are ours.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Takes the lock on a folder, or says who has it.
    pub fn take(folder: &Path) -> Result<Self, LoadError> {
        // A second try when the folder was removed (and made again) between opening and locking.
        for _ in 0..2 {
            let file = File::open(folder).map_err(LoadError::io(folder))?;
            let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((file, Errno::EWOULDBLOCK)) => {
                    let pid = file.metadata().ok().and_then(|meta| holder(meta.st_ino()));
                    return Err(LoadError::Busy {
                        path: folder.to_owned(),
                        pid,
                    });
                }
                Err((_, errno)) => return Err(LoadError::io(folder)(errno.into())),
            };
            let locked = file.metadata().map_err(LoadError::io(folder))?.st_ino();
            let there = std::fs::metadata(folder).map(|meta| meta.st_ino()).ok();
            if there == Some(locked) {
                return Ok(Self { _file: file });
            }
        }
        Err(LoadError::Busy {
            path: folder.to_owned(),
            pid: None,
        })
    }
}

/// Who locks this inode, by `/proc/locks`: `1: FLOCK ADVISORY WRITE 4711 00:1b:5 0 EOF`.
fn holder(inode: u64) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let inode = inode.to_string();
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let flock = words.next()? == "FLOCK";
        let pid = words.nth(2)?.parse().ok()?;
        let same = words.next()?.rsplit(':').next()? == inode;
        (flock && same).then_some(pid)
    })
}
