//! Loading the programs of an object, and reading back what the kernel knows of them.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use aya::programs::{Program as AyaProgram, ProgramError};
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};

use super::{Program, logs};
use crate::objects::Object;

/// How much of a refusal's log goes to the terminal.
const LAST_LINES: usize = 25;

/// Loads each program on its own; nothing is attached or pinned, and all is gone on return.
pub(super) fn programs(object: &Object) -> Result<Vec<Program>> {
    let path = object.path();
    let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
    let mut ebpf = EbpfLoader::new()
        .verifier_log_level(VerifierLogLevel::VERBOSE | VerifierLogLevel::STATS)
        .load(&bytes)
        .with_context(|| format!("creating the maps of {}", path.display()))?;
    let mut programs = measure(object, &mut ebpf)?;
    if programs.is_empty() {
        // It would pass every budget.
        bail!("{} contains no program", path.display());
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

fn measure(object: &Object, ebpf: &mut Ebpf) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for (name, program) in ebpf.programs_mut() {
        let started = Instant::now();
        let (kind, loaded) = load(program);
        let load = started.elapsed();
        if let Err(error) = loaded {
            return Err(refusal(object, name, error));
        }
        let info = program
            .info()
            .with_context(|| format!("reading back {name}"))?;
        programs.push(Program {
            name: name.to_owned(),
            kind: kind.to_owned(),
            verified: info
                .verified_instruction_count()
                .context("this kernel does not count verified instructions (5.16 does)")?,
            translated: info.size_translated().unwrap_or(0),
            jited: info.size_jitted(),
            load,
        });
    }
    Ok(programs)
}

fn load(program: &mut AyaProgram) -> (&'static str, Result<(), ProgramError>) {
    if let AyaProgram::Xdp(program) = program {
        ("xdp", program.load())
    } else if let AyaProgram::SchedClassifier(program) = program {
        ("classifier", program.load())
    } else if let AyaProgram::RawTracePoint(program) = program {
        ("raw tracepoint", program.load())
    } else {
        ("?", Err(ProgramError::UnexpectedProgramType))
    }
}

/// The end of the verifier's log says why; the whole goes to a file.
fn refusal(object: &Object, name: &str, error: ProgramError) -> anyhow::Error {
    let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = error
    else {
        return anyhow::Error::from(error).context(format!("loading {name}"));
    };
    let log = verifier_log.to_string();
    let path = logs().join(format!("{}-{name}.refused.log", object.bin));
    let saved = fs::create_dir_all(logs()).and_then(|()| fs::write(&path, &log));
    let lines: Vec<&str> = log.lines().collect();
    for line in lines.iter().skip(lines.len().saturating_sub(LAST_LINES)) {
        println!("    {line}");
    }
    match saved {
        Ok(()) => println!("    (the whole log: {})", path.display()),
        Err(error) => println!("    (the whole log could not be kept: {error})"),
    }
    anyhow::anyhow!("the kernel refused {name}: {io_error}")
}
