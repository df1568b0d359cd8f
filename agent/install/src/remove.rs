//! Taking the installation away: the configuration first, so that no runtime calls what is about to go.

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

/// Looks at one file that another writer replaces meanwhile.
const LOOKS: u32 = 5;
/// An agent that runs answers within this time, or is there and hangs.
const ANSWER: Duration = Duration::from_secs(2);

/// One thing of ours on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The file.
    pub path: PathBuf,
    /// What is in it.
    pub what: &'static str,
}

/// That no agent runs on this node, which would install again at once what is removed.
///
/// # Errors
/// One does; what to do first.
pub fn check_alone(desired: &Desired) -> Result<(), String> {
    let socket = desired.kubeconfig.with_file_name(LOG_SOCKET);
    let answers = match http::get(&socket, "/", ANSWER) {
        Ok(_) => true,
        // It took the connection; the kinds of an address where nobody listens are others.
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

/// What of ours is on the node.
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

/// Configurations with an entry of ours, also those that a runtime would not load.
fn ours(desired: &Desired) -> Result<Vec<PathBuf>, String> {
    let dir = &desired.net_dir;
    // What was deleted on the node holds nothing.
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

/// Removes everything of ours from every configuration, then the kubeconfig, then, unless it is to stay, the
/// program. Says what was done.
///
/// # Errors
/// The first step that failed; those after it are not done. One configuration does not keep the others.
pub fn remove_everything(desired: &Desired) -> Result<Vec<String>, String> {
    let mut done = from_configurations(desired, None)?;
    done.extend(credentials_and_program(desired)?);
    Ok(done)
}

/// Out of `written`, too, which may be no JSON by now: that is said.
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

/// The work at shutdown: as [`remove_everything`], where a configuration was written. One of our own goes whatever is in it
/// by now. Entries in others, of the time when these came first, go too: without the kubeconfig they would fail every pod.
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
    // A token may be in one.
    match unfinished::tidy_all(desired) {
        failed if failed.is_empty() => Ok(done),
        failed => Err(failed.join("; ")),
    }
}

/// Our entry out of one file. A copy of another one goes as a whole, and so does what has nothing else in it: a list
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
        // Of one that another component replaced nothing is asked.
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
