//! Every decoder survives its corpus, and the fuzzing loop finds a planted panic.
// Makes clippy treat helper functions as tests, which clippy.toml exempts from some lints.
#![cfg(test)]

use std::path::Path;
use std::time::Duration;
use weir_fuzz::{Conversation, Random, TARGETS, Target, corpus, fuzz, guarded, mutate};
use weir_netfilter::conntrack::{Conntrack, Transport, Tuple};
use weir_netfilter::nft::NftEngine;
use weir_netfilter::xtables::{Sets, XtEngine, XtFamily};
use weir_netlink::nfnetlink::Socket;

fn inputs(target: &Target) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    corpus(&folder).unwrap()
}

#[test]
fn every_decoder_survives_its_corpus() {
    for target in TARGETS {
        let inputs = inputs(&target);
        assert!(!inputs.is_empty(), "{} has no inputs", target.name);
        for (path, input) in inputs {
            let outcome = guarded(&target, &input);
            assert_eq!(outcome, Ok(()), "{} with {}", target.name, path.display());
        }
    }
}

/// The declarations of attributes whose messages come from the kernel; those inside of others are decoded with them. Those of
/// expressions are parts of rules.
#[test]
fn every_declaration_is_decoded() {
    let targets = include_str!("../src/targets/netlink.rs");
    let mut found = 0;
    for text in [
        include_str!("../../src/nft/wire.rs"),
        include_str!("../../src/nft/compat.rs"),
        include_str!("../../src/ipset/wire.rs"),
        include_str!("../../src/conntrack.rs"),
    ] {
        let names = text.lines().filter_map(|line| {
            let name = line.trim().strip_prefix("pub struct ")?;
            name.strip_suffix(" {")
                .filter(|name| name.ends_with("Attrs"))
        });
        for name in names {
            found += 1;
            let inside = text.contains(&format!("<{name}>"));
            let has_target = targets.contains(&format!("both::<{name}>"));
            assert!(inside || has_target, "{name} has no target");
        }
    }
    assert!(found > 25, "{found} declarations are found");
}

/// If the recorded requests differ from those that weir sends now, reading ends with an error, and the rest of the recording is
/// never decoded.
#[test]
fn recorded_rulesets_are_read_to_their_end() {
    let nft = TARGETS.iter().find(|t| t.name == "nft").unwrap();
    for (path, input) in inputs(nft) {
        let socket = Socket::with_transport(Conversation::replay(&input));
        let found = NftEngine::with_socket(socket).read();
        let found = found.unwrap_or_else(|e| panic!("{}: {e}; record it anew", path.display()));
        assert!(!found.ruleset.tables.is_empty(), "{}", path.display());
    }
}

/// As [`recorded_rulesets_are_read_to_their_end`], for legacy tables.
#[test]
fn recorded_tables_are_read_to_their_end() {
    struct NoSets;
    impl Sets for NoSets {
        fn index(&self, _: XtFamily, _: &str) -> weir_netlink::Result<u16> {
            Ok(0)
        }
        fn name(&self, index: u16) -> weir_netlink::Result<Option<String>> {
            Ok(Some(format!("set{index}")))
        }
    }
    let xtables = TARGETS.iter().find(|t| t.name == "xtables").unwrap();
    for (path, input) in inputs(xtables) {
        let replay = Conversation::replay(&input);
        let found = XtEngine::with_transport(replay, Box::new(NoSets)).ruleset();
        let found = found.unwrap_or_else(|e| panic!("{}: {e}; record it anew", path.display()));
        assert_eq!(found.tables.len(), 5, "{}", path.display());
    }
}

#[test]
fn connections_of_the_corpus_are_read() {
    let conntrack = TARGETS.iter().find(|t| t.name == "conntrack").unwrap();
    let asked = Tuple {
        transport: Transport::Tcp,
        source: ([10, 0, 0, 1], 40000).into(),
        destination: ([192, 0, 2, 1], 443).into(),
    };
    for (path, input) in inputs(conntrack) {
        let (which, input) = input.split_first().unwrap();
        let socket = Socket::with_transport(Conversation::replay(input));
        let mut table = Conntrack::with_socket(socket);
        let mut found = Vec::new();
        let read = match which {
            2 => table.find(&asked, 0).map(|one| found.extend(one)),
            which => table.each(*which == 1, |one| {
                found.push(one);
                Ok(())
            }),
        };
        read.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(found.len(), 1, "{}", path.display());
    }
}

#[test]
fn every_decoder_survives_a_few_changes() {
    for target in TARGETS {
        let inputs: Vec<_> = inputs(&target)
            .into_iter()
            .map(|(_, bytes)| bytes)
            .collect();
        let mut random = Random::new(7);
        for n in 0..30 {
            let mut input = random.of(&inputs).unwrap().clone();
            mutate(&mut random, &mut input, &inputs);
            assert_eq!(
                guarded(&target, &input),
                Ok(()),
                "{}, change {n}",
                target.name
            );
        }
    }
}

#[test]
fn a_panic_is_found_and_its_input_repeats_it() {
    let planted = |input: &[u8]| assert!(input.first() != Some(&7), "seven");
    let target = Target {
        name: "planted",
        run: planted,
    };
    let current = std::env::temp_dir().join(format!("weir-fuzz-test-{}", std::process::id()));
    let seeds = [vec![1, 2, 3], vec![7, 8, 9]];
    let run = || fuzz(&target, &seeds, 1, Duration::from_secs(60), &current).unwrap();
    let outcome = run();
    assert_eq!(
        std::fs::read(&current).unwrap(),
        outcome.crash.clone().unwrap().input
    );
    // The same seed gives the same input.
    assert_eq!(run(), outcome);
    let crash = outcome.crash.unwrap();
    assert!(crash.reason.contains("seven"), "{}", crash.reason);
    assert_eq!(guarded(&target, &crash.input), Err(crash.reason));
    std::fs::remove_file(current).unwrap();
}

#[test]
fn a_conversation_is_read_as_it_was_written() {
    let said = Conversation {
        answers: vec![vec![], vec![1, 2, 3], vec![4]],
    };
    assert_eq!(Conversation::decode(&said.encode()), said);
    // An answer whose length is too large consists of the rest.
    let cut = Conversation::decode(&[9, 0, 0, 0, 5]);
    assert_eq!(cut.answers, vec![vec![5]]);
}
