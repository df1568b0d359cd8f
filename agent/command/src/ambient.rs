//! `weir plan|apply|verify|clean ambient`

use super::agent_settings::AgentSettings;
use super::ambient_ebpf as ebpf;
use super::args::{ApplyArgs, DesiredArgs, EngineArg, Source, Target, VerifyArgs};
use super::failure::{Failure, warn};
use super::files::{DESCRIPTION, name, read};
use super::output;
use super::report::{NO_ENGINE, lines, nothing, report, verified};
use super::sidecar::written;
use super::source::named;
use super::target::sandbox;
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_ambient::{AMBIENT, Config, PodOverrides, Redirect, Request};
use weir_cni::compile::Engine;
use weir_cni::plugin::{Enablement, NotAmbient};
use weir_cni::pod::{Pod, PodFacts};
use weir_cni::redirection::{Desired, Sandbox, Visit};
use weir_core::settings::resolve;
use weir_ebpf::Lock;
use weir_ebpf::show::Of;

#[derive(Debug, Args)]
pub(super) struct AmbientCleanArgs {
    /// The configuration of `weir plan ambient` ("-" is stdin)
    #[arg(long, value_name = "FILE", conflicts_with = "pod")]
    pub(super) config: Option<PathBuf>,
    /// A pod as YAML or JSON ("-" is stdin)
    #[arg(long, value_name = "FILE")]
    pub(super) pod: Option<PathBuf>,
    #[command(flatten)]
    pub(super) target: Target,
    /// Print what would be removed and remove nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// `weir plan ambient`
pub(super) fn plan(a: &DesiredArgs) -> Result<u8, Failure> {
    let redirect = match redirect(&a.source)? {
        Ok(redirect) => redirect,
        Err(reason) => return nothing(a.json, &reason),
    };
    if a.engine == EngineArg::Ebpf {
        return ebpf::plan(&redirect, a.json);
    }
    let asked = named(a.engine, None);
    let engine = asked.unwrap_or(Engine::Nft);
    let compiled = redirect.compile_for(asked, engine);
    match a.json {
        true => output::json(&output::compiled(&compiled, engine)),
        false => output::text(&compiled.to_string()),
    }
}

/// `weir apply ambient`
pub(super) fn apply(a: &ApplyArgs) -> Result<u8, Failure> {
    let sandbox = known(&a.target, |e| Failure::failed(e))?;
    let redirect = match redirect(&a.desired.source)? {
        Ok(redirect) => redirect,
        Err(reason) => return nothing(a.desired.json, &reason),
    };
    let lock = alone(&sandbox, a.dry_run)?;
    if ebpf::is_asked(a.desired.engine, &sandbox).map_err(Failure::failed)? {
        return ebpf::apply(&redirect, &sandbox, a, lock);
    }
    let asked = named(a.desired.engine, None);
    let inside = |visit: &Visit<'_>| written(visit, &redirect, asked, a.dry_run);
    let done = sandbox.visit_for(&AMBIENT, inside);
    let (changes, engine, warnings) = done.map_err(Failure::failed)??;
    let detached = ebpf::hand_over(&sandbox, a.dry_run).map_err(|e| match a.dry_run {
        true => e,
        false => Failure::failed(format!(
            "the rules are in force; eBPF programs may still be attached beside them, and a second apply detaches these: {}",
            e.message
        )),
    });
    let changes = lines(&changes, &detached?);
    drop(lock);
    let by = (Some(engine), warnings);
    report(&changes, &sandbox, by, a.desired.json, a.dry_run)
}

/// `weir verify ambient`
pub(super) fn verify(a: &VerifyArgs) -> Result<u8, Failure> {
    let (sandbox, unknown) = looked(&a.target, |e| Failure::unknown(e))?;
    let redirect = match redirect(&a.desired.source)? {
        Ok(redirect) => redirect,
        Err(reason) => return nothing(a.desired.json, &reason),
    };
    if ebpf::is_asked(a.desired.engine, &sandbox).map_err(Failure::unknown)? {
        return ebpf::verify(&redirect, &sandbox, a.desired.json);
    }
    let programs = ebpf::beside(&sandbox)?;
    let inside = |visit: &Visit<'_>| {
        let asked = named(a.desired.engine, None);
        let engine = asked.map_or_else(|| visit.engine_to_try().map(|(engine, _)| engine), Ok);
        let engine = engine.map_err(Failure::unknown)?;
        let compiled = redirect.compile_for(asked, engine);
        // The agent's settings, which may name nf_tables, are not known here: rules of a named engine are accepted, too.
        let of_named = || asked.is_none().then(|| redirect.compile(engine));
        let found = visit.verify_either(&compiled, of_named);
        verified(
            found.map_err(Failure::unknown)?,
            (Some(&programs), unknown.as_deref()),
            visit,
            engine,
            a.desired.json,
        )
    };
    sandbox
        .visit_for(&AMBIENT, inside)
        .map_err(Failure::unknown)?
}

/// `weir clean ambient`
pub(super) fn clean(a: &AmbientCleanArgs) -> Result<u8, Failure> {
    let sandbox = known(&a.target, |e| Failure::failed(e))?;
    let source = Source {
        config: a.config.clone(),
        pod: a.pod.clone(),
    };
    let of = match (&source.config, &source.pod) {
        (None, None) => None,
        _ => match redirect(&source)? {
            Ok(redirect) => Some(redirect.compile(Engine::Xtables)),
            Err(reason) => return nothing(a.json, &reason),
        },
    };
    let lock = alone(&sandbox, a.dry_run)?;
    // The routing is deleted below, together with that of the netfilter engines.
    let detached = ebpf::hand_over(&sandbox, a.dry_run)?;
    let inside = |visit: &Visit<'_>| match a.dry_run {
        true => visit.plan_clean(of.as_ref()).map_err(Failure::failed),
        false => visit
            .clean(of.as_ref())
            .map_err(|e| ebpf::after(&detached, e)),
    };
    let done = sandbox.visit_for(&AMBIENT, inside);
    let changes = done.map_err(|e| match a.dry_run {
        true => Failure::failed(e),
        false => ebpf::after(&detached, e),
    })??;
    drop(lock);
    let warnings = match detached.is_empty() && !changes.is_empty() {
        true => ebpf::switches_left(&sandbox),
        false => Vec::new(),
    };
    let changes = lines(&detached, &changes);
    let by = (NO_ENGINE.0, warnings);
    report(&changes, &sandbox, by, a.json, a.dry_run)
}

/// Excludes other commands that write to the pod's network namespace, with any engine, while the result lives.
pub(super) fn alone(sandbox: &Sandbox, dry_run: bool) -> Result<Option<Lock>, Failure> {
    match dry_run {
        true => Ok(None),
        false => Lock::of_netns(sandbox.netns())
            .map(Some)
            .map_err(Failure::failed),
    }
}

/// Opens the pod's network namespace. Fails if weir's programs in it are pinned where this command does not look.
pub(super) fn known(
    target: &Target,
    failed: fn(&weir_netlink::Error) -> Failure,
) -> Result<Sandbox, Failure> {
    Ok(looked(target, failed)?.0)
}

/// Like [`known`]; also returns the printed warning if that is unknown.
fn looked(
    target: &Target,
    failed: fn(&weir_netlink::Error) -> Failure,
) -> Result<(Sandbox, Option<String>), Failure> {
    let sandbox = sandbox(target, failed)?;
    let unknown = ebpf::refuse_elsewhere([sandbox.netns()], Of::Pod);
    let unknown = unknown.map_err(|e| failed(&e))?;
    unknown.iter().for_each(warn);
    Ok((sandbox, unknown))
}

/// Reads the desired redirection from the file; the inner error is the reason why a pod is not redirected.
fn redirect(source: &Source) -> Result<Result<Redirect, String>, Failure> {
    let (config, overrides) = match (&source.config, &source.pod) {
        (Some(file), _) => {
            let text = read(file, DESCRIPTION)?;
            let request = Request::from_json(&text, &name(file)).map_err(Failure::usage)?;
            for note in &request.notes {
                eprintln!("weir: note: {note}");
            }
            (request.config, request.pod_overrides)
        }
        (None, Some(file)) => match of_pod(file)? {
            Ok(overrides) => (node_settings()?, overrides),
            Err(reason) => return Ok(Err(reason)),
        },
        (None, None) => return Err(Failure::usage("one of --config and --pod is needed")),
    };
    let redirect = Redirect::new(config, &overrides).map_err(Failure::usage)?;
    Ok(Ok(redirect))
}

/// Reads a pod's annotations. Labels are not evaluated: their effect depends on the node agent's settings.
fn of_pod(file: &Path) -> Result<Result<PodOverrides, String>, Failure> {
    let text = read(file, DESCRIPTION)?;
    let pod = Pod::from_manifest(&text, &name(file)).map_err(Failure::usage)?;
    let labels = BTreeMap::new();
    Ok(match Enablement::default().decide(&pod, &labels) {
        Err(why @ (NotAmbient::HostNetwork | NotAmbient::Sidecar)) => {
            let facts = PodFacts::of(&pod);
            Err(format!("pod {facts} is not in ambient mode: {why}"))
        }
        _ => {
            let annotations = &pod.metadata.annotations;
            for what in PodOverrides::unreadable(annotations) {
                warn(what);
            }
            Ok(PodOverrides::of_annotations(annotations))
        }
    })
}

/// The settings of the node's agent.
fn node_settings() -> Result<Config, Failure> {
    const SWITCHES: [&str; 2] = ["AMBIENT_IPV6", "AMBIENT_DNS_CAPTURE"];
    let [ipv6, dns] = SWITCHES;
    let settings = AgentSettings::of(&[ipv6, dns, "HOST_PROBE_SNAT_IP", "HOST_PROBE_SNAT_IPV6"]);
    settings.tell_defaults(&SWITCHES);
    let r = resolve(&BTreeMap::new(), &|name: &str| {
        settings.get(name).map(Into::into)
    });
    let config = Config::of_settings(|name| r.text(name), |name| r.bool(name));
    config.map_err(|(name, why)| Failure::usage(r.refused(name, why)))
}
