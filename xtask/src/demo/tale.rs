//! What happens now, a line each: what is done to the pods, and what each second brought the clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lab::load::Second;
use lab::rollout::Event;

use crate::run;

/// Times are told from the load's start; two threads tell.
#[derive(Clone, Debug, Default)]
pub(super) struct Tale {
    start_ms: Arc<AtomicU64>,
}

impl Tale {
    pub(super) fn event(&self, at_ms: u64, event: &Event) {
        let text = match event {
            Event::Started(pod) => format!("{pod} listens, and is listed"),
            Event::Stopped(pod) => format!("{pod} IS TOLD TO END; nobody else knows yet"),
            Event::ListedTerminating(pod) => format!("the list says that {pod} ends"),
            Event::Unlisted(pod) => format!("the list has forgotten {pod}"),
        };
        self.line(at_ms, &text);
    }

    pub(super) fn second(&self, second: Second) {
        if second.attempts == 0 && self.start_ms.load(Ordering::Relaxed) == 0 {
            self.line(second.at_ms, "the load starts");
            return;
        }
        self.line(second.at_ms, &brought(second));
    }

    fn line(&self, at_ms: u64, text: &str) {
        // The first line is the zero of all others, whoever tells it.
        let first = self
            .start_ms
            .compare_exchange(0, at_ms, Ordering::Relaxed, Ordering::Relaxed);
        let start = first.unwrap_or_else(|start| start);
        let start = if start == 0 { at_ms } else { start };
        let seconds = at_ms.saturating_sub(start) as f64 / 1e3;
        run::note(&format!("    {seconds:5.1} s  {text}"));
    }
}

/// A mark for each two in a hundred that failed, so that it can be seen from afar.
fn brought(second: Second) -> String {
    let Second {
        attempts,
        before,
        after,
        lost,
        ..
    } = second;
    let marks = (before * 50).div_ceil(attempts.max(1)).min(50) as usize;
    let mut text = format!(
        "    {attempts:>5} tries {before:>5} failed  {}",
        "#".repeat(marks)
    );
    for (count, what) in [(after, "broke after SYN-ACK"), (lost, "UDP unanswered")] {
        if count > 0 {
            text = format!("{}  {count} {what}", text.trim_end());
        }
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_seen_from_afar_and_none_is_hidden() {
        let of = |attempts, before, after, lost| {
            brought(Second {
                at_ms: 0,
                attempts,
                before,
                after,
                lost,
            })
        };
        assert_eq!(of(100, 0, 0, 0), "      100 tries     0 failed");
        assert_eq!(of(100, 1, 0, 0), "      100 tries     1 failed  #");
        assert_eq!(
            of(100, 20, 3, 2),
            "      100 tries    20 failed  ##########  3 broke after SYN-ACK  2 UDP unanswered"
        );
        assert!(of(0, 7, 0, 0).contains("7 failed  ##"), "counted when seen");
    }
}
