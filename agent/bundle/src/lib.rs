//! `weir preflight --bundle`: information about a node for support, in one file, without secrets.
//!
//! `collect` gathers the parts. From the content of other authors (configurations, rules, log files) only
//! known formats are kept. `secrets` additionally removes secrets from free text, and
//! `archive` writes a tar archive with a manifest. A part that cannot be read is represented
//! by a line with the reason; the other parts are not affected. Start with [`make`].
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

/// Maximum size of one part in bytes; longer parts are truncated.
const LIMIT: usize = 8 << 20;

/// One file of the archive.
#[derive(Debug)]
struct Part {
    /// Path in the archive.
    name: String,
    /// Its text, or the reason why it is missing.
    text: Result<String, String>,
    form: Form,
}

impl Part {
    fn new(name: impl Into<String>, text: Result<String, String>) -> Self {
        let (name, form) = (name.into(), Form::Prose);
        Self { name, text, form }
    }

    /// Configuration of another program, in which every value with the name of a secret is removed.
    fn configuration(name: impl Into<String>, text: Result<String, String>) -> Self {
        let (name, form) = (name.into(), Form::Configuration);
        Self { name, text, form }
    }
}

/// Collects everything. `netns` is an additional network namespace whose rules are included, or the reason why it cannot be
/// opened; `progress` is called with each slow step.
///
/// # Errors
/// The archive cannot be built in memory.
pub fn make(
    own: &Resolved,
    netns: Option<Result<Netns, String>>,
    progress: impl Fn(&str) + Sync,
) -> std::io::Result<Bundle> {
    let (parts, secrets) = collect::collect(own, netns, progress);
    archive::pack(parts, &secrets)
}
