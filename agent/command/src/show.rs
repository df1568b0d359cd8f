//! `weir show`

use super::args::Target;
use super::failure::Failure;
use super::{ambient_ebpf, output, routing, target};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::io::Write as _;
use weir_cni::redirection::TABLES;
use weir_ebpf::show::Shown;
use weir_netfilter::nft::TableFamily;
use weir_netlink::attr::bytes_of;
use weir_rules::show;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ShowEngine {
    /// nf_tables
    Nft,
    /// Legacy tables
    Xtables,
    /// Sets of ipset
    Ipset,
    /// Programs of eBPF at the interfaces, with links, maps and pins
    Bpf,
    /// No engine: addresses, policy rules and routes
    Routing,
    /// All of them
    All,
}

/// Of a kernel without bpf(2).
const NO_PROGRAMS: Shown = Shown {
    programs: Vec::new(),
    counters: Vec::new(),
    has_more_pins: false,
};

#[derive(Debug, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// The kernel subsystem to show
    #[arg(long, value_enum, default_value_t = ShowEngine::All)]
    pub(super) engine: ShowEngine,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// `weir show`. Any namespace is allowed, even the host's.
pub(super) fn show(a: &ShowArgs) -> Result<u8, Failure> {
    let netns = target::netns(&a.target, |e| Failure::unknown(e))?;
    let wants = |engine| a.engine == ShowEngine::All || a.engine == engine;
    let nft = wants(ShowEngine::Nft).then(|| show::nft(&netns));
    let nft = nft.transpose().map_err(Failure::unknown)?;
    let routing = wants(ShowEngine::Routing).then(|| routing::read(&netns));
    let routing = routing.transpose().map_err(Failure::unknown)?;
    let bpf = wants(ShowEngine::Bpf).then(|| ambient_ebpf::show(&netns));
    // bpf(2) needs more rights than netlink: without them the rest is shown.
    let (bpf, untold) = match (a.engine, bpf.transpose()) {
        (ShowEngine::All, Err(e)) if e.is_unsupported() => (Some(NO_PROGRAMS), None),
        (ShowEngine::All, Err(e)) => {
            let why = "run this as root of the node, or name another part with --engine";
            (
                None,
                Some(format!("eBPF programs cannot be read: {e}; {why}")),
            )
        }
        (_, bpf) => (bpf.map_err(Failure::unknown)?, None),
    };
    if a.json {
        let legacy = wants(ShowEngine::Xtables).then(|| show::legacy(&netns));
        let legacy = legacy.transpose().map_err(Failure::unknown)?;
        let sets = wants(ShowEngine::Ipset).then(|| show::sets(&netns));
        let sets = sets.transpose().map_err(Failure::unknown)?;
        let is_ours = |t: &weir_netfilter::nft::Table| {
            t.family == TableFamily::Inet && TABLES.contains(&t.name.as_str())
        };
        let printed = output::json(&json!({
            "netns": netns.id().to_string(),
            "nft": nft.map(|rules| output::ruleset(&rules, is_ours)),
            "xtables": legacy.map(|rules| output::xtables(&rules)),
            "ipset": sets.map(|sets| output::sets(&sets)),
            "bpf": bpf.map(|bpf| ambient_ebpf::json(&bpf)),
            "routing": routing.map(|routing| routing.json()),
            "untold": untold.iter().collect::<Vec<_>>(),
        }));
        return ended(printed, untold);
    }
    let legacy = wants(ShowEngine::Xtables).then(|| show::legacy_text(&netns));
    let legacy = legacy.transpose().map_err(Failure::unknown)?;
    let sets = wants(ShowEngine::Ipset).then(|| show::sets_text(&netns));
    let sets = sets.transpose().map_err(Failure::unknown)?;
    let printed = output::stream(|out| {
        let out = &mut output::Harmless::new(out);
        let mut texts = output::Bytes(out);
        nft.iter().try_for_each(|r| write!(texts, "{r}"))?;
        if let Some(Some(legacy)) = &legacy {
            legacy.write(|piece| out.write_all(&bytes_of(piece)))?;
        }
        sets.iter().try_for_each(|text| out.write_all(text))?;
        bpf.iter().try_for_each(|bpf| write!(out, "{bpf}"))?;
        routing
            .iter()
            .try_for_each(|r| out.write_all(r.text().as_bytes()))
    });
    ended(printed, untold)
}

/// The end of a command that has printed what is known.
fn ended(printed: Result<u8, Failure>, untold: Option<String>) -> Result<u8, Failure> {
    let code = printed?;
    untold.map_or(Ok(code), |why| Err(Failure::unknown(why)))
}
