//! Checks of a table before it is sent to the kernel.

use super::super::Target;
use super::super::ext::Part;
use super::super::text::{known, shorten};
use super::{ChainLayout, Layout};
use std::collections::HashMap;
use weir_netlink::{Error, Result};

impl Layout {
    /// Refuses jumps to missing chains, duplicate names, and loops that packets can enter.
    pub(in crate::xtables) fn check(&self) -> Result<()> {
        let refuse = |object: String, why: String| Err(Error::refused("write", object, why));
        let by_name: HashMap<&str, &ChainLayout> =
            self.chains.iter().map(|c| (c.name.as_str(), c)).collect();
        if by_name.len() != self.chains.len() {
            return refuse(
                self.object(),
                "two of its chains have the same name; rename one".into(),
            );
        }
        for chain in &self.chains {
            for r in &chain.rules {
                let Some(to) = r.rule.target.as_ref().and_then(Target::chain) else {
                    continue;
                };
                let text = || format!("-A {}{}", chain.name, r.rule);
                let rule = || format!("{} rule `{}`", self.object(), shorten(&text()));
                match by_name.get(to) {
                    None => {
                        let to = shorten(to);
                        let why = format!(
                            "unknown target {to}: there is no chain {to} in the table, and weir supports the targets {}; \
                             correct the name, or add the chain first",
                            known(Part::Target, self.family)
                        );
                        return refuse(rule(), why);
                    }
                    Some(c) if c.builtin.is_some() => {
                        return refuse(
                            rule(),
                            format!("{to} is a built-in chain; jump to a user chain"),
                        );
                    }
                    Some(_) => {}
                }
            }
        }
        for start in self.chains.iter().filter(|c| c.builtin.is_some()) {
            if let Some(path) = find_loop(start, &by_name) {
                let why = format!(
                    "the chains form a loop: {}; remove one of the jumps",
                    path.join(" -> ")
                );
                return refuse(self.object(), why);
            }
        }
        Ok(())
    }
}

/// Depth first, without recursion: the chains may be foreign and deeply nested.
fn find_loop(start: &ChainLayout, chains: &HashMap<&str, &ChainLayout>) -> Option<Vec<String>> {
    let targets = |c: &ChainLayout| -> Vec<String> {
        let mut all: Vec<String> = c
            .rules
            .iter()
            .filter_map(|r| r.rule.target.as_ref()?.chain().map(str::to_owned))
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let mut done: HashMap<String, bool> = HashMap::new();
    let mut path = vec![(start.name.clone(), targets(start))];
    while let Some((name, left)) = path.last_mut() {
        let Some(next) = left.pop() else {
            done.insert(name.clone(), true);
            path.pop();
            continue;
        };
        if let Some(from) = path.iter().position(|(n, _)| *n == next) {
            let mut names: Vec<String> = path.iter().skip(from).map(|(n, _)| n.clone()).collect();
            names.push(next);
            return Some(names);
        }
        if !done.contains_key(&next) {
            let further = chains
                .get(next.as_str())
                .map(|c| targets(c))
                .unwrap_or_default();
            path.push((next, further));
        }
    }
    None
}
