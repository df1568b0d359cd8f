//! Records the names under which agents wrote their own lists on this node, until these are gone. By this record, an agent
//! with other settings and `weir uninstall` distinguish a copy from the network's own file that an agent extended.

use super::copy::{has_ours, name_of};
use super::desired::Desired;
use super::files;
use super::listing::Listing;
use std::io;

/// The record, next to the kubeconfig: one name per line. If it is missing, as after a reboot of the node, only the usual
/// names are known, see [`super::copy::left`].
pub(super) const FILE: &str = "owned-names";

/// Reads the names; none if there is no record, or it is not text.
///
/// # Errors
/// The record cannot be read; the error names it.
pub(super) fn read(desired: &Desired) -> io::Result<Vec<String>> {
    let path = desired.own_names();
    match files::read_text(&path) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(e) if files::is_absence(&e) || e.kind() == io::ErrorKind::InvalidData => Ok(Vec::new()),
        Err(e) => {
            let why = format!("{} cannot be read: {e}", path.display());
            Err(io::Error::new(e.kind(), why))
        }
    }
}

/// Keeps the names of lists that have an entry of ours, and adds the one that is about to be written. Must be called before
/// a pass writes anything: a list of that name without our entry now belongs to another component.
pub(super) fn keep(desired: &Desired, listing: &Listing) -> io::Result<()> {
    let known = read(desired)?;
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
    files::replace(&path, format!("{}\n", names.join("\n")).as_bytes(), 0o600).map(drop)
}
