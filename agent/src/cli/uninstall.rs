//! `weir uninstall`

use super::agent_args::UninstallArgs;
use crate::ambient::Former;
use crate::supervisor::Settings;
use serde_json::{Value, json};
use std::path::PathBuf;
use weir_command::failure::{Failure, code};
use weir_command::output;
use weir_core::sandboxes::cri;
use weir_install::{Left, PLUGIN, check_alone, left, remove_everything};

/// Removes the installation, then lists what is left; with `--verify` only lists.
pub(super) fn run(a: &UninstallArgs) -> Result<u8, Failure> {
    let resolved = cri::resolve(&a.flags.0);
    let settings = Settings::of(&resolved).map_err(Failure::usage)?;
    let (desired, former) = (&settings.desired, Former::of(&resolved));
    let (mut removed, mut failed) = (Vec::new(), None);
    if !a.verify {
        check_alone(desired).map_err(Failure::failed)?;
        // A failure of one removal does not stop the other.
        let of_files = remove_everything(desired);
        match former.remove() {
            Ok(of_node) => removed.extend(of_node),
            Err(why) => failed = Some(why),
        }
        removed.splice(0..0, of_files.map_err(Failure::failed)?);
    }
    let program = desired.bin_dir.join(PLUGIN);
    let of_files = left(desired).map_err(Failure::unknown)?;
    let may_stay = |l: &Left| desired.keep_plugin && l.path == program;
    let of_files = of_files
        .iter()
        .map(|l| (l.path.clone(), l.what.to_owned(), may_stay(l)));
    let of_node = former.left();
    let found = of_node.as_deref().unwrap_or_default().iter().map(|what| {
        let why = failed.as_ref().map(|why| format!(": {why}"));
        (
            former.place(),
            format!("{what}{}", why.unwrap_or_default()),
            false,
        )
    });
    let left: Vec<(PathBuf, String, bool)> = of_files.chain(found).collect();
    let text = if a.json {
        let one = |(path, what, may_stay): &(PathBuf, String, bool)| json!({ "path": path.to_string_lossy(), "what": what, "mayStay": may_stay });
        output::json_text(
            &json!({ "done": removed, "left": left.iter().map(one).collect::<Value>() }),
        )
    } else {
        let mut text = String::new();
        removed
            .iter()
            .for_each(|line| output::push_line(&mut text, line));
        for (path, what, may_stay) in &left {
            let stays = if *may_stay { " (may stay)" } else { "" };
            output::push_line(
                &mut text,
                &format!("left: {}: {what}{stays}", path.display()),
            );
        }
        if left.is_empty() && of_node.is_ok() {
            text += "nothing is left\n";
        }
        text
    };
    match a.verify {
        true => output::text(&text)?,
        false => output::report(
            &text,
            "what could be removed is removed; --verify says what is left",
        )?,
    };
    if let Err(e) = of_node {
        return Err(Failure::unknown(format!(
            "what ambient mode left at the node is not known: {e}"
        )));
    }
    match left.iter().all(|(.., may_stay)| *may_stay) {
        // Nothing known is left, but the removal failed.
        true if failed.is_some() => Err(Failure::failed(failed.unwrap_or_default())),
        true => Ok(code::SUCCESS),
        false => Ok(code::FAILED),
    }
}
