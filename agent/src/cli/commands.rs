//! The commands: those of [`weir_command`], the agent, and its removal.

use super::agent_args::{AgentArgs, UninstallArgs};
use clap::{ArgMatches, Error, FromArgMatches, Subcommand};
use weir_command::one;

pub(super) const AGENT: &str = "\
Every setting is a flag, an environment variable, or both; a flag beats the environment, the environment beats the \
default. The variable of a flag is its name in capitals, with _ for -. With --weir-cri-socket the \
container runtime names the directories that are not set. --help explains all settings, --explain-settings prints those \
that an agent with these flags and this environment has.

Called by the name install-cni the program is this command: it takes the place of Istio's.

On MONITORING_PORT (15014): /metrics for Prometheus, / a page about this node and its pods for people, \
/status.json the same for programs. On WEIR_HEALTH_PORT (8000): /healthz and /readyz.

Exit codes: 0 ended by SIGINT or SIGTERM, or asked and answered; 1 the plugin could not be installed \
(--dry-run: cannot be), flags or settings cannot be used, or a part of the agent ended unexpectedly: \
nothing is removed then; 4 ended by a signal, but the installation could not be removed: weir uninstall tries again.

Examples:
  weir agent --explain-settings
  kubectl -n istio-system exec ds/istio-cni-node -- weir agent --dry-run";

/// Returns the text for `--help`, with the settings that have no flag.
pub(super) fn agent_help() -> String {
    format!("{AGENT}\n\n{}", weir_core::settings::without_flags())
}

const UNINSTALL: &str = "\
The configuration is removed first, so that no runtime calls what is removed next; then the kubeconfig. The \
plugin's program stays unless WEIR_KEEP_PLUGIN is false: runtimes still call it to delete pods. Then what \
ambient mode left in the network namespace of the node (WEIR_HOST_NETNS, or that of process 1 with \
ALLOW_SWITCH_TO_HOST_NS, or else the one that this command runs in); \
not beside an agent of Istio in ambient mode, whose rules for probes have the same names. \
Flags and environment are those of weir agent. While an agent answers at log.sock in CNI_AGENT_RUN_DIR \
nothing is removed: it would install everything again. End it first.

Exit codes: 0 nothing that the agent installed is in force; 1 something is left, or an agent runs; 2 flags or settings \
cannot be used; 3 what is left is unknown.

Examples:
  weir uninstall --mounted-cni-net-dir=/etc/cni/net.d --weir-mounted-cni-bin-dir=/opt/cni/bin
  weir uninstall --verify --json";

/// A command with its arguments.
#[derive(Debug)]
pub(super) enum Command {
    Agent(AgentArgs),
    Uninstall(UninstallArgs),
    Other(weir_command::Command),
}

impl Subcommand for Command {
    fn augment_subcommands(parent: clap::Command) -> clap::Command {
        weir_command::Command::augment_subcommands(parent).subcommands([
            one::<AgentArgs>(
                "agent",
                "Install the plugin on this node and keep it there, as Istio's install-cni",
                AGENT,
                "",
            ),
            one::<UninstallArgs>(
                "uninstall",
                "Remove what the agent installed on this node, and verify that it is gone",
                UNINSTALL,
                "",
            ),
        ])
    }

    fn augment_subcommands_for_update(parent: clap::Command) -> clap::Command {
        Self::augment_subcommands(parent)
    }

    fn has_subcommand(name: &str) -> bool {
        matches!(name, "agent" | "uninstall") || weir_command::Command::has_subcommand(name)
    }
}

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        match matches.subcommand() {
            Some(("agent", m)) => AgentArgs::from_arg_matches(m).map(Self::Agent),
            Some(("uninstall", m)) => UninstallArgs::from_arg_matches(m).map(Self::Uninstall),
            _ => weir_command::Command::from_arg_matches(matches).map(Self::Other),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
