//! `weir uninstall`

use super::agent_args::UninstallArgs;
use crate::ambient::Former;
use crate::supervisor::Settings;
use serde_json::{Value, json};
use std::path::PathBuf;
use weir_command::failure::{Failure, code};
use weir_command::output;
use weir_core::sandboxes::cri;
use weir_install::{PLUGIN, check_alone, left, remove_everything};

/// A remaining part: where it is, what it is, whether it may stay, and whether that it is one is unknown.
struct Part {
    path: PathBuf,
    what: String,
    may_stay: bool,
    unknown: bool,
}

/// Removes the installation, then lists what is left; with `--verify` only lists. A failure does not stop the rest.
pub(super) fn run(a: &UninstallArgs) -> Result<u8, Failure> {
    let resolved = cri::resolve(&a.flags.0);
    let settings = Settings::of(&resolved).map_err(Failure::usage)?;
    let (desired, former) = (&settings.desired, Former::of(&resolved));
    let (mut done, mut failures, mut failed) = (Vec::new(), Vec::new(), None);
    if !a.verify {
        check_alone(desired).map_err(Failure::failed)?;
        match remove_everything(desired) {
            Ok(removed) => done.extend(removed.done),
            Err(why) => failures.push(Failure::failed(why)),
        }
        match former.remove() {
            Ok(of_node) => done.extend(of_node),
            Err(why) => failed = Some(why),
        }
    }
    let program = desired.bin_dir.join(PLUGIN);
    let of_files = left(desired).unwrap_or_else(|why| {
        failures.push(Failure::unknown(why));
        Vec::new()
    });
    let of_files = of_files.into_iter().map(|l| Part {
        may_stay: desired.keep_plugin && l.path == program,
        path: l.path,
        what: l.what.to_owned(),
        unknown: l.unknown,
    });
    let of_node = former.left().unwrap_or_else(|e| {
        let why = format!("what ambient mode left at the node is not known: {e}");
        failures.push(Failure::unknown(why));
        Vec::new()
    });
    let of_node = of_node.iter().map(|what| {
        let why = failed.as_ref().map(|why| format!(": {why}"));
        Part {
            path: former.place(),
            what: format!("{what}{}", why.unwrap_or_default()),
            may_stay: false,
            unknown: false,
        }
    });
    let left: Vec<Part> = of_files.chain(of_node).collect();
    // Nothing known is left, but the removal failed.
    if let Some(why) = failed.filter(|_| left.iter().all(|l| l.may_stay)) {
        failures.push(Failure::failed(why));
    }
    let is_left = |unknown| left.iter().any(|l| !l.may_stay && l.unknown == unknown);
    let code = match failures.iter().any(|f| f.code == code::UNKNOWN) || is_left(true) {
        _ if is_left(false) => code::FAILED,
        true => code::UNKNOWN,
        false if failures.is_empty() => code::SUCCESS,
        false => code::FAILED,
    };
    // The removal and the list may fail for the same reason.
    let mut messages: Vec<String> = Vec::new();
    for Failure { message, .. } in failures {
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    let failure = (!messages.is_empty()).then(|| Failure {
        code,
        message: messages.join("; "),
    });
    let text = match a.json {
        true => json_of(&done, &left, failure.as_ref()),
        false => text_of(&done, &left, failure.as_ref()),
    };
    match a.verify {
        true => output::text(&text)?,
        false => output::report(
            &text,
            "what could be removed is removed; --verify says what is left",
        )?,
    };
    failure.map_or(Ok(code), Err)
}

fn json_of(done: &[String], left: &[Part], failure: Option<&Failure>) -> String {
    let one = |l: &Part| {
        json!({
            "path": l.path.to_string_lossy(),
            "what": l.what,
            "mayStay": l.may_stay,
            "unknown": l.unknown,
        })
    };
    output::json_text(&json!({
        "done": done,
        "left": left.iter().map(one).collect::<Value>(),
        "error": failure.map(|f| &f.message),
    }))
}

fn text_of(done: &[String], left: &[Part], failure: Option<&Failure>) -> String {
    let mut text = String::new();
    done.iter()
        .for_each(|line| output::push_line(&mut text, line));
    for l in left {
        let stays = if l.may_stay { " (may stay)" } else { "" };
        let line = format!("left: {}: {}{stays}", l.path.display(), l.what);
        output::push_line(&mut text, &line);
    }
    if left.is_empty() && failure.is_none() {
        text += "nothing is left\n";
    }
    text
}
