//! Paths of the node, as seen by a process that may run in a container.

use super::place::{Processes, proc_of_node};
use crate::settings::Resolved;
use std::path::{Path, PathBuf};

/// Returns the mount of the host's `/proc`, and the path of the host's network namespace if it is not this process's own.
pub fn netns_of(r: &Resolved) -> (PathBuf, Option<PathBuf>) {
    let proc = proc_of_node();
    let of_first = r
        .bool("ALLOW_SWITCH_TO_HOST_NS")
        .then(|| proc.join("1/ns/net"));
    let said = Some(r.text("WEIR_HOST_NETNS")).filter(|path| !path.is_empty());
    (proc.to_owned(), said.map(PathBuf::from).or(of_first))
}

/// Returns this absolute path if `is_it` accepts it, otherwise the path through the root of the node's first process if that
/// is accepted: a container has its own file systems.
pub fn seen(own: &Path, is_it: impl Fn(&Path) -> bool) -> PathBuf {
    let of_node = Processes::of_node().root_of_node();
    let of_node = of_node.join(own.strip_prefix("/").unwrap_or(own));
    match !is_it(own) && is_it(&of_node) {
        true => of_node,
        false => own.to_owned(),
    }
}
