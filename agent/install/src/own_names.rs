//! Under which names agents wrote lists of their own on this node, until these are gone: an agent with another setting,
//! and `weir uninstall`, tell by it a copy from the network's own file that an agent extended.

use super::copy::{has_ours, name_of};
use super::desired::Desired;
use super::files;
use super::listing::Listing;
use std::io;

/// Beside the kubeconfig: names, one a line. Where it is gone, as after the node has started again, only the usual names tell,
/// see [`super::copy::left`].
pub(super) const FILE: &str = "owned-names";

/// The names; none where they cannot be read.
pub(super) fn read(desired: &Desired) -> Vec<String> {
    let text = files::read_text(&desired.own_names()).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Keeps the names of lists that have an entry of ours, and the one that is about to be written. To be called before a
/// pass writes anything: a list of that name that has no entry is another component's by now.
pub(super) fn keep(desired: &Desired, listing: &Listing) -> io::Result<()> {
    let known = read(desired);
    let is_ours = |name: &String| {
        let mut found = listing.valid.iter();
        found.any(|(path, json)| name_of(path) == name && has_ours(json))
    };
    let is_other = |name: &String| desired.owned.as_ref() != Some(name);
    let kept = known.iter().filter(|name| is_other(name) && is_ours(name));
    let names: Vec<String> = kept.chain(&desired.owned).cloned().collect();
    let path = desired.own_names();
    if names == known {
        return Ok(());
    }
    if names.is_empty() {
        return files::remove(&path).map(drop);
    }
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    files::replace(&path, format!("{}\n", names.join("\n")).as_bytes(), 0o600)
}
