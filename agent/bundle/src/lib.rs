//! `weir preflight --bundle`: what support needs to know of a node, in one file, without secrets.
//!
//! `collect` asks for every part. Of what others write, configurations, rules and log files, only what
//! is known is taken. `secrets` is a second net, for sentences, and
//! `archive` makes a tar with a manifest of it. A part that cannot be had is in the archive all the same,
//! as a line that says why: one failure never costs the rest.
#![forbid(unsafe_code)]

mod archive;
mod assignments;
mod collect;
mod configuration;
mod files;
mod forms;
mod lines;
mod messages;
mod node;
mod rules;
mod ruleset;
mod running;
mod secrets;

pub use archive::Bundle;

use assignments::Form;
use weir_core::settings::Resolved;
use weir_netlink::Netns;

/// Bytes of one part at most; what is longer is cut at its end.
const LIMIT: usize = 8 << 20;

/// One file of the archive.
#[derive(Debug)]
struct Part {
    /// Its path there.
    name: String,
    /// Its text, or why there is none.
    text: Result<String, String>,
    form: Form,
}

impl Part {
    fn new(name: impl Into<String>, text: Result<String, String>) -> Self {
        let (name, form) = (name.into(), Form::Prose);
        Self { name, text, form }
    }

    /// Configuration of another program, in which every value of a secret's name is one.
    fn configuration(name: impl Into<String>, text: Result<String, String>) -> Self {
        let (name, form) = (name.into(), Form::Configuration);
        Self { name, text, form }
    }
}

/// Asks for everything. `netns` is a further namespace whose rules are wanted, or why it cannot be had; `progress`
/// hears what takes long.
///
/// # Errors
/// The archive cannot be made in memory.
pub fn make(
    own: &Resolved,
    netns: Option<Result<Netns, String>>,
    progress: impl Fn(&str) + Sync,
) -> std::io::Result<Bundle> {
    let (parts, secrets) = collect::collect(own, netns, progress);
    archive::pack(parts, &secrets)
}
