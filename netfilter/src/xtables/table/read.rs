//! Decodes the kernel's bytes to chains.

use super::super::entry::{self, Ending, Entry};
use super::super::ext::Context;
use super::super::raw::{NF_ACCEPT, NF_DROP, NF_INET_NUMHOOKS};
use super::super::ruleset::declare;
use super::super::target::VERDICTS;
use super::super::{Policy, Rule, Target, XtFamily};
use super::{ChainLayout, Counters, HOOKS, Info, Layout, Old, RuleLayout};
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io;
use std::ops::Range;
use weir_netlink::{Error, Result};

/// The chains of a table, whose rules are decoded one at a time.
struct Chains<'a> {
    blob: &'a [u8],
    cx: &'a Context<'a>,
    offsets: Vec<usize>,
    /// The names of user chains by the offset that jumps use: that after their heads.
    names: HashMap<usize, String>,
    /// Each with the indexes of its rules: built-in chains by hook, then user chains by name.
    chains: Vec<(ChainLayout, Range<usize>)>,
}

impl Layout {
    /// Decodes the kernel's answer.
    pub(in crate::xtables) fn decode(
        name: &str,
        info: Info,
        blob: Vec<u8>,
        cx: &Context<'_>,
    ) -> Result<Self> {
        let read = || -> Result<Vec<ChainLayout>, String> {
            let mut found = Chains::find(&info, &blob, cx)?;
            let chains = std::mem::take(&mut found.chains);
            let filled = chains.into_iter().map(|(chain, rules)| {
                let rules: Result<_, _> = rules.map(|n| found.layout(n)).collect();
                Ok(ChainLayout {
                    rules: rules?,
                    ..chain
                })
            });
            filled.collect()
        };
        let chains = read().map_err(|why| malformed(name, cx.family, why))?;
        Ok(Self {
            family: cx.family,
            name: name.to_owned(),
            info,
            chains,
            blob,
        })
    }

    /// The counters of its entries, in their order.
    pub(in crate::xtables) fn counters(&self) -> Vec<Counters> {
        let outlines = entry::outlines(&self.blob, self.family).map_while(Result::ok);
        let of = |at| entry::counters(&self.blob, at, self.family).unwrap_or_default();
        outlines.map(|(at, ..)| of(at)).collect()
    }
}

/// A buffer of text that is passed on in pieces of whole lines.
pub(in crate::xtables) struct Pieces<'a> {
    text: String,
    take: &'a mut dyn FnMut(&str) -> io::Result<()>,
}

/// Number of bytes from which the text is passed on.
const PIECE: usize = 1 << 16;

impl<'a> Pieces<'a> {
    pub(in crate::xtables) fn new(take: &'a mut dyn FnMut(&str) -> io::Result<()>) -> Self {
        let text = String::with_capacity(PIECE + PIECE / 8);
        Self { text, take }
    }

    pub(in crate::xtables) fn push(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        // Writing to a String does not fail.
        let _ = self.text.write_fmt(line);
        match self.text.len() {
            ..PIECE => Ok(()),
            _ => self.end(),
        }
    }

    /// Passes on the rest of the text.
    pub(in crate::xtables) fn end(&mut self) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let taken = (self.take)(&self.text);
        self.text.clear();
        taken
    }
}

/// The text of [`Table`](super::Table), without the values of more than one rule at a time.
pub(in crate::xtables) fn text(
    name: &str,
    info: &Info,
    blob: &[u8],
    cx: &Context<'_>,
    out: &mut Pieces<'_>,
) -> io::Result<()> {
    let wrong = |why| io::Error::other(malformed(name, cx.family, why));
    let found = Chains::find(info, blob, cx).map_err(wrong)?;
    out.push(format_args!("*{name}\n"))?;
    for (chain, _) in &found.chains {
        let _ = declare(&mut out.text, &chain.name, chain.kind());
        out.push(format_args!(""))?;
    }
    let mut rule = Rule::default();
    for (chain, rules) in &found.chains {
        for n in rules.clone() {
            found.entry(n, &mut rule).map_err(wrong)?;
            out.text.push_str("-A ");
            out.text.push_str(&chain.name);
            out.push(format_args!("{rule}\n"))?;
        }
    }
    out.push(format_args!("COMMIT\n"))
}

fn malformed(name: &str, family: XtFamily, why: String) -> Error {
    Error::malformed("read", format!("{family} table {name}"), why)
}

impl<'a> Chains<'a> {
    fn find(info: &Info, blob: &'a [u8], cx: &'a Context<'a>) -> Result<Self, String> {
        let mut found = Self {
            blob,
            cx,
            offsets: Vec::with_capacity(info.entries.min(blob.len())),
            names: HashMap::new(),
            chains: Vec::new(),
        };
        let hook_at = |offsets: &[u32; NF_INET_NUMHOOKS], at: usize| {
            let here = |(hook, offset): (usize, &u32)| {
                let is_valid = info.valid_hooks & (1 << hook) != 0;
                (is_valid && usize::try_from(*offset) == Ok(at)).then_some(hook)
            };
            offsets.iter().enumerate().find_map(here)
        };
        let mut current: Option<(ChainLayout, Range<usize>)> = None;
        for (n, outline) in entry::outlines(blob, cx.family).enumerate() {
            let (at, len, ending) = outline?;
            found.offsets.push(at);
            if let Ending::Error(name) = ending {
                found.close(current.take())?;
                // The last one is the end of the table.
                if at + len < blob.len() {
                    let chain = ChainLayout {
                        head: Some(n),
                        ..ChainLayout::user(&name)
                    };
                    current = Some((chain, n + 1..n + 1));
                    found.names.insert(at + len, name);
                }
                continue;
            }
            if let Some(hook) = hook_at(&info.hook_entry, at) {
                found.close(current.take())?;
                let name = HOOKS.get(hook).copied().unwrap_or_default();
                // The policy is set when its entry is found.
                let builtin = Some((hook, Policy::Accept));
                let chain = ChainLayout {
                    builtin,
                    ..ChainLayout::user(name)
                };
                current = Some((chain, n..n));
            }
            let Some((chain, rules)) = current.as_mut() else {
                return Err(format!("the entry at offset {at} is in no chain"));
            };
            let underflow = hook_at(&info.underflow, at);
            if let (Some((hook, _)), true) = (chain.builtin, underflow.is_some()) {
                let policy = match ending {
                    Ending::Verdict(v) if v == -NF_ACCEPT - 1 => Policy::Accept,
                    Ending::Verdict(v) if v == -NF_DROP - 1 => Policy::Drop,
                    _ => {
                        return Err(format!(
                            "the policy of chain {} is neither ACCEPT nor DROP",
                            chain.name
                        ));
                    }
                };
                chain.builtin = Some((hook, policy));
                chain.tail = Some(n);
                chain.counters = entry::counters(blob, at, cx.family).unwrap_or_default();
                found.chains.extend(current.take());
                continue;
            }
            rules.end = n + 1;
        }
        found.close(current)?;
        if found.offsets.len() != info.entries {
            let (have, said) = (found.offsets.len(), info.entries);
            return Err(format!(
                "the kernel announced {said} entries and returned {have}"
            ));
        }
        found.end_chains()?;
        found
            .chains
            .sort_by(|(a, _), (b, _)| a.place().cmp(&b.place()));
        Ok(found)
    }

    fn close(&mut self, chain: Option<(ChainLayout, Range<usize>)>) -> Result<(), String> {
        if let Some((c, _)) = chain.as_ref().filter(|(c, _)| c.builtin.is_some()) {
            return Err(format!("the built-in chain {} has no policy", c.name));
        }
        self.chains.extend(chain);
        Ok(())
    }

    /// The last rule of a user chain is the implicit `RETURN`.
    fn end_chains(&mut self) -> Result<(), String> {
        let end = Rule {
            target: Some(Target::Return),
            ..Rule::default()
        };
        let mut chains = std::mem::take(&mut self.chains);
        for (chain, rules) in chains.iter_mut().filter(|(c, _)| c.builtin.is_none()) {
            let Some(last) = rules.clone().next_back() else {
                continue;
            };
            let mut rule = Rule::default();
            self.entry(last, &mut rule)?;
            if rule == end {
                (chain.tail, chain.counters) = (Some(last), self.counters(last));
                rules.end = last;
            }
        }
        self.chains = chains;
        Ok(())
    }

    /// The offset of the n-th entry.
    fn at(&self, n: usize) -> usize {
        self.offsets.get(n).copied().unwrap_or(self.blob.len())
    }

    fn counters(&self, n: usize) -> Counters {
        entry::counters(self.blob, self.at(n), self.cx.family).unwrap_or_default()
    }

    /// Decodes the n-th entry to `rule`, with the chain that it jumps to.
    fn entry(&self, n: usize, rule: &mut Rule) -> Result<Entry, String> {
        let at = self.at(n);
        let rest = self.blob.get(at..).unwrap_or_default();
        let entry = entry::decode(rest, self.cx, rule)
            .ok_or_else(|| format!("no rule begins at offset {at}"))?;
        if let Ending::Verdict(verdict) = entry.ending {
            rule.target = match usize::try_from(verdict) {
                // Continues with the next rule: no target.
                Ok(to) if to == at + entry.len && !entry.goto => None,
                Ok(to) => {
                    let chain = self.names.get(&to).cloned();
                    let chain = chain
                        .ok_or_else(|| format!("the rule at offset {at} jumps to no chain"))?;
                    Some(if entry.goto {
                        Target::Goto(chain)
                    } else {
                        Target::Jump(chain)
                    })
                }
                Err(_) => {
                    let known = VERDICTS.iter().find(|(_, n)| *n == verdict);
                    let wrong = || format!("the rule at offset {at} has the verdict {verdict}");
                    Some(known.ok_or_else(wrong)?.0.clone())
                }
            };
        }
        Ok(entry)
    }

    fn layout(&self, n: usize) -> Result<RuleLayout, String> {
        let mut rule = Rule::default();
        let entry = self.entry(n, &mut rule)?;
        let at = self.at(n);
        Ok(RuleLayout {
            rule,
            tag: entry::tag(self.blob, at, self.cx.family).unwrap_or(0),
            old: Some(Old {
                entry: Some(n),
                at,
                len: entry.len,
                target: entry.target,
                counters: self.counters(n),
            }),
        })
    }
}
