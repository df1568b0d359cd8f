//! Removes the installation: the configuration first, so that no runtime calls a program that is about to be removed.

use super::config::{has_plugins, take_out};
use super::copy;
use super::desired::Desired;
use super::entry::{PLUGIN, is_ours};
use super::files;
use super::insert::without;
use super::listing::{self, Listing, Unread};
use super::unfinished;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_cni::http;
use weir_cni::plugin::LOG_SOCKET;

/// Maximum number of attempts per file while another writer replaces it.
const LOOKS: u32 = 5;
/// A running agent answers within this time, unless it hangs.
const ANSWER: Duration = Duration::from_secs(2);

/// A remaining part of the installation on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The file.
    pub path: PathBuf,
    /// A description of its content.
    pub what: &'static str,
    /// It is unknown whether it contains a part of the installation.
    pub unknown: bool,
}

/// The result of a removal.
#[derive(Debug, Default)]
pub struct Removed {
    /// Texts about what was done.
    pub done: Vec<String>,
    /// Texts about files that cannot be read, and may have an entry of the plugin.
    pub unknown: Vec<String>,
}

/// Checks that no agent runs on this node, which would immediately reinstall what is removed.
///
/// # Errors
/// An agent runs, or that is not known; with the remedy.
pub fn check_alone(desired: &Desired) -> Result<(), String> {
    let socket = desired.kubeconfig.with_file_name(LOG_SOCKET);
    match http::get(&socket, "/", ANSWER) {
        Ok(_) => {}
        // Nothing listens there.
        Err(e) if files::is_absence(&e) || e.kind() == ErrorKind::ConnectionRefused => {
            return Ok(());
        }
        // The agent accepted the connection.
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::TimedOut
                    | ErrorKind::InvalidData
                    | ErrorKind::UnexpectedEof
                    | ErrorKind::ConnectionReset
                    | ErrorKind::BrokenPipe
            ) => {}
        Err(e) => {
            return Err(format!(
                "it is unknown whether an agent runs on this node ({}: {e}): nothing was removed; try again",
                socket.display()
            ));
        }
    }
    Err(format!(
        "an agent runs on this node ({} answers), and would immediately reinstall everything: nothing was removed; delete \
         its DaemonSet or end its process, and try again when it has ended",
        socket.display()
    ))
}

/// Lists the parts of the installation on the node, and files that may have one and cannot be read.
///
/// # Errors
/// The directory of configurations cannot be read, or it is not known whether a file exists.
pub fn left(desired: &Desired) -> Result<Vec<Left>, String> {
    let mut found = ours(&listed(desired)?);
    for (path, what) in [
        (desired.kubeconfig.clone(), "the plugin's kubeconfig"),
        (desired.own_names(), "names of lists of our own"),
        (desired.bin_dir.join(PLUGIN), "the plugin's program"),
    ] {
        match files::exists(&path) {
            Ok(true) => found.push(known(path, what)),
            Ok(false) => {}
            Err(e) => return Err(format!("cannot read {}: {e}", path.display())),
        }
    }
    let unfinished = unfinished::left(desired)?.into_iter();
    found.extend(unfinished.map(|path| known(path, "an unfinished file of an agent")));
    Ok(found)
}

fn known(path: PathBuf, what: &'static str) -> Left {
    let unknown = false;
    Left {
        path,
        what,
        unknown,
    }
}

/// Lists the configurations. A directory that does not exist, or was deleted on the node, has none. Where the directory of
/// programs is missing as well, both may be seen elsewhere.
fn listed(desired: &Desired) -> Result<Listing, String> {
    let dir = &desired.net_dir;
    let is_gone = match std::fs::metadata(dir) {
        Ok(meta) => meta.nlink() == 0,
        Err(e) => files::is_absence(&e) && desired.bin_dir.is_dir(),
    };
    if is_gone {
        return Ok(Listing::default());
    }
    listing::list(dir).map_err(|e| {
        format!(
            "cannot read {}: {e}; MOUNTED_CNI_NET_DIR names the directory",
            dir.display()
        )
    })
}

/// Returns the configurations that have an entry of ours, or may have one, including those that a runtime would not load.
fn ours(listing: &Listing) -> Vec<Left> {
    let valid = listing.valid.iter().map(|(path, _)| path);
    let mut paths: Vec<&PathBuf> = valid
        .chain(listing.invalid.iter().map(|(path, _)| path))
        .collect();
    paths.sort();
    let left = |path: &PathBuf| {
        match listing::read_json(path) {
            Ok(json) if is_ours(&json) || copy::has_ours(&json) => {
                Some(known(path.clone(), "an entry of the plugin"))
            }
            Ok(_) | Err(Unread::Json(_)) => None,
            // Not a file, or removed in the meantime.
            Err(Unread::File(e))
                if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) =>
            {
                None
            }
            Err(Unread::File(_)) => Some(Left {
                path: path.clone(),
                what: "it cannot be read, and may contain an entry of the plugin",
                unknown: true,
            }),
        }
    };
    paths.into_iter().filter_map(left).collect()
}

/// Removes our entries from all configurations that can be read, then the kubeconfig, then the program unless it is to be kept.
/// An unreadable file of another component does not keep the token of the kubeconfig alive.
///
/// # Errors
/// The first step that failed; the steps after it are not done. A failed configuration does not prevent the others.
pub fn remove_everything(desired: &Desired) -> Result<Removed, String> {
    let mut removed = from_configurations(desired, None)?;
    removed.done.extend(credentials_and_program(desired)?);
    Ok(removed)
}

/// Removes our entries from all configurations, and from `written`, which may no longer be JSON: that is an error.
fn from_configurations(desired: &Desired, written: Option<&Path>) -> Result<Removed, String> {
    let listing = listed(desired)?;
    let mut copies: Vec<PathBuf> = copy::left(desired, &listing)
        .map_err(|e| e.to_string())?
        .into_iter()
        .map(Path::to_owned)
        .collect();
    copies.extend(
        desired
            .owned
            .as_ref()
            .map(|name| desired.net_dir.join(name)),
    );
    let (mut removed, mut failed) = (Removed::default(), Vec::new());
    let ours = ours(&listing).into_iter().map(|left| left.path);
    let mut paths: Vec<PathBuf> = ours.chain(written.map(Path::to_owned)).collect();
    paths.sort();
    paths.dedup();
    for path in paths {
        match from_configuration(&path, copies.contains(&path)) {
            Ok(done) => removed.done.extend(done),
            Err((why, true)) => removed.unknown.push(why),
            Err((why, false)) => failed.push(why),
        }
    }
    if failed.is_empty()
        && let Err(why) = delete(&desired.own_names(), "the file")
    {
        failed.push(why);
    }
    if failed.is_empty() {
        return Ok(removed);
    }
    failed.extend(removed.unknown.into_iter().chain(removed.done));
    Err(failed.join("; "))
}

/// Removes the installation at shutdown: as [`remove_everything`] if a configuration was written. Our own configuration is
/// removed whatever its content. Earlier entries in others are removed too: without the kubeconfig every pod would fail.
pub(super) fn remove_installed(
    desired: &Desired,
    written: Option<&Path>,
) -> Result<Removed, String> {
    let mut done = Vec::new();
    let Some(path) = written else {
        done.extend(credentials_and_program(desired)?);
        let unknown = Vec::new();
        return Ok(Removed { done, unknown });
    };
    let is_our_own = !desired.chained || desired.owned.is_some();
    if is_our_own {
        done.extend(delete(path, "configuration")?);
    }
    let removed = from_configurations(desired, Some(path))?;
    done.extend(removed.done);
    done.extend(credentials_and_program(desired)?);
    let unknown = removed.unknown;
    Ok(Removed { done, unknown })
}

fn credentials_and_program(desired: &Desired) -> Result<Vec<String>, String> {
    let mut done = Vec::new();
    done.extend(delete(&desired.kubeconfig, "kubeconfig")?);
    let program = desired.bin_dir.join(PLUGIN);
    if !desired.keep_plugin {
        done.extend(delete(&program, "program")?);
    } else if program.exists() {
        done.push(format!("{} stays: a runtime may still call it to delete pods; WEIR_KEEP_PLUGIN=false removes it", program.display()));
    }
    // An unfinished file may contain a token.
    let mut failed = unfinished::tidy_all(desired);
    failed.extend(unfinished::tidy_copies(&program));
    match failed.is_empty() {
        true => Ok(done),
        false => Err(failed.join("; ")),
    }
}

/// Removes our entry from one file. Deletes the file if it is a copy of another one, or has nothing but our entry: a list
/// without plugins would stop a runtime. The error comes with true if the file cannot be read, so that it is not known whether it
/// has an entry.
fn from_configuration(path: &Path, is_copy: bool) -> Result<Option<String>, (String, bool)> {
    let fail = |e: &dyn std::fmt::Display| {
        let path = path.display();
        let why = format!("cannot remove our entry from {path}: {e}; the file is unchanged");
        (why, false)
    };
    let unread = |e: std::io::Error| {
        let path = path.display();
        let why = format!("{path} cannot be read, and may contain an entry of the plugin: {e}");
        (why, true)
    };
    let delete = |path| delete(path, "configuration").map_err(|why| (why, false));
    for _ in 0..LOOKS {
        let json = match listing::read_json(path) {
            Err(Unread::File(e)) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(Unread::File(e)) => return Err(unread(e)),
            other => other.map_err(|e| fail(&e))?,
        };
        if is_ours(&json) || is_copy {
            return delete(path);
        }
        // A file that another component replaced needs no further check.
        if !copy::has_ours(&json) {
            return Ok(None);
        }
        let Some(list) = without(json).map_err(|e| fail(&e))? else {
            return Ok(None);
        };
        if !has_plugins(&list) {
            return delete(path);
        }
        let mode = files::mode(path).map_err(|e| fail(&e))?;
        if take_out(path, &list.pretty(), mode).map_err(|e| fail(&e))? {
            return Ok(Some(format!(
                "our entry is removed from {}",
                path.display()
            )));
        }
    }
    Err(fail(&"another writer keeps replacing it"))
}

fn delete(path: &Path, what: &str) -> Result<Option<String>, String> {
    match files::remove(path) {
        Ok(true) => Ok(Some(format!("{what} {} is removed", path.display()))),
        Ok(false) => Ok(None),
        Err(e) => Err(format!("cannot remove {what} {}: {e}", path.display())),
    }
}

#[cfg(test)]
mod tests;
