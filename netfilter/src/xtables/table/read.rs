//! Decodes the kernel's bytes to chains.

use super::super::entry::{self, Ending, Entry};
use super::super::ext::Context;
use super::super::raw::{NF_ACCEPT, NF_DROP, NF_INET_NUMHOOKS, NF_QUEUE, XT_RETURN};
use super::super::{Policy, Rule, Target, XtFamily};
use super::{ChainLayout, Counters, HOOKS, Info, Layout, Old, RuleLayout};
use std::collections::HashMap;
use weir_netlink::{Error, Result};

impl Layout {
    /// Decodes the kernel's answer.
    pub(in crate::xtables) fn decode(
        name: &str,
        info: Info,
        blob: Vec<u8>,
        cx: &Context<'_>,
    ) -> Result<Self> {
        let family = cx.family;
        let mut made = Self {
            family,
            name: name.to_owned(),
            info,
            chains: Vec::new(),
            blob,
        };
        match made.read_chains(cx) {
            Ok(()) => {
                made.sort();
                Ok(made)
            }
            Err(why) => Err(Error::malformed("read", made.object(), why)),
        }
    }

    /// The offsets of the entries, and the names of user chains by the offset that jumps use: that after their heads.
    fn offsets(&self, family: XtFamily) -> Result<(Vec<usize>, HashMap<usize, String>), String> {
        let mut offsets = Vec::with_capacity(self.info.entries.min(self.blob.len()));
        let mut chains = HashMap::new();
        let mut at = 0;
        while at < self.blob.len() {
            let rest = self.blob.get(at..).unwrap_or_default();
            let (len, head) = entry::outline(rest, family)
                .ok_or_else(|| format!("no rule begins at offset {at}"))?;
            offsets.push(at);
            at += len;
            if let Some(name) = head {
                chains.insert(at, name);
            }
        }
        if offsets.len() != self.info.entries {
            let (have, said) = (offsets.len(), self.info.entries);
            return Err(format!(
                "the kernel announced {said} entries and returned {have}"
            ));
        }
        Ok((offsets, chains))
    }

    /// The counters of its entries, in their order.
    pub(in crate::xtables) fn counters(&self) -> Vec<Counters> {
        let (offsets, _) = self.offsets(self.family).unwrap_or_default();
        let of = |at: &usize| entry::counters(&self.blob, *at, self.family).unwrap_or_default();
        offsets.iter().map(of).collect()
    }

    fn read_chains(&mut self, cx: &Context<'_>) -> Result<(), String> {
        let (offsets, chains) = self.offsets(cx.family)?;
        let valid = self.info.valid_hooks;
        let hook_at = |offsets: &[u32; NF_INET_NUMHOOKS], at: usize| {
            let here = |(hook, offset): (usize, &u32)| {
                (valid & (1 << hook) != 0 && usize::try_from(*offset) == Ok(at)).then_some(hook)
            };
            offsets.iter().enumerate().find_map(here)
        };
        let mut current: Option<ChainLayout> = None;
        let last = offsets.len().saturating_sub(1);
        for (n, at) in offsets.into_iter().enumerate() {
            let rest = self.blob.get(at..).unwrap_or_default();
            let entry =
                entry::decode(rest, cx).ok_or_else(|| format!("no rule begins at offset {at}"))?;
            if let Ending::Error(name) = &entry.ending {
                self.close(current.take())?;
                if n != last {
                    current = Some(ChainLayout {
                        head: Some(n),
                        ..ChainLayout::user(name)
                    });
                }
                continue;
            }
            if let Some(hook) = hook_at(&self.info.hook_entry, at) {
                self.close(current.take())?;
                let name = HOOKS.get(hook).copied().unwrap_or_default();
                // The policy is set when its entry is decoded.
                let builtin = Some((hook, Policy::Accept));
                current = Some(ChainLayout {
                    builtin,
                    ..ChainLayout::user(name)
                });
            }
            let Some(chain) = current.as_mut() else {
                return Err(format!("the entry at offset {at} is in no chain"));
            };
            let counters = entry::counters(&self.blob, at, cx.family).unwrap_or_default();
            let underflow = hook_at(&self.info.underflow, at);
            if let (Some((hook, _)), true) = (chain.builtin, underflow.is_some()) {
                let policy = match entry.ending {
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
                (chain.tail, chain.counters) = (Some(n), counters);
                let done = current.take();
                self.chains.extend(done);
                continue;
            }
            let rule = self.rule(at, n, entry, counters, &chains)?;
            chain.rules.push(rule);
        }
        self.close(current)
    }

    /// Ends a user chain: its last rule is the implicit `RETURN`.
    fn close(&mut self, chain: Option<ChainLayout>) -> Result<(), String> {
        let Some(mut chain) = chain else {
            return Ok(());
        };
        if chain.builtin.is_some() {
            return Err(format!("the built-in chain {} has no policy", chain.name));
        }
        let is_end = |r: &RuleLayout| {
            r.rule
                == Rule {
                    target: Some(Target::Return),
                    ..Rule::default()
                }
        };
        if let Some(old) = chain.rules.pop_if(|r| is_end(r)).and_then(|r| r.old) {
            (chain.tail, chain.counters) = (Some(old.entry), old.counters);
        }
        self.chains.push(chain);
        Ok(())
    }

    fn rule(
        &self,
        at: usize,
        n: usize,
        entry: Entry,
        counters: Counters,
        chains: &HashMap<usize, String>,
    ) -> Result<RuleLayout, String> {
        let mut rule = entry.rule;
        if let Ending::Verdict(verdict) = entry.ending {
            rule.target = match usize::try_from(verdict) {
                // Continues with the next rule: no target.
                Ok(to) if to == at + entry.len && !entry.goto => None,
                Ok(to) => {
                    let chain = chains.get(&to).cloned();
                    let chain = chain
                        .ok_or_else(|| format!("the rule at offset {at} jumps to no chain"))?;
                    Some(if entry.goto {
                        Target::Goto(chain)
                    } else {
                        Target::Jump(chain)
                    })
                }
                Err(_) if verdict == -NF_ACCEPT - 1 => Some(Target::Accept),
                Err(_) if verdict == -NF_DROP - 1 => Some(Target::Drop),
                Err(_) if verdict == XT_RETURN => Some(Target::Return),
                Err(_) if verdict == -NF_QUEUE - 1 => Some(Target::Queue),
                Err(_) => return Err(format!("the rule at offset {at} has the verdict {verdict}")),
            };
        }
        Ok(RuleLayout {
            rule,
            tag: entry::tag(&self.blob, at, self.family).unwrap_or(0),
            old: Some(Old {
                entry: n,
                at,
                len: entry.len,
                target: entry.target,
                counters,
            }),
        })
    }
}
