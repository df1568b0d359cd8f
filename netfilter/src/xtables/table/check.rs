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
                            "unknown target {to}: there is no chain {to} in the table, and the supported targets are {}; \
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
        match self.find_loop() {
            None => Ok(()),
            Some(path) => {
                let path = path.join(" -> ");
                let path = shorten(&path);
                let why = format!("the chains form a loop: {path}; remove one of the jumps");
                refuse(self.object(), why)
            }
        }
    }

    /// A loop that packets can enter: the names of its chains, the first one again at the end. Depth first, each chain once, and
    /// without recursion: the chains may be foreign, many, and deeply nested.
    pub(in crate::xtables) fn find_loop(&self) -> Option<Vec<&str>> {
        let chains: HashMap<&str, &ChainLayout> =
            self.chains.iter().map(|c| (c.name.as_str(), c)).collect();
        // The chains that were reached: true while they are on the path.
        let mut reached: HashMap<&str, bool> = HashMap::new();
        for start in self.chains.iter().filter(|c| c.builtin.is_some()) {
            let mut path = vec![(start.name.as_str(), targets(start))];
            while let Some((name, left)) = path.last_mut() {
                let Some(next) = left.pop() else {
                    reached.insert(name, false);
                    path.pop();
                    continue;
                };
                match reached.insert(next, true) {
                    None => {
                        path.push((next, chains.get(next).map_or_else(Vec::new, |c| targets(c))))
                    }
                    Some(false) => {
                        reached.insert(next, false);
                    }
                    Some(true) => {
                        let names = path.iter().map(|(name, _)| *name);
                        let from = names.skip_while(|name| *name != next);
                        return Some(from.chain([next]).collect());
                    }
                }
            }
        }
        None
    }
}

/// The chains that the rules of a chain jump to, each once.
fn targets(c: &ChainLayout) -> Vec<&str> {
    let all = c.rules.iter();
    let mut all: Vec<&str> = all
        .filter_map(|r| r.rule.target.as_ref()?.chain())
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}
