//! Random sets: what this crate writes it reads again, the tool lists it alike, and its text restores it. Any bytes and any text cause an
//! error at worst.

use crate::bucketsize_or_skip;
use weir_testing::effort;
use weir_testing::lacks;

use crate::common::assert_text;
use crate::common::ipset::{engine, our_save, save, seedless, statements, timeless};
use proptest::prelude::*;
use weir_netfilter::ipset::arbitrary::set;
use weir_netfilter::ipset::wire::{CommandAttrs, CreateAttrs, EntryAttrs, IpAttrs, TestAttrs};
use weir_netfilter::ipset::{Existing, Set, plan};
use weir_netlink::Netns;
use weir_netlink::attr::{AttrSet, Target, Writer};

fn names(sets: &[Set]) -> Vec<String> {
    sets.iter().map(|s| s.header.name.clone()).collect()
}

#[test]
fn written_sets_are_read_back_and_listed_alike() {
    bucketsize_or_skip!();
    let config = ProptestConfig {
        cases: effort::cases(60),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(a in set("a"), b in set("b"), changed in set("a"))| {
        let ns = Netns::create().unwrap();
        let first = [a, b];
        let lacks = |set: &Set| {
            let checked = engine(&ns, |e| e.check_header(&set.header));
            matches!(checked, Err(e) if matches!(e.kind, weir_netlink::ErrorKind::Unsupported(_)))
        };
        prop_assume!(!first.iter().chain([&changed]).any(lacks));
        let owned = names(&first);
        engine(&ns, |e| {
            e.apply(&first, &owned).unwrap();
            // A second apply changes nothing.
            assert_eq!(e.apply(&first, &owned).unwrap().ops, vec![]);
        });
        let listing = save(&ns);
        assert_text(&timeless(&our_save(&ns)).replace(" forceadd", ""), &timeless(&listing));
        // As text, through the parser of this crate and through that of the tool.
        let text: String = first.iter().map(ToString::to_string).collect();
        let parsed = statements(&text).unwrap();
        assert_eq!(parsed.len(), text.lines().count());
        let again = Netns::create().unwrap();
        engine(&again, |e| e.restore(&text, Existing::Accept).unwrap());
        let theirs = Netns::create().unwrap();
        crate::common::ipset::ipset(&theirs, "restore -exist", &text).unwrap();
        assert_text(&seedless(&save(&again)), &seedless(&save(&theirs)));
        // From any state to any other.
        engine(&ns, |e| {
            e.apply(std::slice::from_ref(&changed), &owned).unwrap();
            assert_eq!(e.apply(std::slice::from_ref(&changed), &owned).unwrap().ops, vec![]);
            assert_eq!(e.names().unwrap(), ["a"]);
            let read: Vec<Set> = e.list(None).unwrap().into_iter().map(|l| l.set).collect();
            assert_eq!(plan(std::slice::from_ref(&changed), &read, &owned), vec![]);
        });
    });
}

fn round_trip<A: AttrSet + PartialEq + std::fmt::Debug>(attrs: &A) {
    let mut w = Writer::new();
    attrs.encode(&mut w);
    if let Ok(bytes) = w.finish() {
        assert_eq!(&A::decode(&bytes).unwrap(), attrs);
        // Every prefix must be decoded without a crash.
        for n in 0..bytes.len() {
            let _ = A::decode(&bytes[..n]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // matrix: none: about values and programs, with no namespace, no rule and no kernel
    #[test]
    fn attributes_are_read_as_written(
        a in CommandAttrs::arbitrary(), b in CreateAttrs::arbitrary(), c in EntryAttrs::arbitrary(),
        d in TestAttrs::arbitrary(), e in IpAttrs::arbitrary(),
    ) {
        round_trip(&a);
        round_trip(&b);
        round_trip(&c);
        round_trip(&d);
        round_trip(&e);
    }

    // matrix: none: about values and programs, with no namespace, no rule and no kernel
    #[test]
    fn any_bytes_are_an_error_at_worst(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = CommandAttrs::decode(&bytes);
        let _ = EntryAttrs::decode(&bytes);
        let _ = CreateAttrs::decode(&bytes);
        let _ = CommandAttrs::path(&bytes, Target::byte(bytes.len() / 2));
    }

    // matrix: none: about values and programs, with no namespace, no rule and no kernel
    #[test]
    fn any_text_is_an_error_at_worst(text in "\\PC{0,80}", words in prop::collection::vec(
        prop::sample::select(vec![
            "create", "add", "del", "a", "n", "hash:ip", "hash:net,port", "bitmap:port", "list:set", "family", "inet6",
            "timeout", "5", "range", "1-5", "10.0.0.0/8", "10.0.0.1-10.0.0.9", "tcp:1-3", "::1,tcp:80", "\"", "\"x y\"",
            "comment", "\n", "-exist", "nomatch", "swap", "1.1.1.1,tcp:1,2.2.2.2", "0x", "-", "/", ",", ":", "ä",
        ]), 0..30)) {
        let _ = statements(&text);
        let _ = statements(&format!("create a hash:ip\ncreate n hash:net,port\n{}", words.join(" ")));
    }
}
