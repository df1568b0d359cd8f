//! `weir uninstall`

use super::agent::resolve;
use super::agent_args::UninstallArgs;
use super::failure::{Failure, code};
use super::output;
use crate::supervisor::Settings;
use serde_json::{Value, json};
use weir_install::{Left, PLUGIN, left, remove_everything};

/// Removes, then looks; with `--verify` it only looks.
pub(super) fn run(a: &UninstallArgs) -> Result<u8, Failure> {
    let settings = Settings::of(&resolve(&a.flags)).map_err(Failure::usage)?;
    let desired = &settings.desired;
    let removed = match a.verify {
        true => Vec::new(),
        false => remove_everything(desired).map_err(Failure::failed)?,
    };
    let program = desired.bin_dir.join(PLUGIN);
    let may_stay = |l: &Left| desired.keep_plugin && l.path == program;
    let left = left(desired).map_err(Failure::unknown)?;
    let text = if a.json {
        let one = |l: &Left| json!({ "path": l.path.to_string_lossy(), "what": l.what, "mayStay": may_stay(l) });
        output::json_text(
            &json!({ "done": removed, "left": left.iter().map(one).collect::<Value>() }),
        )
    } else {
        let mut text = String::new();
        removed
            .iter()
            .for_each(|line| output::push_line(&mut text, line));
        for l in &left {
            let stays = if may_stay(l) { " (may stay)" } else { "" };
            output::push_line(
                &mut text,
                &format!("left: {}: {}{stays}", l.path.display(), l.what),
            );
        }
        if left.is_empty() {
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
    match left.iter().all(may_stay) {
        true => Ok(code::SUCCESS),
        false => Ok(code::FAILED),
    }
}
