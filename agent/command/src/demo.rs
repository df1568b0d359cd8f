//! `weir demo`

use super::ambient_ebpf::bpffs;
use super::args::EngineArg;
use super::failure::{Failure, code};
use super::output;
use super::source::named;
use clap::Args;
use weir_demo::node_ambient::Way;

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Show a pod in ambient mode in place of one with a sidecar
    #[arg(long)]
    pub(super) ambient: bool,
    /// Show pods whose traffic the node routes to one proxy in place of a pod with a sidecar
    #[arg(long, conflicts_with = "ambient")]
    pub(super) node_ambient: bool,
    /// The kernel subsystem that captures at the node; ebpf needs no rules, routes and tunnels (Linux 5.10)
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        requires = "node_ambient",
        conflicts_with = "ambient"
    )]
    pub(super) engine: EngineArg,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Show all flows, even after one went to an unexpected destination
    #[arg(long)]
    pub(super) keep_going: bool,
}

/// `weir demo`
pub(super) fn demo(a: &DemoArgs) -> Result<u8, Failure> {
    let at_node = |way| weir_demo::run_node_ambient(way, a.json, a.keep_going);
    let shown = match (a.node_ambient, a.engine) {
        (false, _) => weir_demo::run(a.ambient, a.json, a.keep_going),
        (true, EngineArg::Ebpf) => at_node(Way::Programs(&bpffs().map_err(Failure::failed)?)),
        (true, engine) => at_node(Way::Rules(named(engine, None))),
    };
    let (text, is_good) = shown.map_err(Failure::failed)?;
    output::text(&text)?;
    Ok(match is_good {
        true => code::SUCCESS,
        false => code::FAILED,
    })
}
