//! Errors over time as an SVG: one panel for each contestant, all of one scenario.

use anyhow::{Context as _, Result, anyhow};
use lab::report::BUCKET_MS;
use lab::rollout::Event;
use plotters::prelude::*;

use super::table::{Row, Rows};

const SIZE: (u32, u32) = (860, 480);
const BEFORE: RGBColor = RGBColor(200, 40, 40);
const AFTER: RGBColor = RGBColor(230, 160, 30);
const STOP: RGBColor = RGBColor(90, 90, 160);

/// Draws the scenario in which the others lost most.
pub(super) fn draw(rows: &Rows) -> Result<String> {
    let worst = rows
        .rows
        .iter()
        .max_by_key(|row| row.outcome.report.total().before())
        .context("nothing was run")?;
    let panels: Vec<_> = rows
        .rows
        .iter()
        .filter(|row| {
            let (one, other) = (row.scenario, worst.scenario);
            (one.kind, one.delay, one.kill_agent) == (other.kind, other.delay, other.kill_agent)
        })
        .collect();
    let mut svg = String::new();
    paint(&mut svg, &panels).map_err(|error| anyhow!("drawing: {error}"))?;
    Ok(svg)
}

type Painted = Result<(), Box<dyn std::error::Error>>;

fn paint(svg: &mut String, panels: &[&Row]) -> Painted {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let title = panels.first().map_or(String::new(), |row| {
        format!(
            "Failed connections in a rolling update: {} (lines: a pod stops)",
            row.scenario.short()
        )
    });
    let area = area.titled(&title, ("sans-serif", 18))?;
    let series: Vec<_> = panels.iter().map(|row| series(row)).collect();
    let seconds = series.iter().flatten().map(|bar| bar.0).fold(1.0, f64::max);
    let most = series
        .iter()
        .flatten()
        .map(|bar| bar.1 + bar.2)
        .fold(1.0, f64::max);
    for ((panel, row), bars) in area
        .split_evenly((panels.len(), 1))
        .iter()
        .zip(panels)
        .zip(&series)
    {
        let total = row.outcome.report.total();
        let caption = format!(
            "{}: {} of {} failed before SYN-ACK (red), {} after (amber)",
            row.contestant,
            total.before(),
            row.outcome.report.tcp().attempts,
            total.after()
        );
        let mut chart = ChartBuilder::on(panel)
            .caption(caption, ("sans-serif", 14))
            .margin(6)
            .x_label_area_size(22)
            .y_label_area_size(40)
            .build_cartesian_2d(0.0..seconds, 0.0..most * 1.1)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_desc("per 0.1 s")
            .x_desc("seconds")
            .draw()?;
        let start = row.outcome.report.started_ms;
        chart.draw_series(row.outcome.rollout.events.iter().filter_map(|(at, event)| {
            let second = at.saturating_sub(start) as f64 / 1e3;
            matches!(event, Event::Stopped(_))
                .then(|| PathElement::new([(second, 0.0), (second, most * 1.1)], STOP))
        }))?;
        let width = BUCKET_MS as f64 / 1e3;
        chart.draw_series(bars.iter().flat_map(|&(at, before, after)| {
            [
                Rectangle::new([(at, 0.0), (at + width, before)], BEFORE.filled()),
                Rectangle::new([(at, before), (at + width, before + after)], AFTER.filled()),
            ]
        }))?;
    }
    area.present()?;
    Ok(())
}

/// Second, failed before, failed after.
fn series(row: &Row) -> Vec<(f64, f64, f64)> {
    let report = &row.outcome.report;
    let first = report.started_ms / BUCKET_MS;
    report
        .timeline
        .iter()
        .map(|(bucket, counts)| {
            (
                bucket.saturating_sub(first) as f64 * BUCKET_MS as f64 / 1e3,
                counts.before as f64,
                counts.after as f64,
            )
        })
        .collect()
}
