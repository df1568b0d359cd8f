//! Arguments of `weir agent` and `weir uninstall`: one flag per setting that has one.

use super::commands::{self, AGENT, Command};
use clap::{Arg, ArgAction, ArgMatches, Args, Error, FromArgMatches};
use std::collections::BTreeMap;
use weir_core::settings::{Setting, SettingKind, TABLE, Usage, go_bool, go_int};

/// The values of the given flags, by name.
#[derive(Debug)]
pub(super) struct Flags(pub(super) BTreeMap<&'static str, String>);

#[derive(Debug, Args)]
#[command(after_long_help = commands::agent_help())]
pub(super) struct AgentArgs {
    #[command(flatten)]
    pub(super) flags: Flags,
    /// Print what would be written, where and why; write nothing
    #[arg(long, group = "question")]
    pub(super) dry_run: bool,
    /// Print each setting in force and its source
    #[arg(long = "explain-settings", group = "question")]
    pub(super) explain: bool,
    /// Print JSON, for --dry-run and --explain-settings
    #[arg(long, requires = "question")]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct UninstallArgs {
    #[command(flatten)]
    pub(super) flags: Flags,
    /// Only print what is left; remove nothing
    #[arg(long)]
    pub(super) verify: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

fn settings() -> impl Iterator<Item = &'static Setting> {
    TABLE.iter().filter(|s| !s.flag.is_empty())
}

/// Parses as pflag does: `--flag value` and `--flag=value`, also if the value begins with a hyphen; a boolean without a value is
/// true; of a repeated flag the last one counts, and of a repeated list all of them.
fn flag(setting: &'static Setting) -> Arg {
    let arg = Arg::new(setting.flag)
        .long(setting.flag)
        .help(setting.described())
        .action(ArgAction::Set)
        .hide_short_help(setting.usage != Usage::Used);
    match setting.kind {
        SettingKind::Bool => arg
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(bool_text),
        SettingKind::Int => arg
            .value_name("NUMBER")
            .allow_negative_numbers(true)
            .value_parser(int_text),
        SettingKind::Text => arg.value_name("TEXT").allow_hyphen_values(true),
        SettingKind::List => arg
            .value_name("TEXT,...")
            .allow_hyphen_values(true)
            .action(ArgAction::Append),
    }
}

fn bool_text(text: &str) -> Result<String, String> {
    go_bool(text)
        .map(|_| text.to_owned())
        .ok_or_else(|| "give true or false".to_owned())
}

fn int_text(text: &str) -> Result<String, String> {
    go_int(text)
        .map(|_| text.to_owned())
        .ok_or_else(|| "give a whole number; with a leading zero it is octal".to_owned())
}

impl Args for Flags {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args_override_self(true).args(settings().map(flag))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(m: &ArgMatches) -> Result<Self, Error> {
        let given = |s: &Setting| {
            let values: Vec<&str> = m.get_many::<String>(s.flag)?.map(String::as_str).collect();
            Some((s.flag, values.join(",")))
        };
        Ok(Self(settings().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, m: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(m)?;
        Ok(())
    }
}

/// A command line of Istio's program.
pub(super) enum Asked {
    Agent(Command),
    /// The text to print for `version`.
    Version(String),
}

/// The command line of Istio's program: flags, or the one word `version`.
pub(super) fn parse_as_install_cni() -> Result<Asked, Error> {
    let version = clap::Command::new("version")
        .about("Print the version")
        .after_help("Examples:\n  install-cni version\n  install-cni version --short\n  install-cni version --output json")
        .arg(
            Arg::new("short")
                .long("short")
                .short('s')
                .action(ArgAction::SetTrue)
                .help("Print the number alone"),
        )
        .arg(
            Arg::new("output")
                .long("output")
                .short('o')
                .value_parser(["yaml", "json"])
                .help("Print it in this format"),
        );
    let command = clap::Command::new("install-cni")
        .about("Installs the CNI plugin on this node and keeps it there")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(AGENT.replace("weir agent", "install-cni"))
        .args_conflicts_with_subcommands(true)
        .subcommand(version);
    let mut command = AgentArgs::augment_args(command)
        .after_long_help(commands::agent_help().replace("weir agent", "install-cni"));
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    if let Some(("version", m)) = matches.subcommand() {
        let number = env!("CARGO_PKG_VERSION");
        // The keys of Istio's BuildInfo that apply here.
        let text = match m.get_one::<String>("output").map(String::as_str) {
            Some("json") => format!(
                "{:#}\n",
                serde_json::json!({"clientVersion": {"version": number, "status": "weir"}})
            ),
            Some(_) => format!("clientVersion:\n  status: weir\n  version: {number}\n"),
            None if m.get_flag("short") => format!("{number}\n"),
            None => format!("install-cni {number} (weir)\n"),
        };
        return Ok(Asked::Version(text));
    }
    AgentArgs::from_arg_matches(&matches).map(|args| Asked::Agent(Command::Agent(args)))
}
