//! ipset's own tests (`tests/*.t`), line by line, by the tool and by weir:
//!
//! - what the tool carries out: weir lists the sets as `ipset save` does, restores that text to the same sets, and the same command
//!   changes the same sets in the same way;
//! - what the tool refuses: weir refuses it, too, and changes the same sets as the tool did before that, or nothing;
//! - `test`: weir gives the same answer.
//!
//! At the end of each file the sets are swapped by weir. `ci/fetch-sources` gets the files; without it the test is skipped.
// matrix: host: reads ipset's own tests from target/

use crate::common::ipset::{engine, load, our_load, our_save, save, seedless, sorted};
use crate::common::tool;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_netfilter::ipset::restore::{Command, Parser};
use weir_netlink::{InForce, Netns};
use weir_testing::TempDir;

/// The least number of commands that the tool carries out, that it refuses, and of tests: older kernels lack types.
const CARRIED_OUT: usize = 800;
const REFUSED: usize = 450;
const TESTED: usize = 600;

/// Beginnings of lines that look at the output of the tool, wait, need packets, or add thousands of entries.
const OTHERS: [&str; 11] = [
    "./",
    "sleep ",
    "n=",
    "ref=",
    "num=",
    "test ",
    "diff ",
    "cmp ",
    "tail ",
    "for ",
    "modprobe ",
];

/// Parts of commands that weir does not take as the tool does, with the reason.
const EXCEPTIONS: [(&str, &str); 5] = [
    (" before ", "members are added in the order of the lines"),
    (" after ", "members are added in the order of the lines"),
    (",before,", "members are added in the order of the lines"),
    (",after,", "members are added in the order of the lines"),
    (",smtp", "names of services are not looked up"),
];

/// The command with a thousand times its timeouts: an entry that ends between two listings makes them differ.
fn lasting(command: &str) -> String {
    let mut after = "";
    let word = |word| {
        let is_timeout = after == "timeout" && !matches!(word, "0" | "");
        after = word;
        match is_timeout && word.bytes().all(|b| b.is_ascii_digit()) {
            true => format!("{word}000"),
            false => word.to_owned(),
        }
    };
    command.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// What a line of a file does.
enum Line {
    /// The command of `ipset` alone, as text that weir reads.
    Change(String),
    /// The set and the entry of `test`.
    Test(String, String),
    /// Other programs.
    Other,
}

/// One file, with the namespace in which its commands are executed.
struct Case<'a> {
    file: String,
    ns: Netns,
    folder: &'a Path,
    wrong: &'a mut Vec<String>,
    counts: &'a mut BTreeMap<&'static str, usize>,
}

impl Case<'_> {
    /// Runs a line of a file as `runtest.sh` does.
    fn shell(&self, command: &str) -> Result<String, String> {
        let folder = self.folder.to_str().unwrap();
        let words = format!("cd \"$0\" && export IPSET_BIN=ipset LC_ALL=C && {command}");
        tool(&self.ns, "bash", &["-c", &words, folder], "")
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn wrong(&mut self, command: &str, what: String) {
        if EXCEPTIONS.iter().any(|(part, _)| command.contains(part)) {
            return self.count("excepted");
        }
        self.wrong.push(format!("{}: {command}: {what}", self.file));
    }

    fn line(&self, command: &str) -> Line {
        let restores = ["ipset -R", "ipset restore", "ipset r -f"];
        if let Some(restore) = restores.iter().find(|r| command.contains(**r)) {
            let text = command.replace(restore, "cat ");
            let text = text.split("&&").next().unwrap_or_default();
            return Line::Change(self.shell(text).unwrap_or_default());
        }
        let Some(rest) = command.strip_prefix("ipset ") else {
            return Line::Other;
        };
        if rest.contains(['|', '>', '<', '`', '$', ';', '&']) {
            return Line::Other;
        }
        let mut words = rest
            .split_whitespace()
            .filter(|w| !matches!(*w, "-!" | "-exist"));
        match words.next() {
            Some("test" | "t" | "-T" | "--test") => {
                let set = words.next().unwrap_or_default().to_owned();
                Line::Test(set, words.collect::<Vec<_>>().join(" "))
            }
            _ => Line::Change(format!("{rest}\n")),
        }
    }

    /// Of the sets as they are: our listing, and what becomes of it where there are none.
    fn check(&mut self, command: &str, listing: &str) {
        let shown = our_save(&self.ns);
        if sorted(&shown) != sorted(listing) {
            return self.wrong(command, format!("listed\n{shown}instead of\n{listing}"));
        }
        let again = Netns::create().unwrap();
        match our_load(&again, listing) {
            Err(e) => self.wrong(command, e.to_string()),
            Ok(()) if seedless(&save(&again)) != seedless(listing) => {
                let restored = save(&again);
                // The kernel lists a bucket that grew, and does not create one of that size.
                let theirs = Netns::create().unwrap();
                load(&theirs, listing);
                if seedless(&save(&theirs)) == seedless(&restored) {
                    return;
                }
                self.wrong(
                    command,
                    format!("restored\n{restored}instead of\n{listing}"),
                );
            }
            Ok(()) => {}
        }
    }

    /// The command, carried out by weir on the sets that were there before it.
    fn same(&mut self, command: &str, text: &str, before: &str, after: &str) {
        let twin = Netns::create().unwrap();
        load(&twin, before);
        match our_load(&twin, text) {
            Err(e) => self.wrong(command, format!("refused: {e}")),
            Ok(()) if seedless(&save(&twin)) != seedless(after) => {
                let changed = save(&twin);
                self.wrong(command, format!("changed to\n{changed}instead of\n{after}"));
            }
            Ok(()) => {}
        }
    }

    /// The answer of `test` by weir; the tool's is its exit status and its message.
    fn test(&mut self, command: &str, set: &str, entry: &str, theirs: &Result<String, String>) {
        let ours = engine(&self.ns, |e| {
            let known = e.headers(None).unwrap().into_iter().map(|l| l.set.header);
            let parsed = Parser::new(known).line(&format!("add {set} {entry}"));
            let statement = parsed.map_err(|e| e.to_string())?;
            match statement.map(|s| s.command) {
                Some(Command::Add(set, entries)) => match entries.as_slice() {
                    [entry] => e.test(&set, entry).map_err(|e| e.to_string()),
                    several => Err(format!("{} entries", several.len())),
                },
                other => Err(format!("{other:?}")),
            }
        });
        let agree = match (&ours, theirs) {
            (Ok(is), Ok(_)) => *is,
            (Ok(is), Err(e)) => !*is && e.contains("is NOT in set"),
            // The parser reads entries to add; the kernel answers that such a one is not in the set.
            (Err(e), Err(_)) if e.contains("outside of the set's range") => true,
            (Err(_), Err(e)) => !e.contains("is NOT in set"),
            (Err(_), Ok(_)) => false,
        };
        if !agree {
            self.wrong(command, format!("{ours:?} instead of {theirs:?}"));
        }
    }

    fn run(&mut self, command: &str) {
        let command = lasting(command);
        let before = save(&self.ns);
        let line = self.line(&command);
        let done = self.shell(&command);
        if let Line::Test(set, entry) = &line {
            self.count("tested");
            return self.test(&command, set, entry, &done);
        }
        let after = save(&self.ns);
        if after == before && !matches!(line, Line::Change(_)) || after.len() > 100_000 {
            return;
        }
        match (&done, &line) {
            (Ok(_), _) => {
                self.count("carried out");
                self.check(&command, &after);
                if let Line::Change(text) = &line {
                    self.same(&command, text, &before, &after);
                }
            }
            (Err(e), Line::Change(text)) => {
                self.count("refused");
                let twin = Netns::create().unwrap();
                load(&twin, &before);
                let expected = match our_load(&twin, text) {
                    Ok(()) => return self.wrong(&command, format!("accepted, and ipset says {e}")),
                    // Unlike the tool, weir parses the whole text before it executes a line.
                    Err(ours) if ours.in_force == InForce::No => &before,
                    Err(_) => &after,
                };
                let changed = save(&twin);
                if seedless(&changed) != seedless(expected) {
                    self.wrong(
                        &command,
                        format!("changed to\n{changed}instead of\n{expected}"),
                    );
                }
            }
            (Err(_), _) => {}
        }
    }

    /// Every set, swapped with an empty one of its type and back.
    fn swap(&self) {
        let before = save(&self.ns);
        let creates = before.lines().filter_map(|l| l.strip_prefix("create "));
        for (name, rest) in creates.filter_map(|l| l.split_once(' ')) {
            let script = format!("create weir-other {rest}\nswap {name} weir-other\n");
            our_load(&self.ns, &script).unwrap();
            assert!(!save(&self.ns).contains(&format!("add {name} ")));
            let back = format!("swap {name} weir-other\ndestroy weir-other\n");
            our_load(&self.ns, &back).unwrap();
        }
        assert_eq!(sorted(&save(&self.ns)), sorted(&before));
    }
}

#[test]
fn every_command_of_ipsets_own_tests() {
    let _ = weir_testing::namespace_or_skip!();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let source = target.join("sources/ipset/tests");
    let Ok(files) = std::fs::read_dir(&source) else {
        let source = source.display();
        eprintln!("skipped: ipset's own tests are not in {source}: run ci/fetch-sources");
        return;
    };
    // Some of them write files where they are.
    let folder = TempDir::new();
    let mut paths: Vec<PathBuf> = files.map(|f| f.unwrap().path()).collect();
    paths.sort();
    for path in paths.iter().filter(|p| p.is_file()) {
        std::fs::copy(path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    paths.retain(|f| f.extension().is_some_and(|e| e == "t"));
    let (mut wrong, mut counts) = (Vec::new(), BTreeMap::new());
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut case = Case {
            file: path.file_name().unwrap().to_string_lossy().into_owned(),
            ns: Netns::create().unwrap(),
            folder: folder.path(),
            wrong: &mut wrong,
            counts: &mut counts,
        };
        for line in text.lines() {
            let Some((status, command)) = line.split_once(' ') else {
                continue;
            };
            match status {
                "#" if command == "eof" => break,
                "skip" if case.shell(command).is_err() => break,
                "0" | "1" if !OTHERS.iter().any(|o| command.starts_with(o)) => case.run(command),
                _ => {}
            }
        }
        case.swap();
    }
    println!("{counts:?}");
    // The commands with a difference are under 1 %.
    assert!(counts["excepted"] <= 12, "{counts:?}");
    let all = wrong.join("\n");
    assert!(
        wrong.is_empty(),
        "{} differ of {counts:?}:\n{all}",
        wrong.len()
    );
    for (what, least) in [
        ("carried out", CARRIED_OUT),
        ("refused", REFUSED),
        ("tested", TESTED),
    ] {
        assert!(counts[what] >= least, "{counts:?}");
    }
}
