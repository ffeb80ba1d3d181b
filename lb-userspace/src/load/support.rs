//! What must be there before anything is tried: rights and a kernel new enough.

use super::LoadError;

/// Capabilities by bit, as in `CapEff` of `/proc/self/status`.
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// TCX links came with this kernel.
const OLDEST: (u32, u32) = (6, 6);

/// Checks rights and kernel, and says what is missing.
pub fn check_support() -> Result<(), LoadError> {
    check_rights(effective())?;
    check_kernel(&release())
}

fn check_rights(effective: u64) -> Result<(), LoadError> {
    let has = |capability: u32| effective >> capability & 1 == 1;
    let wanted = [
        (CAP_NET_ADMIN, "CAP_NET_ADMIN", false),
        (CAP_BPF, "CAP_BPF", true),
        (CAP_PERFMON, "CAP_PERFMON", true),
    ];
    let missing: Vec<&str> = wanted
        .into_iter()
        // CAP_SYS_ADMIN includes the two that were split from it.
        .filter(|(bit, _, split)| !(has(*bit) || *split && has(CAP_SYS_ADMIN)))
        .map(|(_, name, _)| name)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(LoadError::NoRights {
            missing: missing.join(", "),
        })
    }
}

fn check_kernel(release: &str) -> Result<(), LoadError> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse::<u32>().unwrap_or_default());
    let version = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    if version >= OLDEST {
        return Ok(());
    }
    let found = release.to_owned();
    Err(LoadError::OldKernel {
        found,
        wanted: "6.6",
        needs: "the egress program (TCX)",
    })
}

fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or_default()
}

fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rights_are_named() {
        assert!(check_rights(1 << CAP_NET_ADMIN | 1 << CAP_BPF | 1 << CAP_PERFMON).is_ok());
        assert!(check_rights(1 << CAP_NET_ADMIN | 1 << CAP_SYS_ADMIN).is_ok());
        let error = check_rights(1 << CAP_BPF)
            .expect_err("incomplete")
            .to_string();
        assert!(
            error.starts_with("missing CAP_NET_ADMIN, CAP_PERFMON: run as root"),
            "{error}"
        );
    }

    #[test]
    fn old_kernels_are_told_so() {
        assert!(check_kernel("6.18.44-fc").is_ok() && check_kernel("6.6.0").is_ok());
        assert!(check_kernel("7.0-rc1").is_ok());
        let error = check_kernel("5.15.0-91-generic")
            .expect_err("old")
            .to_string();
        assert!(
            error.contains("5.15.0-91-generic is too old") && error.contains("6.6"),
            "{error}"
        );
    }
}
