//! The rules of nftables' own tests: weir lists them as `nft -s list` does, also after it has read, deleted and written them.
//!
//! Of 5,838 rules that were generated over every keyword, form and family, nft 1.0.6 and weir list the following ones differently. The tests
//! contain none of them:
//!
//! - nft itself lists them wrongly: the port of `tproxy` from a map (not listed), bits of extension headers and of
//!   options in maps (`unknown & 0xfff8`), `ip version` in a concatenation (shifted twice), `icmp code set`, and
//!   `!= ` of unnamed bytes as several fields, each with `!=`.
//! - `@nh,8,8 5`: nft lists the two fields of the byte, and weir the byte.
//! - What nft does not list although it decides, and weir lists: `meta l4proto esp` before `th dport 22`, `icmpv6 type` before a TCP option, a
//!   protocol of the network layer that contradicts the field after it (`ip saddr` after `meta protocol ip6`), and the field of the
//!   bound before another one (`ip ttl >= 5 ip length <= 100`).
//! - `tcp flags vmap { syn : accept, syn|ack : drop }`: for values with the same lowest bit nft keeps the order of the
//!   kernel's hash table.
//!
//! Without `WEIR_GOLDEN` the test is skipped.
// matrix: needs WEIR_GOLDEN

use crate::common::{apply, read, tool};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_netfilter::nft::{Chain, Ruleset, TableFamily, text_without_counters};
use weir_netlink::Netns;
use weir_testing::effort;

/// The minimum number of accepted rules, and the largest number of those whose tables, chains and sets nft refuses: on Linux 6.12 and
/// later, where these 37 are in a notation that nft does not read, and on older kernels.
const NEW: (usize, usize) = (2_200, 37);
const OLD: (usize, usize) = (1_500, 700);
/// On an emulated processor all rules would take two minutes, so only every n-th rule of each group is tried there.
const EMULATED: usize = 4;

/// Rules that need the same tables, chains and sets.
#[derive(Clone)]
struct Group {
    family: String,
    table: String,
    chain: String,
    setup: String,
    rules: Vec<String>,
}

fn groups(root: PathBuf) -> Vec<Group> {
    let path = root.join("nft-rules/rules.jsonl");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut groups: Vec<Group> = Vec::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let word = |key: &str| row[key].as_str().unwrap().to_owned();
        let (family, table, chain) = (word("family"), word("table"), word("chain"));
        let mut setup = format!("add table {family} {table}\n");
        for key in ["chains", "setup"] {
            for command in row[key].as_array().unwrap() {
                setup += command.as_str().unwrap();
                setup += "\n";
            }
        }
        let same = |g: &&mut Group| g.setup == setup && g.chain == chain;
        match groups.iter_mut().find(same) {
            Some(group) => group.rules.push(word("rule")),
            None => groups.push(Group {
                rules: vec![word("rule")],
                family,
                table,
                chain,
                setup,
            }),
        }
    }
    for group in &mut groups {
        let chosen = std::mem::take(&mut group.rules).into_iter();
        group.rules = chosen.step_by(every()).collect();
    }
    groups
}

/// Linux 6.12 or later.
fn is_new() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(6_u32), Some(12))
}

fn every() -> usize {
    match effort::cases(1_000) < 1_000 {
        true => EMULATED,
        false => 1,
    }
}

impl Group {
    /// Loads the rules with `nft`. Returns those that it accepts, or why it refuses the tables, chains and sets.
    fn load(&self, ns: &Netns) -> Result<Vec<&str>, String> {
        let _ = tool(ns, "nft", &["-f", "-"], &self.setup)?;
        let place = format!("add rule {} {} {}", self.family, self.table, self.chain);
        let accepts = |rule: &&str| {
            let command = format!("{place} {rule}\n");
            tool(ns, "nft", &["-f", "-"], &command).is_ok()
        };
        Ok(self
            .rules
            .iter()
            .map(String::as_str)
            .filter(accepts)
            .collect())
    }

    /// One line for each rule, as `nft` lists them. nft may fail: it crashes on sets that it did not write.
    fn listed(&self, ns: &Netns) -> Result<Vec<String>, String> {
        let args = [
            "-s",
            "list",
            "chain",
            &self.family,
            &self.table,
            &self.chain,
        ];
        let text = tool(ns, "nft", &args, "")?;
        let lines = text.lines().filter_map(|l| l.strip_prefix("\t\t"));
        let rules = lines.filter(|l| !(l.starts_with("type ") && l.contains(" hook ")));
        Ok(rules.map(str::to_owned).collect())
    }

    /// The rules that `nft` cannot list, each tried alone.
    fn unlistable(&self) -> Vec<&str> {
        let fails = |rule: &&str| {
            let one = Self {
                rules: vec![(*rule).to_owned()],
                ..self.clone()
            };
            let ns = Netns::create().unwrap();
            drop(one.load(&ns));
            one.listed(&ns).is_err()
        };
        self.rules
            .iter()
            .map(String::as_str)
            .filter(fails)
            .collect()
    }

    fn chain_of<'a>(&self, ruleset: &'a mut Ruleset) -> (TableFamily, &'a mut Chain) {
        let mut tables = ruleset.tables.iter_mut();
        let table = tables.find(|t| t.name == self.table).unwrap();
        let mut chains = table.chains.iter_mut();
        let chain = chains.find(|c| c.name == self.chain).unwrap();
        (table.family, chain)
    }

    /// The line of `nft` for each rule after this crate has written it, in one transaction if the kernel accepts that.
    fn written(&self, whole: &Ruleset) -> Vec<Option<String>> {
        let mut ruleset = whole.clone();
        let rules = self.chain_of(&mut ruleset).1.rules.clone();
        // Sets of other rules are not written with these.
        let used = format!("{rules:?}");
        for table in &mut ruleset.tables {
            table
                .sets
                .retain(|s| !s.name.starts_with("__") || used.contains(&format!("{:?}", s.name)));
        }
        let ns = Netns::create().unwrap();
        let applied = apply(&ns, &ruleset);
        if rules.len() == 1
            && let Err(e) = &applied
        {
            println!("  e {e}");
        }
        let applied = applied.is_ok();
        let lines = applied.then(|| self.listed(&ns).ok()).flatten();
        if let Some(lines) = lines.filter(|lines| lines.len() == rules.len()) {
            return lines.into_iter().map(Some).collect();
        }
        if rules.len() < 2 {
            return vec![None; rules.len()];
        }
        let (first, second) = rules.split_at(rules.len() / 2);
        let mut all = Vec::new();
        for half in [first, second] {
            let mut part = whole.clone();
            self.chain_of(&mut part).1.rules = half.to_vec();
            all.extend(self.written(&part));
        }
        all
    }
}

#[derive(Default)]
struct Counts {
    accepted: usize,
    listed: usize,
    kept: usize,
}

#[test]
fn rules_of_nftables_tests() {
    let Some(root) = std::env::var_os("WEIR_GOLDEN") else {
        eprintln!("skipped: WEIR_GOLDEN does not name the directory of the golden cases");
        return;
    };
    let mut kinds: BTreeMap<String, Counts> = BTreeMap::new();
    let mut all = Counts::default();
    let (mut unlisted, mut unprepared) = (Vec::new(), 0);
    for group in groups(root.into()) {
        let ns = weir_testing::namespace_or_skip!();
        let rules = match group.load(&ns) {
            Ok(rules) if rules.is_empty() => continue,
            Ok(rules) => rules,
            Err(why) => {
                unprepared += group.rules.len();
                println!("{} rules without\n{}{why}", group.rules.len(), group.setup);
                continue;
            }
        };
        let expected = match group.listed(&ns) {
            Ok(lines) => lines,
            Err(why) => {
                let alone = group.unlistable();
                unlisted.push(format!("{}{alone:#?}\n{why}", group.setup));
                continue;
            }
        };
        assert_eq!(expected.len(), rules.len(), "{expected:#?}");
        let mut ruleset = read(&ns).ruleset;
        let written = group.written(&ruleset);
        let (family, chain) = group.chain_of(&mut ruleset);
        for (i, (rule, expected)) in rules.iter().zip(&expected).enumerate() {
            let kind = rule.split(' ').next().unwrap_or_default().to_owned();
            let found = chain.rules.get(i).unwrap();
            // With `-s`, `nft` omits the values of counters.
            let text = text_without_counters(found, family);
            let text = text.replace("counter packets 0 bytes 0", "counter");
            let (listed, kept) = (text == *expected, written[i].as_ref() == Some(expected));
            if !listed {
                println!("{} {rule}\n  - {expected}\n  + {text}", group.family);
            }
            if !kept {
                println!(
                    "{} {rule}\n  - {expected}\n  w {:?}",
                    group.family, written[i]
                );
            }
            for counts in [kinds.entry(kind).or_default(), &mut all] {
                counts.accepted += 1;
                counts.listed += usize::from(listed);
                counts.kept += usize::from(kept);
            }
        }
    }
    let line = |kind: &str, c: &Counts| {
        println!(
            "{kind:12} accepted {:5} listed {:5} kept {:5}",
            c.accepted, c.listed, c.kept
        );
    };
    kinds.iter().for_each(|(kind, counts)| line(kind, counts));
    line("all", &all);
    println!("{unprepared} rules without their tables, chains and sets");
    let (least, most) = if is_new() { NEW } else { OLD };
    assert!(
        unprepared <= most,
        "nft refuses what {unprepared} rules need"
    );
    assert!(
        unlisted.is_empty(),
        "nft cannot list the rules of these tables:\n{}",
        unlisted.join("\n")
    );
    assert!(
        all.accepted >= least / every(),
        "only {} rules",
        all.accepted
    );
    assert_eq!(all.listed, all.accepted, "listed otherwise, see above");
    assert_eq!(all.kept, all.accepted, "lost, see above");
}
