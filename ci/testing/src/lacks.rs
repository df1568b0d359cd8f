//! What a test says when the kernel lacks what it is about: the kernel matrix reads it, and counts it as a failure
//! on a kernel that must have it.

use std::fmt::Display;

/// `probe`: what was tried, as `weir preflight` or nft names it. `since`: the first kernel that must have it. `reason`:
/// what the kernel said.
pub fn skip(probe: &str, since: &str, reason: impl Display) {
    let reason = reason.to_string();
    let reason = reason.lines().next().unwrap_or_default();
    println!("skipped: {probe} (since {since}): {reason}");
}
