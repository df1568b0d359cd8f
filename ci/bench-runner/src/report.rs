//! The report: a table for people, and JSON for comparing runs.

use std::path::Path;

use serde_json::{Value, json};

use crate::figures;
use crate::stats::{Ratio, median};

/// All measurements of a run.
#[derive(Default)]
pub(crate) struct Report {
    arms: Vec<Value>,
    goals: Vec<Value>,
    missed: usize,
}

impl Report {
    pub(crate) fn heading(text: &str) {
        println!("\n{text}");
    }

    /// Adds the samples of one way; prints the median, and the range from the 5th to the 95th percentile.
    pub(crate) fn arm(&mut self, name: &str, unit: &str, samples: &[f64]) {
        self.cell(None, name, unit, samples);
    }

    /// As [`Report::arm`], for a column of the table with a row per way.
    pub(crate) fn cell(&mut self, column: Option<&str>, name: &str, unit: &str, samples: &[f64]) {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| sorted[(share * (sorted.len() - 1) as f64) as usize];
        let (middle, low, high) = (median(samples), at(0.05), at(0.95));
        println!(
            "  {name:<46} {middle:9.0} {unit:<5} ({low:.0} to {high:.0}, n={})",
            samples.len()
        );
        self.arms.push(
            json!({"name": name, "column": column, "unit": unit, "median": middle, "p5": low,
                              "p95": high, "samples": samples}),
        );
    }

    /// Adds a ratio with its goal.
    pub(crate) fn goal(&mut self, name: &str, ratio: Ratio, goal: Goal) {
        let Ratio { value, low, high } = ratio;
        let (met, text) = match goal {
            Goal::AtMost(limit) => (value <= limit, format!("<= {limit}")),
            Goal::AtLeast(limit) => (value >= limit, format!(">= {limit}")),
        };
        let verdict = if met { "met" } else { "MISSED" };
        println!("  {name:<46} {value:9.2}       ({low:.2} to {high:.2}), goal {text}: {verdict}");
        self.missed += usize::from(!met);
        self.goals.push(
            json!({"name": name, "ratio": value, "low": low, "high": high,
                               "goal": text, "met": met}),
        );
    }

    /// Adds a number that explains the preceding ratio.
    pub(crate) fn fact(&mut self, name: &str, value: f64) {
        println!("  {name:<46} {value:9.2}");
        if let Some(goal) = self.goals.last_mut() {
            goal[name.trim()] = json!(value);
        }
    }

    /// Writes the samples and verdicts; returns the number of missed goals.
    pub(crate) fn write(self, path: &Path, is_quick: bool) -> Result<usize, String> {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        let value = json!({"kernel": kernel.trim(), "cpus": cpus, "is_quick": is_quick,
                           "arms": self.arms, "goals": self.goals});
        std::fs::write(path, format!("{value:#}\n"))
            .map_err(|e| format!("{}: {e}", path.display()))?;
        println!("\nAll samples: {}", path.display());
        let names = self.goals.iter().filter_map(|goal| goal["name"].as_str());
        let unknown: Vec<&str> = names.filter(|name| !figures::has(name)).collect();
        match unknown[..] {
            [] => Ok(self.missed),
            _ => Err(format!(
                "no table of src/figures.rs has a row for {unknown:?}"
            )),
        }
    }
}

/// The bound of a ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}
