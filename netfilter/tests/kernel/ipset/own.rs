//! ipset's own tests (`tests/*.t`): after each command that changes something and that the tool carries out, weir lists
//! the sets as `ipset save` does, and restores that text to the same sets. At the end the sets are swapped by weir.
//!
//! `ci/fetch-sources` gets them; without it the test is skipped.
// matrix: host: reads ipset's own tests from target/

use crate::common::ipset::{our_load, our_save, save, seedless, sorted};
use crate::common::tool;
use std::path::{Path, PathBuf};
use weir_netlink::Netns;

/// The least number of commands that are carried out: older kernels lack types.
const CARRIED_OUT: usize = 300;

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

/// Commands of one file that change something: `0 ipset ...`, without those that use other programs.
fn commands(text: &str) -> Vec<String> {
    const LOOK: [&str; 10] = [
        "-T", "test", "-L", "list", "-S", "save", "-h", "help", "-v", "version",
    ];
    let commands = text.lines().filter_map(|l| l.strip_prefix("0 ipset "));
    let changes = |c: &&str| {
        let verb = c
            .split_whitespace()
            .find(|w| !matches!(*w, "-!" | "-exist" | "-o"));
        !verb.is_none_or(|verb| LOOK.contains(&verb)) && !c.contains(['|', '>', '<', '`', '$', ';'])
    };
    commands.filter(changes).map(lasting).collect()
}

/// Of the sets as they are: our listing, and what becomes of it where there are none.
fn check(file: &str, command: &str, ns: &Netns, wrong: &mut Vec<String>) {
    let listing = save(ns);
    let shown = our_save(ns);
    if sorted(&shown) != sorted(&listing) {
        wrong.push(format!(
            "{file}: {command}: listed\n{shown}instead of\n{listing}"
        ));
        return;
    }
    let again = Netns::create().unwrap();
    if let Err(e) = our_load(&again, &listing) {
        wrong.push(format!("{file}: {command}: {e}"));
    } else if seedless(&save(&again)) != seedless(&listing) {
        let restored = save(&again);
        wrong.push(format!(
            "{file}: {command}: restored\n{restored}instead of\n{listing}"
        ));
    }
}

/// Every set, swapped with an empty one of its type and back.
fn swap(ns: &Netns) {
    let before = save(ns);
    let creates = before.lines().filter_map(|l| l.strip_prefix("create "));
    for (name, rest) in creates.filter_map(|l| l.split_once(' ')) {
        let script = format!("create weir-other {rest}\nswap {name} weir-other\n");
        our_load(ns, &script).unwrap();
        assert!(!save(ns).contains(&format!("add {name} ")));
        our_load(ns, &format!("swap {name} weir-other\ndestroy weir-other\n")).unwrap();
    }
    assert_eq!(sorted(&save(ns)), sorted(&before));
}

#[test]
fn every_command_of_ipsets_own_tests() {
    let _ = weir_testing::namespace_or_skip!();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let folder = target.join("sources/ipset/tests");
    let Ok(files) = std::fs::read_dir(&folder) else {
        let folder = folder.display();
        eprintln!("skipped: ipset's own tests are not in {folder}: run ci/fetch-sources");
        return;
    };
    let mut files: Vec<PathBuf> = files.map(|f| f.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "t"));
    files.sort();
    // Some of them write files where they are.
    let output = weir_testing::TempDir::new();
    let (mut done, mut wrong) = (0, Vec::new());
    for path in files {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let ns = Netns::create().unwrap();
        for command in &commands(&text) {
            let words = format!("cd \"$0\" && exec ipset {command}");
            let folder = output.path().to_str().unwrap();
            if tool(&ns, "sh", &["-c", &words, folder], "").is_err() {
                continue;
            }
            done += 1;
            if save(&ns).len() < 100_000 {
                check(&file, command, &ns, &mut wrong);
            }
        }
        swap(&ns);
    }
    println!("{done} commands were carried out");
    assert!(done >= CARRIED_OUT, "the tool carries out too few");
    let all = wrong.join("\n");
    assert!(wrong.is_empty(), "{} of {done} differ:\n{all}", wrong.len());
}
