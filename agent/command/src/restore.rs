//! `weir restore`: text that other tools generate, read as a whole, then programmed.

use super::args::Target;
use super::failure::Failure;
use super::{output, source, trial};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;
use weir_cni::redirection::Sandbox;
use weir_cni::redirection::refuse_host;
use weir_netfilter::ipset::{self, Existing};
use weir_netfilter::xtables::{self, Script, Writers, XtFamily};
use weir_netlink::{Error, InForce, Netns};

#[derive(Debug, Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// Keep the rules and chains that are there (iptables); entries of sets always stay
    #[arg(long)]
    pub(super) noflush: bool,
    /// Read and check all of it, change nothing
    #[arg(long)]
    pub(super) test: bool,
    /// Format of the text [default: found from the text]
    #[arg(long, value_enum)]
    pub(super) format: Option<FormatArg>,
    /// Allow the host's own namespace; waits up to 30 s for the lock of the iptables tools
    #[arg(long)]
    pub(super) host: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// The text ("-" is stdin)
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FormatArg {
    /// iptables-save
    Iptables,
    /// ip6tables-save
    Ip6tables,
    /// ipset save
    Ipset,
}

/// How long the tools on a node may hold their lock.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a line of ipset's text begins with.
const VERBS: [&str; 7] = ["create", "add", "del", "flush", "destroy", "rename", "swap"];

/// What was done, or would be.
struct Report {
    /// For a person, without the verb.
    text: String,
    /// For a program.
    fields: Value,
    lock_wait: Option<Duration>,
    /// What a test could not find out.
    untold: Vec<String>,
}

/// `weir restore`
pub(super) fn run(a: &RestoreArgs) -> Result<u8, Failure> {
    let name = source::name(&a.file);
    let text = source::read_any(&a.file, source::RESTORED)?;
    let unusable =
        |why: &dyn Display| Failure::usage(format!("{name}: {why}; nothing was changed"));
    let format = match a.format {
        Some(format) => format,
        None => guess(&text).map_err(|why| unusable(&why))?,
    };
    let family = match format {
        FormatArg::Iptables => Some(XtFamily::Ip),
        FormatArg::Ip6tables => Some(XtFamily::Ip6),
        FormatArg::Ipset => None,
    };
    let script = family.map(|f| Script::parse(f, &text)).transpose();
    let script = script.map_err(|e| unusable(&e))?;

    let netns = source::netns(&a.target, |e| Failure::failed(e))?;
    if !a.host {
        refuse_host(&netns).map_err(|e| {
            Failure::failed(format!("{e}; if the host's is meant, say so by --host"))
        })?;
    }
    let report = match &script {
        Some(script) => tables(a, &netns, script),
        None => sets(a, &netns, &text),
    };
    let report = report.map_err(|f| Failure {
        message: format!("{name}: {}", f.message),
        ..f
    })?;
    print(a, &netns, format, report)
}

/// What `iptables-restore` would do, in one replacement for each table.
fn tables(a: &RestoreArgs, netns: &Netns, script: &Script) -> Result<Report, Failure> {
    let writers = if a.host {
        Writers::Others { patience: PATIENCE }
    } else {
        Writers::OnlyUs
    };
    let (lock_wait, untold) = if a.test {
        (None, trial::tables(netns, script, a.noflush)?)
    } else {
        let done = netns.run(|| {
            let lock = a.host.then(weir_cni::of_node::lock_file).flatten();
            let engine = xtables::XtEngine::open()?.writers(writers);
            let mut engine = engine.lock_file(lock);
            engine.restore(script, a.noflush)
        });
        let done = done.and_then(|r| r).map_err(Failure::failed)?;
        (done.lock_wait, Vec::new())
    };
    let (tables, commands) = (
        script.tables.len(),
        script
            .tables
            .iter()
            .map(|t| t.commands.len())
            .sum::<usize>(),
    );
    Ok(Report {
        text: format!(
            "{} of {}, {}",
            count(tables, "table"),
            script.family,
            count(commands, "command")
        ),
        fields: json!({ "tables": tables, "commands": commands }),
        lock_wait,
        untold,
    })
}

/// What `ipset restore` would do.
fn sets(a: &RestoreArgs, netns: &Netns, text: &str) -> Result<Report, Failure> {
    // What the text may name without creating it.
    let known = Sandbox::show_set_headers(netns).map_err(Failure::failed)?;
    let statements = ipset::restore::check(text, known.clone())
        .map_err(|e| Failure::usage(format!("{e}; nothing was changed")))?;
    let mut fields = json!({ "statements": statements });
    let mut untold = Vec::new();
    if a.test {
        untold = trial::sets(netns, text, known)?;
    } else {
        let done = netns.run(|| {
            let mut engine = ipset::IpsetEngine::open().map_err(Failure::failed)?;
            let done = engine.restore(text, Existing::Refuse);
            done.map_err(|e| Failure::failed(place(e)))
        });
        let done = done.map_err(Failure::failed)??;
        fields = json!({ "statements": done.statements, "entries": done.entries });
    }
    Ok(Report {
        text: format!("{} of ipset", count(statements, "command")),
        fields,
        lock_wait: None,
        untold,
    })
}

/// What is in force after an error: ipset has no transactions.
fn place(e: Error) -> String {
    match e.in_force {
        InForce::No => format!("{e}; nothing was changed"),
        _ => format!(
            "{}; the lines before it are in force, and perhaps a part of it",
            e.with_in_force(InForce::No)
        ),
    }
}

fn print(a: &RestoreArgs, netns: &Netns, format: FormatArg, report: Report) -> Result<u8, Failure> {
    let Report {
        text,
        mut fields,
        lock_wait,
        untold,
    } = report;
    if a.json {
        if let Some(object) = fields.as_object_mut() {
            object.insert("netns".into(), json!(netns.id().to_string()));
            object.insert("format".into(), json!(format.name()));
            object.insert("test".into(), json!(a.test));
            object.insert("changed".into(), json!(!a.test));
            object.insert(
                "lockWaitSeconds".into(),
                json!(lock_wait.map(|w| w.as_secs_f64())),
            );
            object.insert("untold".into(), json!(untold));
        }
        return say(a, &output::json_text(&fields));
    }
    let mut lines = String::new();
    if let Some(wait) = lock_wait {
        let line = format!(
            "waited {:.3} s for the lock of the iptables tools",
            wait.as_secs_f64()
        );
        output::push_line(&mut lines, &line);
    }
    for one in &untold {
        output::push_line(&mut lines, &format!("unknown: {one}"));
    }
    lines += &if a.test {
        format!("{text}: can be restored; nothing was changed\n")
    } else {
        format!("restored {text}\n")
    };
    say(a, &lines)
}

fn say(a: &RestoreArgs, text: &str) -> Result<u8, Failure> {
    match a.test {
        true => output::text(text),
        false => output::report(text, "the text is restored and in force"),
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

impl FormatArg {
    fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Ip6tables => "ip6tables",
            Self::Ipset => "ipset",
        }
    }
}

/// Whose text it is.
fn guess(text: &str) -> Result<FormatArg, String> {
    let line = |is_it: &dyn Fn(&str) -> bool| {
        let found = text.lines().position(|l| is_it(l.trim()));
        found.map(|n| n + 1)
    };
    // As the tools write it, and as `weir show` does.
    let header = |l: &str, program: &str| {
        let words = l.strip_prefix('#').map(str::trim_start).unwrap_or_default();
        let words = words.strip_prefix("Generated by ").unwrap_or(words);
        let saved = words.split_whitespace().next().unwrap_or_default();
        // "iptables-nft-save" and "iptables-legacy-save", by whichever name it was called.
        let saved = saved.strip_suffix("-save").unwrap_or_default();
        saved.split('-').next() == Some(program)
    };
    let verb = |l: &str| {
        l.split_whitespace()
            .next()
            .is_some_and(|w| VERBS.contains(&w))
    };
    let tables = line(&|l| l.starts_with(['*', ':']));
    let sets = line(&verb);
    let v4 = line(&|l| header(l, "iptables"));
    let v6 = line(&|l| header(l, "ip6tables"));
    match (tables, sets, v4, v6) {
        (Some(t), Some(s), ..) => Err(format!(
            "line {t} is of iptables and line {s} of ipset; restore them apart, each with --format"
        )),
        (Some(_), None, Some(a), Some(b)) => Err(format!(
            "line {a} begins a text of iptables and line {b} one of ip6tables; restore them apart"
        )),
        (Some(_), None, _, Some(_)) => Ok(FormatArg::Ip6tables),
        (Some(_), None, ..) => Ok(FormatArg::Iptables),
        (None, Some(_), ..) => Ok(FormatArg::Ipset),
        (None, None, ..) => Err(
            "no line begins with *TABLE as for iptables, nor with create or add as for ipset; \
             give --format"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_whose_it_is() {
        use FormatArg::{Ip6tables, Ipset, Iptables};
        for (text, format) in [
            ("*nat\nCOMMIT\n", Iptables),
            (
                "# Generated by iptables-save v1.8.9 on Monday\n*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n",
                Iptables,
            ),
            (
                "# Generated by ip6tables-save v1.8.9 (nf_tables)\n*nat\nCOMMIT\n",
                Ip6tables,
            ),
            ("# ip6tables-save\n*nat\nCOMMIT\n", Ip6tables),
            (
                "# Generated by ip6tables-nft-save v1.8.9 (nf_tables)\n*nat\nCOMMIT\n",
                Ip6tables,
            ),
            (
                "# Generated by ip6tables-legacy-save v1.8.9\n*nat\nCOMMIT\n",
                Ip6tables,
            ),
            ("# ip6tables are saved here\n*nat\nCOMMIT\n", Iptables),
            (
                "\n# a comment\ncreate a hash:ip\nadd a 10.0.0.1\nCOMMIT\n",
                Ipset,
            ),
            ("add a 10.0.0.1", Ipset),
        ] {
            assert_eq!(guess(text), Ok(format), "{text}");
        }
        for (text, words) in [
            ("", "--format"),
            ("COMMIT\n", "--format"),
            ("-A a 10.0.0.1\n", "--format"),
            (
                "create a hash:ip\n*nat\nCOMMIT\n",
                "line 2 is of iptables and line 1 of ipset",
            ),
            (
                "# iptables-save\n*nat\nCOMMIT\n# ip6tables-save\n*nat\nCOMMIT\n",
                "line 4",
            ),
        ] {
            let why = guess(text).unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}
