//! `weir-vm list`: shows the kernels and variants, and the state of the cache.
use super::{code, say};
use crate::kernels::{Kernels, State, Status};
use crate::{Cache, Error, Result};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  weir-vm list
  weir-vm list --json
  VMTESTS_KERNEL=mine=/boot/vmlinuz-6.9.1,/lib/modules/6.9.1 weir-vm list

A variant is asked for with a dash: 6.1-no-xtables. What it leaves out, and whether a kernel allows it, shows in
`weir-vm list --variants`.

Exit codes: 0 ok, 2 wrong arguments, 3 a file could not be read";

/// Shows kernels and variants, their versions, and what is in the cache
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Show what each variant omits from every kernel in the cache
    #[arg(long)]
    variants: bool,

    /// Use this file instead of kernels.lock
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
}

pub(super) fn run(cache: &Cache, args: &Args) -> Result<u8> {
    let kernels = Kernels::open(cache, args.lock.as_deref())?;
    if args.json {
        let text = serde_json::to_string_pretty(&document(cache, &kernels))
            .map_err(|e| Error::new("JSON", e, "Report it"))?;
        say(&text)?;
        return Ok(code::SUCCESS);
    }
    let row = |name: &str, version: &str, suite: &str, state: &str| {
        say(&format!("{name:<10} {version:<24} {suite:<18} {state}"))
    };
    row("kernel", "version", "suite", "cache")?;
    for status in kernels.status() {
        let version = status.locked.map_or("not locked", |l| l.version.as_str());
        let mut state = coloured(&status.state);
        if !status.from_lock && status.locked.is_some() {
            state += "  (not that of kernels.lock, which the archive did not have)";
        }
        row(&shown_name(&status), version, &status.entry.suite, &state)?;
    }
    for own in kernels.own() {
        let (name, vmlinuz) = (&own.name, own.vmlinuz.display());
        let modules = own.modules.as_ref().map(|m| format!(", {}", m.display()));
        let modules = modules.unwrap_or_default();
        say(&format!("{name:<10} {vmlinuz}{modules}"))?;
    }
    say(&format!("\n{:<13} {:<14} what it is", "variant", "on"))?;
    for variant in &kernels.catalogue().variants {
        let (name, on, says) = (&variant.name, variant.on.join(" "), &variant.says);
        say(&format!("{name:<13} {on:<14} {says}"))?;
    }
    if args.variants {
        effects(&kernels)?;
    }
    say(&format!("\ncache: {}", cache.root().display()))?;
    Ok(code::SUCCESS)
}

/// The kernel's name in the matrix, followed by the name in kernels.toml if they differ.
fn shown_name(status: &Status<'_>) -> String {
    match status.locked.map(crate::Locked::environment) {
        Some(series) if series != status.entry.name => format!("{series} {}", status.entry.name),
        _ => status.entry.name.clone(),
    }
}

fn coloured(state: &State) -> String {
    let (colour, text) = match state {
        State::Ready => (32, "ready".to_owned()),
        State::Absent => (33, "not fetched".to_owned()),
        State::Damaged(why) => (31, format!("damaged ({why}): fetch makes it again")),
    };
    match std::io::stdout().is_terminal() {
        true => format!("\x1b[{colour}m{text}\x1b[0m"),
        false => text,
    }
}

/// Prints the effect of every variant on every kernel that is ready to boot.
fn effects(kernels: &Kernels) -> Result<()> {
    let all = kernels.status().into_iter();
    for status in all.filter(|s| s.state == State::Ready) {
        say("")?;
        for variant in &kernels.catalogue().variants {
            let name = format!("{}-{}", status.entry.name, variant.name);
            match kernels.get(&name) {
                Ok(kernel) => {
                    let mut what = kernel.left_out;
                    what.extend(kernel.parameters);
                    say(&format!("{}: {}", kernel.name, what.join(" ")))?;
                    for text in kernel.notes {
                        say(&format!("    {text}"))?;
                    }
                }
                Err(e) => say(&format!("{name}: not possible, {}", e.reason))?,
            }
        }
    }
    Ok(())
}

fn document(cache: &Cache, kernels: &Kernels) -> Value {
    let status = kernels.status();
    let rows = status.iter().map(|s| {
        let (state, why) = match &s.state {
            State::Ready => ("ready", None),
            State::Absent => ("absent", None),
            State::Damaged(why) => ("damaged", Some(why)),
        };
        json!({
            "name": s.entry.name, "environment": s.locked.map(crate::Locked::environment),
            "version": s.locked.map(|l| &l.version), "suite": s.entry.suite, "flavour": s.entry.flavour,
            "required": s.entry.required, "from_lock": s.from_lock, "state": state, "reason": why,
            "packages": s.locked.map(|l| &l.parts),
        })
    });
    let variants = kernels.catalogue().variants.iter().map(|v| {
        json!({
            "name": v.name, "says": v.says, "without": v.without, "parameters": v.parameters, "on": v.on,
        })
    });
    let own = kernels.own().iter();
    let own = own.map(|o| json!({ "name": o.name, "vmlinuz": o.vmlinuz, "modules": o.modules }));
    json!({
        "cache": cache.root(), "kernels": rows.collect::<Vec<_>>(), "own": own.collect::<Vec<_>>(),
        "variants": variants.collect::<Vec<_>>(),
    })
}
