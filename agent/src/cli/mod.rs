//! The command line: arguments in, text or JSON out, documented exit codes.

mod agent;
mod agent_args;
mod commands;
mod uninstall;

use agent_args::Asked;
use clap::Parser;
use commands::Command;
use std::io::Write as _;
use std::process::ExitCode;
use weir_command::failure::{Failure, code};
use weir_command::output;

const CODES: &str = "\
Exit codes: 0 done or in sync, 1 failed (verify: drift), 2 arguments or what they name cannot be \
used (agent: 1, as install-cni), 3 the state could not be determined or the output could not be written, 4 (agent) \
the installation could not be removed, 126 the probe of run_validation failed.";

const EXAMPLE: &str = "\
Example:
  sudo weir demo";

/// Steer pod traffic into a sidecar proxy, natively: no iptables, nft or ip is executed.
#[derive(Debug, Parser)]
#[command(name = "weir", version, after_help = format!("{CODES}\n\n{EXAMPLE}"), propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Parses the arguments, runs the command and returns its exit code.
///
/// Started by the name of the plugin it acts as the plugin, and by the name of Istio's installer as the agent: one binary
/// serves all of them.
#[must_use]
pub fn run() -> ExitCode {
    let name = called_as();
    if matches!(name.as_deref(), Some("weir-cni" | "istio-cni")) {
        return weir_cni::plugin::main();
    }
    weir_netlink::tuning::one_heap();
    weir_netlink::tuning::limits_are_errors();
    let as_installer = name.as_deref() == Some("install-cni");
    let parsed = match as_installer {
        true => match agent_args::parse_as_install_cni() {
            Ok(Asked::Version(text)) => {
                let printed = output::text(&text);
                return ExitCode::from(printed.unwrap_or_else(|failure| failure.tell()));
            }
            Ok(Asked::Agent(command)) => Ok(command),
            Err(e) => Err(e),
        },
        false => Cli::try_parse().map(|cli| cli.command),
    };
    let wanted = match parsed {
        Ok(wanted) => wanted,
        Err(e) => {
            // Help and version are answers, not errors.
            let is_agent = as_installer || std::env::args_os().nth(1).is_some_and(|a| a == "agent");
            let printed = e.print().and_then(|()| std::io::stdout().flush());
            let code = match (e.use_stderr(), is_agent) {
                (false, _) => output::written(printed).unwrap_or_else(|failure| failure.tell()),
                // The exit code of install-cni, which the agent replaces.
                (true, true) => code::FAILED,
                (true, false) => code::USAGE,
            };
            return ExitCode::from(code);
        }
    };
    match command(wanted) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => ExitCode::from(failure.tell()),
    }
}

/// Returns the base name by which this program was started.
fn called_as() -> Option<String> {
    let name = std::env::args_os().next()?;
    let name = std::path::Path::new(&name).file_name()?;
    Some(name.to_string_lossy().into_owned())
}

fn command(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Agent(a) => agent::run(&a),
        Command::Uninstall(a) => uninstall::run(&a),
        Command::Other(command) => command.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::{CommandFactory, Parser as _};

    /// Every command and subcommand, with its command line words.
    fn all(command: &clap::Command, words: &str, found: &mut Vec<(String, clap::Command)>) {
        let words = format!("{words} {}", command.get_name());
        for one in command.get_subcommands().filter(|c| c.get_name() != "help") {
            all(one, &words, found);
        }
        found.push((words, command.clone()));
    }

    fn commands() -> Vec<(String, clap::Command)> {
        let (mut command, mut found) = (Cli::command(), Vec::new());
        command.build();
        all(&command, "", &mut found);
        assert!(found.len() > 18, "{}", found.len());
        found
    }

    /// The verbs that begin help texts; new verbs are added here.
    const VERBS: [&str; 17] = [
        "Ask", "Attach", "Check", "Compare", "Detach", "Install", "Load", "Make", "Print", "Probe",
        "Put", "Redirect", "Remove", "Run", "Steer", "Write", "Show",
    ];

    #[test]
    fn every_help_text_begins_with_a_verb_and_has_an_example() {
        for (words, command) in commands() {
            let about = command
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            let first = about.split_whitespace().next().unwrap_or_default();
            assert!(VERBS.contains(&first), "{words}: {about:?}");
            let after = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let example = after.split("Example").nth(1).unwrap_or_default();
            let own = words.trim();
            assert!(
                example.contains(own),
                "{words}: no example with it in: {after}"
            );
            // For readers of the example, and for authors of scripts.
            let codes = after.split("Exit codes: 0 ").nth(1).unwrap_or_default();
            assert!(
                codes.contains("; 2 ") || codes.contains(", 2 ") || own == "weir agent",
                "{words}: no exit codes in: {after}"
            );
        }
    }

    #[test]
    fn only_ambient_mode_has_the_engine_ebpf_and_a_plan_says_what_auto_is() {
        let mut with = Vec::new();
        for (words, command) in commands() {
            let engine = command.get_arguments().find(|a| a.get_id() == "engine");
            let Some(engine) = engine.filter(|_| !words.ends_with("show")) else {
                continue;
            };
            let values = engine.get_possible_values();
            let is_ambient = words.contains("ambient") || words.ends_with("demo");
            let has = values.iter().any(|v| v.get_name() == "ebpf");
            assert_eq!(has, is_ambient, "{words}");
            let auto = values.iter().find(|v| v.get_name() == "auto").unwrap();
            let help = auto.get_help().unwrap().to_string();
            let is_plan_of_rules = words.contains(" plan ") && !words.contains("node");
            assert_eq!(
                help.contains("reads no namespace"),
                is_plan_of_rules,
                "{words}: {help}"
            );
            with.push(words);
        }
        assert!(with.len() >= 9, "{with:?}");
        let run = |engine| {
            let words = [
                "weir", "plan", "sidecar", "--config", "c", "--engine", engine,
            ];
            Cli::try_parse_from(words)
        };
        let refused = run("ebpf").unwrap_err().to_string();
        assert!(
            refused.contains("[possible values: auto, nft, xtables]"),
            "{refused}"
        );
        assert!(run("xtables").is_ok());
    }

    #[test]
    fn every_argument_has_a_help_text() {
        for (words, command) in commands() {
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{words} {}", arg.get_id());
            }
        }
    }
}
