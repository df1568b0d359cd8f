//! The commands and their descriptions.
//!
//! Written by hand instead of derived by clap: a derived command tree builds every argument of every command before
//! it parses the first word, but a call that runs for every pod needs only one command. Here the arguments
//! of a command are built only when it is called ([`clap::Command::defer`]).

use super::ambient::AmbientCleanArgs;
use super::args::{
    ApplyArgs, DesiredArgs, Target, VerifyArgs, engine_of_rules, planned_engine,
    planned_engine_or_programs,
};
use super::cni::CniCommand;
use super::demo::DemoArgs;
use super::failure::Failure;
use super::help::{self, with};
use super::live::{LiveNetnsArgs, LivePodArgs};
use super::node_ambient::{NodeAmbientApplyArgs, NodeAmbientArgs, NodeAmbientCleanArgs};
use super::preflight::PreflightArgs;
use super::restore::RestoreArgs;
use super::show::ShowArgs;
use super::sidecar::PlanArgs;
use super::{ambient, clean, cni, demo, live, node_ambient, preflight, restore, show, sidecar};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Error, FromArgMatches, Subcommand};

/// Defines each command: its arguments type, name, description, help, and the exit codes of its class (empty if the help has its
/// own).
macro_rules! commands {
    ($($Args:ident as $Command:ident, $name:literal, $about:literal, $help:expr, $codes:expr;)*) => {
        /// A command with its arguments.
        #[derive(Debug)]
        pub enum Command {
            $(#[doc = $about] $Command($Args),)*
        }

        impl Subcommand for Command {
            fn augment_subcommands(parent: clap::Command) -> clap::Command {
                parent.subcommands([$(one::<$Args>($name, $about, $help, $codes)),*])
            }

            fn augment_subcommands_for_update(parent: clap::Command) -> clap::Command {
                Self::augment_subcommands(parent)
            }

            fn has_subcommand(name: &str) -> bool {
                [$($name),*].contains(&name)
            }
        }

        impl FromArgMatches for Command {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
                let missing = || Error::raw(ErrorKind::MissingSubcommand, "a command is needed");
                let (name, m) = matches.subcommand().ok_or_else(missing)?;
                match name {
                    $($name => $Args::from_arg_matches(m).map(Self::$Command),)*
                    other => Err(Error::raw(
                        ErrorKind::InvalidSubcommand,
                        format!("no such command: {other}"),
                    )),
                }
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }
    };
}

commands! {
    Plan as Plan, "plan",
        "Print the desired rules and routing; changes nothing",
        help::PLAN, help::PRINTS;
    Apply as Apply, "apply",
        "Put a redirection in force in a pod's namespace; prints one line for each change",
        help::APPLY, help::CHANGES_AND_PROBES;
    Verify as Verify, "verify",
        "Compare a pod's namespace with a redirection; changes nothing",
        help::VERIFY, help::COMPARES;
    ShowArgs as Show, "show",
        "Print what the kernel holds in a namespace: rules, sets and routing, also foreign ones",
        help::SHOW, help::LOOKS;
    Clean as Clean, "clean",
        "Remove owned objects from a pod's namespace, and nothing else; succeeds if there are none",
        help::CLEAN, help::CHANGES;
    RestoreArgs as Restore, "restore",
        "Load rules or sets from the text of iptables-save, ip6tables-save or ipset save, without executing these tools",
        help::RESTORE, "";
    Cni as Cni, "cni",
        "Run a chain of CNI plugins as a container runtime does",
        help::CNI, help::RUNS_PLUGINS;
    PreflightArgs as Preflight, "preflight",
        "Probe the features of this kernel, and which jobs of weir they allow",
        help::PREFLIGHT, "";
    DemoArgs as Demo, "demo",
        "Redirect a throwaway pod and send real traffic through it (as root)",
        help::DEMO, "";
}

/// One command; its arguments are built only when it is called.
pub fn one<A: Args>(
    name: &'static str,
    about: &'static str,
    help: &'static str,
    codes: &'static str,
) -> clap::Command {
    let command = clap::Command::new(name).about(about).defer(A::augment_args);
    match codes {
        "" => command.after_help(help),
        codes => command.after_help(with(help, codes)),
    }
}

#[derive(Debug, Args)]
pub struct Plan {
    #[command(subcommand)]
    pub(super) what: PlanCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum PlanCommand {
    /// Print the redirection of a pod with a sidecar proxy
    #[command(after_help = with(help::PLAN_SIDECAR, help::PRINTS), mut_arg("engine", planned_engine))]
    Sidecar(PlanArgs),
    /// Print the redirection of a pod of ambient mode
    #[command(after_help = with(help::PLAN_AMBIENT, help::PRINTS), mut_arg("engine", planned_engine_or_programs))]
    Ambient(DesiredArgs),
    /// Print what redirection at the node would change, and its conflicts with foreign objects
    #[command(after_help = with(help::PLAN_NODE_AMBIENT, help::PRINTS))]
    NodeAmbient(NodeAmbientArgs),
}

#[derive(Debug, Args)]
pub struct Apply {
    #[command(subcommand)]
    pub(super) what: ApplyCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum ApplyCommand {
    /// Redirect the traffic of a pod with a sidecar proxy
    #[command(after_help = with(help::APPLY_SIDECAR, help::CHANGES_AND_PROBES), mut_arg("engine", engine_of_rules))]
    Sidecar(ApplyArgs),
    /// Redirect the traffic of a pod of ambient mode
    #[command(after_help = with(help::APPLY_AMBIENT, help::CHANGES))]
    Ambient(ApplyArgs),
    /// Redirect traffic of enrolled pods in the node's own namespace to one proxy
    #[command(after_help = with(help::APPLY_NODE_AMBIENT, help::CHANGES))]
    NodeAmbient(NodeAmbientApplyArgs),
}

#[derive(Debug, Args)]
pub struct Verify {
    #[command(subcommand)]
    pub(super) what: VerifyCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum VerifyCommand {
    /// Compare the namespace of a pod with a sidecar proxy
    #[command(after_help = with(help::VERIFY_SIDECAR, help::COMPARES), mut_arg("engine", engine_of_rules))]
    Sidecar(VerifyArgs),
    /// Compare the namespace of a pod of ambient mode
    #[command(after_help = with(help::VERIFY_AMBIENT, help::COMPARES))]
    Ambient(VerifyArgs),
    /// Make connections in the namespace of a pod of this node, and see where they land
    #[command(after_help = format!("{}\n\nExample:\n  weir verify pod shop/web --live --from other", help::LIVE))]
    Pod(LivePodArgs),
    /// Make connections in a network namespace, and see where they land
    #[command(after_help = format!("{}\n\nExample:\n  weir verify netns /run/netns/pod --live --dns 10.96.0.10", help::LIVE))]
    Netns(LiveNetnsArgs),
    /// Compare the node's namespace, and its proxy's, with a configuration
    #[command(after_help = with(help::VERIFY_NODE_AMBIENT, help::COMPARES))]
    NodeAmbient(NodeAmbientArgs),
}

#[derive(Debug, Args)]
pub struct Cni {
    #[command(subcommand)]
    pub(super) verb: CniCommand,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Clean {
    #[command(flatten)]
    pub(super) target: Option<Target>,
    /// Without effect: objects of both engines are always removed
    #[arg(long, hide = true)]
    pub(super) all_engines: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) what: Option<CleanCommand>,
}

#[derive(Debug, Subcommand)]
pub(super) enum CleanCommand {
    /// Remove the redirection of a pod of ambient mode
    #[command(after_help = with(help::CLEAN_AMBIENT, help::CHANGES))]
    Ambient(AmbientCleanArgs),
    /// Remove the redirection at the node
    #[command(after_help = with(help::CLEAN_NODE_AMBIENT, help::CHANGES))]
    NodeAmbient(NodeAmbientCleanArgs),
}

impl Command {
    /// Runs the command and returns its exit code.
    ///
    /// # Errors
    /// The command failed.
    pub fn run(self) -> Result<u8, Failure> {
        match self {
            Self::Plan(Plan { what }) => match what {
                PlanCommand::Sidecar(a) => sidecar::plan(&a),
                PlanCommand::Ambient(a) => ambient::plan(&a),
                PlanCommand::NodeAmbient(a) => node_ambient::plan(&a),
            },
            Self::Apply(Apply { what }) => match what {
                ApplyCommand::Sidecar(a) => sidecar::apply(&a),
                ApplyCommand::Ambient(a) => ambient::apply(&a),
                ApplyCommand::NodeAmbient(a) => node_ambient::apply(&a),
            },
            Self::Verify(Verify { what }) => match what {
                VerifyCommand::Sidecar(a) => sidecar::verify(&a),
                VerifyCommand::Ambient(a) => ambient::verify(&a),
                VerifyCommand::Pod(a) => live::pod(&a),
                VerifyCommand::Netns(a) => live::netns(&a),
                VerifyCommand::NodeAmbient(a) => node_ambient::verify(&a),
            },
            Self::Show(a) => show::show(&a),
            Self::Clean(Clean {
                what, target, json, ..
            }) => match (what, target) {
                (Some(CleanCommand::Ambient(a)), _) => ambient::clean(&a),
                (Some(CleanCommand::NodeAmbient(a)), _) => node_ambient::clean(&a),
                (None, Some(target)) => clean::clean(&target, json),
                (None, None) => Err(Failure::usage("one of --netns and --pid is needed")),
            },
            Self::Restore(a) => restore::run(&a),
            Self::Cni(Cni { verb }) => cni::run(verb),
            Self::Preflight(a) => preflight::run(&a),
            Self::Demo(a) => demo::demo(&a),
        }
    }
}
