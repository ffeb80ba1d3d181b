//! Programs out of the object: one instance per interface, with the link as a constant.
//!
//! The object is loaded once per interface, because a constant costs a packet nothing; all
//! instances share the pinned maps. Only the maps' descriptors and the programs' survive here,
//! so an instance costs the agent no memory once it is attached.

use aya::programs::{ProgramError, RawTracePoint, SchedClassifier, Xdp};
use aya::{Ebpf, EbpfLoader};
use lb_common::abi::Link;

use super::maps::{self, MAPS};
use super::{LoadError, Pins};

/// Ingress, for drivers whose frames are one piece.
pub(super) const XDP: &str = "sluice_xdp";
/// Ingress, for drivers whose frames may be several.
pub(super) const XDP_FRAGS: &str = "sluice_xdp_frags";
/// Egress.
pub(super) const EGRESS: &str = "sluice_egress";
/// Sends a frame; run by the agent only.
pub(super) const EMIT: &str = "sluice_emit";
/// Sweeps the flows; run by the agent only.
pub(super) const SWEEP: &str = "sluice_sweep";

/// Loads the object against the pinned maps.
pub(super) fn load_object(
    object: &[u8],
    pins: &Pins,
    link: Option<&Link>,
) -> Result<Ebpf, LoadError> {
    if object.is_empty() {
        return Err(LoadError::NoObject);
    }
    let mut loader = EbpfLoader::new();
    // No program reads kernel structures, so the kernel's own types are not needed.
    loader.btf(None);
    for shape in MAPS {
        loader.map_pin_path(shape.name, pins.map(shape.name));
    }
    if let Some(link) = link {
        loader.override_global("LINK", link, true);
    }
    let ebpf = loader
        .load(object)
        .map_err(|error| LoadError::Object(Box::new(error)))?;
    maps::check_known(&ebpf)?;
    Ok(ebpf)
}

/// One XDP program, loaded.
pub(super) fn xdp<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, LoadError> {
    let program = ebpf.program_mut(name).ok_or(LoadError::Missing {
        what: "program",
        name,
    })?;
    let program: &mut Xdp = program.try_into().map_err(LoadError::program(name))?;
    program.load().map_err(refused(name))?;
    Ok(program)
}

/// One program that only the agent runs, loaded.
pub(super) fn tool(ebpf: &mut Ebpf, name: &'static str) -> Result<(), LoadError> {
    let program = ebpf.program_mut(name).ok_or(LoadError::Missing {
        what: "program",
        name,
    })?;
    let program: &mut RawTracePoint = program.try_into().map_err(LoadError::program(name))?;
    program.load().map_err(refused(name))
}

/// One classifier, loaded.
pub(super) fn classifier<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, LoadError> {
    let program = ebpf.program_mut(name).ok_or(LoadError::Missing {
        what: "program",
        name,
    })?;
    let program: &mut SchedClassifier = program.try_into().map_err(LoadError::program(name))?;
    program.load().map_err(refused(name))?;
    Ok(program)
}

/// The verifier's log may be megabytes; its last lines say why.
fn refused(program: &'static str) -> impl FnOnce(ProgramError) -> LoadError {
    const LINES: usize = 12;
    move |error| {
        let ProgramError::LoadError {
            io_error,
            verifier_log,
        } = error
        else {
            return LoadError::program(program)(error);
        };
        let log = verifier_log.to_string();
        let lines: Vec<&str> = log.lines().collect();
        let log = lines[lines.len().saturating_sub(LINES)..].join("\n");
        LoadError::Refused {
            program,
            source: io_error,
            log,
        }
    }
}
