//! `weir preflight --bundle`

use super::args::Target;
use super::failure::{Failure, code};
use super::preflight::PreflightArgs;
use super::{output, preflight, target};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use weir_bundle::Bundle;
use weir_cni::files::is_absence;
use weir_cni::log::count;
use weir_core::sandboxes::cri;
use weir_install::replace;

/// Mode of the archive: only for its owner, because it contains rules and addresses of pods.
const MODE: u32 = 0o600;

/// Creates the archive and writes it.
pub(super) fn run(a: &PreflightArgs, file: &Path) -> Result<u8, Failure> {
    let to_stdout = file == Path::new("-");
    check(file, to_stdout, a.json)?;
    let target = Target {
        netns: a.netns.clone(),
        pid: a.pid,
    };
    let further = (a.netns.is_some() || a.pid.is_some())
        .then(|| target::netns(&target, |e| Failure::failed(e)).map_err(|f| f.message));
    let resolved = cri::resolve(&BTreeMap::new());
    let made = weir_bundle::make(&resolved, further, preflight::progress);
    let bundle = made.map_err(|e| Failure::failed(format!("cannot make the archive: {e}")))?;
    if to_stdout {
        output::stream(|out| out.write_all(&bundle.tar))?;
        eprint!("{}", summary(&bundle, "stdout"));
        return Ok(code::SUCCESS);
    }
    replace(file, &bundle.tar, MODE).map_err(|e| {
        let why = format!("cannot write {}: {e}; nothing was written", file.display());
        Failure::failed(format!(
            "{why}. Name a file in a directory that this user may write to and that has space for it"
        ))
    })?;
    match a.json {
        true => output::json(&bundle.manifest),
        false => output::text(&summary(&bundle, &file.display().to_string())),
    }
}

/// Checks the arguments before the slow part.
fn check(file: &Path, to_stdout: bool, json: bool) -> Result<(), Failure> {
    if to_stdout && json {
        return Err(Failure::usage(
            "with --bundle - the archive goes to stdout and includes the manifest: omit --json",
        ));
    }
    if to_stdout && std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "with --bundle - the archive goes to stdout, which is a terminal: redirect it, or name a file",
        ));
    }
    // Writing replaces the path by a regular file, which would destroy a device.
    match std::fs::symlink_metadata(file) {
        Ok(meta) if !to_stdout && !meta.is_file() => Err(Failure::usage(format!(
            "{} is not a regular file; name a file that may be replaced, or \"-\" for stdout",
            file.display()
        ))),
        // The file or its directory does not exist; the latter is reported when the file is written.
        Err(e) if !to_stdout && !is_absence(&e) => Err(Failure::usage(format!(
            "cannot examine {}: {e}; name another file, or \"-\" for stdout",
            file.display()
        ))),
        _ => Ok(()),
    }
}

/// The size of the archive, and which contents are missing.
fn summary(bundle: &Bundle, place: &str) -> String {
    let files = bundle.manifest.get("files").and_then(Value::as_array);
    let files = files.map_or(&[][..], Vec::as_slice);
    let left_out = files
        .iter()
        .filter_map(|f| usize::try_from(f.get("valuesLeftOut")?.as_u64()?).ok());
    let mut text = format!(
        "{place}: {} bytes, {}; {} that may be secrets and the contents of kubeconfigs are left out\n",
        bundle.tar.len(),
        count(files.len(), "file"),
        count(left_out.sum(), "value")
    );
    for file in files {
        let field = |name: &str| file.get(name).and_then(Value::as_str);
        if let (Some(name), Some(why)) = (field("name"), field("couldNotBeHad")) {
            output::push_line(&mut text, &format!("not available: {name}: {why}"));
        }
    }
    text
}
