//! `weir restore --test`: checks what the kernel would accept, without changing anything or loading modules.

use super::failure::Failure;
use super::restore::unchanged;
use std::collections::BTreeSet;
use weir_netfilter::ipset::{self, restore::Checked};
use weir_netfilter::probe::{self, Answer};
use weir_netfilter::xtables::{self, Script, XtFamily};
use weir_netlink::Netns;

/// Facts that could not be determined, if nothing is known to be lacking.
pub(super) type Untold = Vec<String>;

/// Checks a text of `iptables-restore`. Tables are probed in a throwaway namespace, because probing may create
/// them.
pub(super) fn tables(netns: &Netns, script: &Script, keep: bool) -> Result<Untold, Failure> {
    let kernel = probe::RunningKernel::read();
    let checked = netns.run(|| xtables::XtEngine::open()?.check(script, keep, &kernel));
    let checked = checked.and_then(|r| r).map_err(|e| unchanged(&e))?;
    let mut lacking: Vec<String> = checked.lacking.iter().map(ToString::to_string).collect();
    let mut untold = checked.untold;
    let names: BTreeSet<&str> = script.tables.iter().map(|t| t.name.as_str()).collect();
    let ask = || -> Vec<Answer> {
        let of = |name: &&str| {
            probe::xtables::table_answer(&kernel, name, script.family == XtFamily::Ip6)
        };
        names.iter().map(of).collect()
    };
    let answers = Netns::create().and_then(|throwaway| throwaway.run(ask));
    match answers {
        Ok(answers) => {
            for (name, answer) in names.iter().zip(answers) {
                let line = format!("{} table {name}: {}", script.family, answer.detail());
                match answer {
                    Answer::Have(_) => {}
                    Answer::Lack(_) => lacking.push(format!("this kernel lacks {line}")),
                    Answer::Unknown(_) => untold.push(line),
                }
            }
        }
        Err(e) => untold.push(format!("tables: {e}")),
    }
    verdict(lacking, untold)
}

/// The kernel has no way to ask, and no transaction for sets.
const ENTRIES: &str = "whether entries and sets already exist, are missing, or exceed a limit: the kernel reports this only during the restore, and what \
                       was done before stays in force";

/// Checks a text of `ipset restore`: the types and options of the sets that it creates.
pub(super) fn sets(netns: &Netns, text: &Checked<'_>) -> Result<Untold, Failure> {
    let kernel = probe::RunningKernel::read();
    let (mut lacking, mut untold) = (Vec::new(), BTreeSet::new());
    if text.statements() > 0 {
        untold.insert(ENTRIES.to_owned());
    }
    let asked = netns.run(|| {
        for (line, header) in text.created() {
            let kind = header.kind.name();
            if let Some(Answer::Unknown(why)) = probe::ipset::guard(&kernel, kind) {
                untold.insert(format!("set type {kind}: {why}"));
                continue;
            }
            if let Err(e) = ipset::IpsetEngine::open()?.check_header(header) {
                lacking.push(format!("line {line}: {e}"));
            }
        }
        Ok(())
    });
    asked.and_then(|r| r).map_err(Failure::failed)?;
    verdict(lacking, untold.into_iter().collect())
}

fn verdict(lacking: Vec<String>, untold: Untold) -> Result<Untold, Failure> {
    if lacking.is_empty() {
        return Ok(untold);
    }
    Err(Failure::failed(format!(
        "{}; nothing was changed",
        lacking.join("\n  ")
    )))
}
