//! Encodes chains for the kernel.

use super::super::entry::{self, shape};
use super::super::ext::Context;
use super::super::raw::{NF_ACCEPT, NF_DROP, NF_INET_NUMHOOKS, XT_RETURN};
use super::super::structs::{Head, XtCounters, read_at};
use super::super::{Policy, Target};
use super::{Blob, ChainLayout, Layout, RuleLayout};
use std::collections::HashMap;
use weir_netlink::{Error, Result};

/// A verdict that is an offset.
struct Jump {
    /// The target chain; `None` for the next rule.
    to: Option<String>,
    /// Offset of the target in the entry.
    target: usize,
}

impl Layout {
    /// Encodes the entries. Existing rules keep every byte except the offset of a jump.
    pub(in crate::xtables) fn encode(&self, cx: &Context<'_>) -> Result<Blob> {
        self.check()?;
        let mut entries: Vec<(Vec<u8>, Option<usize>, Option<Jump>)> = Vec::new();
        let mut starts = HashMap::new();
        let mut size = 0usize;
        let mut out = Blob {
            hook_entry: [u32::MAX; 5],
            underflow: [u32::MAX; 5],
            ..Blob::default()
        };
        let mut push = |entry: (Vec<u8>, Option<usize>, Option<Jump>), size: &mut usize| {
            *size += entry.0.len();
            entries.push(entry);
        };
        for chain in &self.chains {
            if chain.builtin.is_none() {
                push(
                    (entry::error(self.family, &chain.name)?, chain.head, None),
                    &mut size,
                );
                starts.insert(chain.name.clone(), size);
            }
            self.set_hook(&mut out.hook_entry, chain, size)?;
            for r in &chain.rules {
                push(self.rule_bytes(r, cx)?, &mut size);
            }
            self.set_hook(&mut out.underflow, chain, size)?;
            let verdict = match chain.builtin {
                Some((_, Policy::Accept)) => -NF_ACCEPT - 1,
                Some((_, Policy::Drop)) => -NF_DROP - 1,
                None => XT_RETURN,
            };
            push(
                (entry::end_of_chain(self.family, verdict), chain.tail, None),
                &mut size,
            );
        }
        let end = self.info.entries.checked_sub(1);
        push((entry::error(self.family, "ERROR")?, end, None), &mut size);
        for (mut bytes, old, jump) in entries {
            if let Some(jump) = jump {
                let to = match &jump.to {
                    Some(chain) => starts.get(chain).copied(),
                    None => Some(out.bytes.len() + bytes.len()),
                };
                let to = to
                    .and_then(|to| i32::try_from(to).ok())
                    .ok_or_else(|| self.too_large())?;
                let at = jump.target + size_of::<Head>();
                if let Some(field) = bytes.get_mut(at..at + 4) {
                    field.copy_from_slice(&to.to_ne_bytes());
                }
            }
            out.bytes.extend(bytes);
            out.old.push(old);
        }
        Ok(out)
    }

    fn too_large(&self) -> Error {
        Error::refused(
            "write",
            self.object(),
            "it is larger than 2 GiB; use fewer rules",
        )
    }

    fn set_hook(
        &self,
        offsets: &mut [u32; NF_INET_NUMHOOKS],
        chain: &ChainLayout,
        at: usize,
    ) -> Result<()> {
        if let Some(slot) = chain.builtin.and_then(|(hook, _)| offsets.get_mut(hook)) {
            *slot = u32::try_from(at).map_err(|_| self.too_large())?;
        }
        Ok(())
    }

    fn rule_bytes(
        &self,
        r: &RuleLayout,
        cx: &Context<'_>,
    ) -> Result<(Vec<u8>, Option<usize>, Option<Jump>)> {
        let (mut bytes, number, target) = match &r.old {
            Some(old) => {
                let bytes = self.blob.get(old.at..old.at + old.len);
                (bytes.unwrap_or_default().to_vec(), old.entry, old.target)
            }
            None => {
                let mut bytes = entry::encode(&r.rule, cx)?;
                let at = shape(self.family).nfcache;
                if let Some(field) = bytes.get_mut(at..at + 4) {
                    field.copy_from_slice(&r.tag.to_ne_bytes());
                }
                let target: Option<u16> = read_at(&bytes, shape(self.family).target_offset);
                (bytes, None, target.unwrap_or(0).into())
            }
        };
        // The kernel recomputes both.
        let shape = shape(self.family);
        for (at, len) in [
            (shape.comefrom, 4),
            (shape.counters, size_of::<XtCounters>()),
        ] {
            bytes.get_mut(at..at + len).unwrap_or_default().fill(0);
        }
        let jump = match &r.rule.target {
            Some(Target::Jump(chain) | Target::Goto(chain)) => Some(Some(chain.clone())),
            None => Some(None),
            Some(_) => None,
        };
        Ok((bytes, number, jump.map(|to| Jump { to, target })))
    }
}
