//! `weir agent`

use super::agent_args::AgentArgs;
use crate::supervisor::End;
use crate::supervisor::Settings;
use serde_json::{Value, json};
use weir_command::failure::{Failure, code};
use weir_command::output;
use weir_core::sandboxes::cri;
use weir_core::settings;
use weir_install::{Planned, plan};

/// Runs the agent until a signal, or prints what was asked for. An invalid setting is a failure and not a usage error:
/// install-cni has one exit code for all errors, and its callers expect that.
pub(super) fn run(a: &AgentArgs) -> Result<u8, Failure> {
    let resolved = cri::resolve(&a.flags.0);
    if a.explain {
        said(match a.json {
            true => output::json(&settings::json(&resolved)),
            false => output::text(&settings::text(&resolved)),
        })?;
    }
    let settings = Settings::of(&resolved).map_err(Failure::failed)?;
    if a.explain {
        // An error that would stop an agent with these settings at once.
        return settings
            .levels()
            .map(|_| code::SUCCESS)
            .map_err(Failure::failed);
    }
    if a.dry_run {
        return dry_run(&settings, a.json);
    }
    match crate::supervisor::run(&resolved, &settings).map_err(Failure::failed)? {
        End::Well => Ok(code::SUCCESS),
        End::Failed => Ok(code::FAILED),
        End::NotRemoved => Ok(code::NOT_REMOVED),
    }
}

/// Converts an error of printing.
fn said(printed: Result<u8, Failure>) -> Result<u8, Failure> {
    printed.map_err(|e| Failure {
        code: code::FAILED,
        ..e
    })
}

fn dry_run(settings: &Settings, json: bool) -> Result<u8, Failure> {
    settings.levels().map_err(Failure::failed)?;
    // Without an API server ambient mode does not start, and nothing is written.
    if settings.ambient.is_some() {
        settings.desired.access.url().map_err(Failure::failed)?;
    }
    let steps = plan(&settings.desired);
    if json {
        said(output::json(
            &steps.iter().map(step_json).collect::<Value>(),
        ))?;
    } else {
        let text: String = steps.iter().map(step_text).collect();
        said(output::text(&text))?;
    }
    match steps.iter().any(|s| s.action == "fail") {
        true => Ok(code::FAILED),
        false => Ok(code::SUCCESS),
    }
}

fn step_text(s: &Planned) -> String {
    let mode = s
        .mode
        .filter(|_| s.action == "write")
        .map_or(String::new(), |m| format!(" (mode {m:04o})"));
    let mut text = String::new();
    output::push_line(
        &mut text,
        &format!("{:<6} {}{mode}: {}", s.action, s.path.display(), s.why),
    );
    if s.action == "write" {
        let lines = s.text.iter().flat_map(|t| t.lines());
        lines.for_each(|line| text += &format!("    {line}\n"));
    }
    text
}

fn step_json(s: &Planned) -> Value {
    json!({
        "path": s.path.to_string_lossy(),
        "action": s.action,
        "why": s.why,
        "mode": s.mode.map(|m| format!("{m:04o}")),
        "text": s.text,
    })
}
