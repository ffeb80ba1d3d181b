//! `sluice detach`: takes everything out of the kernel that Sluice ever placed, and nothing else.

use std::path::PathBuf;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::load::{DEFAULT_PIN_DIR, detach_all};

/// Arguments of `sluice detach`.
#[derive(Args, Clone, Debug)]
pub struct DetachArgs {
    /// Where maps and links are pinned
    #[arg(long, env = "SLUICE_PIN_DIR", value_name = "DIR", default_value = DEFAULT_PIN_DIR)]
    pub pin_dir: PathBuf,
    /// Then wait for SIGTERM: for a DaemonSet, whose pods have to stay
    #[arg(long)]
    pub stay: bool,
}

/// Detaches, and says what went.
pub fn run(args: &DetachArgs) -> anyhow::Result<String> {
    let removed = detach_all(&args.pin_dir)?;
    let mut text = format!(
        "removed {} links, {} maps and {} neighbour entries",
        removed.links.len(),
        removed.maps.len(),
        removed.neighbours
    );
    for left in &removed.left {
        text.push_str("\nleft alone, not ours: ");
        text.push_str(&left.display().to_string());
    }
    if let Some(interface) = &removed.other_agent {
        text.push_str("\nleft alone, for another agent's program is on ");
        text.push_str(interface);
        text.push_str(": neighbour entries");
    }
    if args.stay {
        println!("{text}");
        text = stay()?;
    }
    Ok(text)
}

/// Waits until it is asked to end.
fn stay() -> anyhow::Result<String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            Ok("told to end".to_owned())
        })
}
