//! Removes the installation: the configuration first, so that no runtime calls a program that is about to be removed.

use super::config::{has_plugins, take_out};
use super::copy;
use super::desired::Desired;
use super::entry::{PLUGIN, is_ours};
use super::files;
use super::insert::without;
use super::listing::{self, Unread};
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
}

/// Checks that no agent runs on this node, which would immediately reinstall what is removed.
///
/// # Errors
/// An agent runs; with the remedy.
pub fn check_alone(desired: &Desired) -> Result<(), String> {
    let socket = desired.kubeconfig.with_file_name(LOG_SOCKET);
    let answers = match http::get(&socket, "/", ANSWER) {
        Ok(_) => true,
        // The agent accepted the connection; other error kinds mean that nothing listens there.
        Err(e) => matches!(
            e.kind(),
            ErrorKind::TimedOut
                | ErrorKind::InvalidData
                | ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::BrokenPipe
        ),
    };
    if !answers {
        return Ok(());
    }
    Err(format!(
        "an agent runs on this node ({} answers), and would install again at once what is removed: nothing was removed; delete \
         its DaemonSet or end its process, and try again when it has ended",
        socket.display()
    ))
}

/// Lists the parts of the installation on the node.
///
/// # Errors
/// The directory of configurations cannot be read.
pub fn left(desired: &Desired) -> Result<Vec<Left>, String> {
    let configurations = ours(desired)?;
    let mut found: Vec<Left> = configurations
        .into_iter()
        .map(|path| Left {
            path,
            what: "an entry of the plugin",
        })
        .collect();
    if desired.kubeconfig.exists() {
        found.push(Left {
            path: desired.kubeconfig.clone(),
            what: "the plugin's kubeconfig",
        });
    }
    if desired.own_names().exists() {
        found.push(Left {
            path: desired.own_names(),
            what: "names of lists of our own",
        });
    }
    let program = desired.bin_dir.join(PLUGIN);
    if program.exists() {
        let what = "the plugin's program";
        found.push(Left {
            path: program,
            what,
        });
    }
    Ok(found)
}

/// Lists configurations with an entry of ours, including those that a runtime would not load.
fn ours(desired: &Desired) -> Result<Vec<PathBuf>, String> {
    let dir = &desired.net_dir;
    // A directory that was deleted on the node has no configurations.
    if std::fs::metadata(dir).is_ok_and(|meta| meta.nlink() == 0) {
        return Ok(Vec::new());
    }
    let listing = listing::list(dir).map_err(|e| {
        format!(
            "cannot read {}: {e}; MOUNTED_CNI_NET_DIR names the directory",
            dir.display()
        )
    })?;
    let broken = listing.invalid.into_iter().map(|(path, _)| path);
    let paths = listing
        .valid
        .into_iter()
        .map(|(path, _)| path)
        .chain(broken);
    let mut found: Vec<PathBuf> = paths.filter(|p| has_ours(p)).collect();
    found.sort();
    found.dedup();
    Ok(found)
}

fn has_ours(path: &Path) -> bool {
    listing::read_json(path).is_ok_and(|json| is_ours(&json) || copy::has_ours(&json))
}

/// Removes our entries from all configurations, then the kubeconfig, then the program unless it is to be kept.
/// Returns texts about what was done.
///
/// # Errors
/// The first step that failed; the steps after it are not done. A failed configuration does not prevent the others.
pub fn remove_everything(desired: &Desired) -> Result<Vec<String>, String> {
    let mut done = from_configurations(desired, None)?;
    done.extend(credentials_and_program(desired)?);
    Ok(done)
}

/// Removes our entries from all configurations, and from `written`, which may no longer be JSON: that is an error.
fn from_configurations(desired: &Desired, written: Option<&Path>) -> Result<Vec<String>, String> {
    let listing = listing::list(&desired.net_dir).unwrap_or_default();
    let mut copies: Vec<PathBuf> = copy::left(desired, &listing)
        .into_iter()
        .map(Path::to_owned)
        .collect();
    copies.extend(
        desired
            .owned
            .as_ref()
            .map(|name| desired.net_dir.join(name)),
    );
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    let mut paths = ours(desired)?;
    paths.extend(written.map(Path::to_owned));
    paths.sort();
    paths.dedup();
    for path in paths {
        match from_configuration(&path, copies.contains(&path)) {
            Ok(removed) => done.extend(removed),
            Err(why) => failed.push(why),
        }
    }
    if failed.is_empty()
        && let Err(why) = delete(&desired.own_names(), "the file")
    {
        failed.push(why);
    }
    match failed.is_empty() {
        true => Ok(done),
        false => Err(failed
            .into_iter()
            .chain(done)
            .collect::<Vec<_>>()
            .join("; ")),
    }
}

/// Removes the installation at shutdown: as [`remove_everything`] if a configuration was written. Our own configuration is
/// removed whatever its content. Earlier entries in others are removed too: without the kubeconfig every pod would fail.
pub(super) fn remove_installed(
    desired: &Desired,
    written: Option<&Path>,
) -> Result<Vec<String>, String> {
    let Some(path) = written else {
        return credentials_and_program(desired);
    };
    let mut done = Vec::new();
    let is_our_own = !desired.chained || desired.owned.is_some();
    if is_our_own {
        done.extend(delete(path, "configuration")?);
    }
    done.extend(from_configurations(desired, Some(path))?);
    done.extend(credentials_and_program(desired)?);
    Ok(done)
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
    match unfinished::tidy_all(desired) {
        failed if failed.is_empty() => Ok(done),
        failed => Err(failed.join("; ")),
    }
}

/// Removes our entry from one file. Deletes the file if it is a copy of another one, or has nothing but our entry: a list
/// without plugins would stop a runtime.
fn from_configuration(path: &Path, is_copy: bool) -> Result<Option<String>, String> {
    let fail = |e: &dyn std::fmt::Display| {
        format!(
            "cannot remove our entry from {}: {e}; the file is as it was",
            path.display()
        )
    };
    for _ in 0..LOOKS {
        let json = match listing::read_json(path) {
            Err(Unread::File(e)) if e.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| fail(&e))?,
        };
        if is_ours(&json) || is_copy {
            return delete(path, "configuration");
        }
        // A file that another component replaced needs no further check.
        if !copy::has_ours(&json) {
            return Ok(None);
        }
        let Some(list) = without(json).map_err(|e| fail(&e))? else {
            return Ok(None);
        };
        if !has_plugins(&list) {
            return delete(path, "configuration");
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
