//! What takes more than a moment says so: one line that changes on a terminal, nothing elsewhere.
use crate::program;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::io::Write;

/// A line that has to be read, also in a log. Commands in it are those of `weir-vm`.
pub fn note(text: &str) {
    // In one piece: other processes may write to the same place.
    let line = format!("{}: {}\n", program::name(), program::renamed(text));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Shows how much of `total` bytes (0: not known) is done; goes when it is dropped.
pub(crate) fn bar(what: String, total: u64) -> ProgressBar {
    let form = match total {
        0 => "{msg}: {bytes}",
        _ => "{msg}: {bytes} of {total_bytes}",
    };
    let style = ProgressStyle::with_template(form);
    ProgressBar::new(total)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        .with_message(what)
        .with_finish(ProgressFinish::AndClear)
}
