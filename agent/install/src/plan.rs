//! Describes what a pass would do. The decisions are those of the pass itself.

use super::binaries::programs;
use super::config::{Choice, choose, prepare};
use super::copy;
use super::desired::Desired;
use super::files;
use super::kubeconfig::kubeconfig;
use std::path::PathBuf;

/// A planned change of one file.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The file.
    pub path: PathBuf,
    /// `write`, `keep`, `remove` or `wait`, or `fail` for an error that would end the pass.
    pub action: &'static str,
    /// The reason.
    pub why: String,
    /// Mode of the file to be written.
    pub mode: Option<u32>,
    /// Text of the file to be written, without secrets.
    pub text: Option<String>,
}

/// Plans a pass without writing anything.
#[must_use]
pub fn plan(desired: &Desired) -> Vec<Planned> {
    let mut steps = Vec::new();
    for step in [binaries, credentials, configuration] {
        step(desired, &mut steps);
        // The pass would end here.
        if steps.iter().any(|s| s.action == "fail") {
            break;
        }
    }
    steps
}

fn fail(path: PathBuf, why: String) -> Planned {
    Planned {
        path,
        action: "fail",
        why,
        mode: None,
        text: None,
    }
}

fn binaries(desired: &Desired, steps: &mut Vec<Planned>) {
    match programs(desired) {
        Err(why) => steps.push(fail(desired.bin_dir.clone(), why)),
        Ok(_) if !desired.bin_dir.is_dir() => {
            let why = "there is no such directory; WEIR_MOUNTED_CNI_BIN_DIR names the mount point of the node's plugins".into();
            steps.push(fail(desired.bin_dir.clone(), why));
        }
        Ok(programs) => steps.extend(programs.into_iter().map(|p| {
            let from = p.source.display();
            let (action, why) = match p.installed(&|| false) {
                Err(why) => ("write", format!("from {from}: {why}")),
                Ok(_) => ("keep", format!("it is {from}")),
            };
            Planned {
                action,
                why,
                mode: Some(p.mode),
                text: None,
                path: p.target,
            }
        })),
    }
}

fn credentials(desired: &Desired, steps: &mut Vec<Planned>) {
    let path = desired.kubeconfig.clone();
    let (text, redacted) = match kubeconfig(&desired.access) {
        Ok(texts) => texts,
        Err(why) => return steps.push(fail(path, why)),
    };
    let same = files::read_text(&path).is_ok_and(|t| t == text)
        && files::mode(&path).is_ok_and(|m| m == desired.kubeconfig_mode);
    let (action, why) = match (same, path.exists()) {
        (true, _) => ("keep", "it is as wanted"),
        (_, true) => ("write", "server, CA, token or mode differ"),
        _ => ("write", "there is none"),
    };
    let (mode, text) = (Some(desired.kubeconfig_mode), Some(redacted));
    steps.push(Planned {
        path,
        action,
        why: why.into(),
        mode,
        text,
    });
}

fn configuration(desired: &Desired, steps: &mut Vec<Planned>) {
    let dir = desired.net_dir.clone();
    let choice = match choose(desired) {
        Ok(choice) => choice,
        Err(e) => {
            return steps.push(fail(
                dir,
                format!("cannot be read: {e}; MOUNTED_CNI_NET_DIR names the directory"),
            ));
        }
    };
    let reason = match &choice {
        Choice::Alone => "a separate configuration, because CHAINED_CNI_PLUGIN is false".to_owned(),
        Choice::Extend(path, _) => {
            let chosen = match desired.conf_name {
                Some(_) => "CNI_CONF_NAME names it",
                None => "it is the first valid one",
            };
            format!("extends {}: {chosen}", path.display())
        }
        Choice::Wait(why) => {
            let why = why.clone();
            return steps.push(Planned {
                path: dir,
                action: "wait",
                why,
                mode: None,
                text: None,
            });
        }
    };
    let written = match prepare(desired, choice) {
        Ok(Some(written)) => written,
        Ok(None) => return,
        Err(why) => return steps.push(fail(dir, why)),
    };
    let kept = copy::foreign(desired)
        .map(|path| format!("its content is kept as {}", copy::kept_as(&path).display()));
    let others = [kept, written.preempted(desired)];
    let reason = others
        .into_iter()
        .flatten()
        .fold(reason, |all, why| format!("{all}; {why}"));
    let action = if written.is_there() { "keep" } else { "write" };
    let removed = written.replaces.iter().map(|path| Planned {
        path: path.clone(),
        action: "remove",
        why: format!("{} takes its place", written.path.display()),
        mode: None,
        text: None,
    });
    let strays = written.strays.iter().map(|stray| Planned {
        path: stray.path.clone(),
        action: if stray.text.is_some() {
            "write"
        } else {
            "remove"
        },
        why: "it is not the configuration to extend: our entry is removed".into(),
        mode: (stray.text.as_ref()).and_then(|_| files::mode(&stray.path).ok()),
        text: stray.text.clone(),
    });
    let main = Planned {
        path: written.path.clone(),
        action,
        why: reason,
        mode: Some(written.mode),
        text: Some(written.text.clone()),
    };
    steps.push(main);
    steps.extend(removed);
    steps.extend(strays);
}
