//! The message of a test that the kernel lacks a feature. The kernel matrix parses it, and counts it as a failure on a
//! kernel that must have the feature.

use std::fmt::Display;

/// Prints the message. `probe`: the feature, in the terms of `weir preflight` or nft. `since`: the first kernel that must
/// have it. `reason`: the error of the kernel.
pub fn skip(probe: &str, since: &str, reason: impl Display) {
    let reason = reason.to_string();
    let reason = reason.lines().next().unwrap_or_default();
    println!("skipped: {probe} (since {since}): {reason}");
}
