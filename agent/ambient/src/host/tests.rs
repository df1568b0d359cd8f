mod ahead;
mod unread;

use super::nftables::id;
use super::*;
use weir_netlink::Error;

fn host(addresses: &[(&str, &str)]) -> Host {
    let pair = |(address, uid): &(&str, &str)| (address.parse().unwrap(), Arc::from(*uid));
    Host {
        config: Config {
            enable_ipv6: true,
            ..Config::default()
        },
        addresses: addresses.iter().map(pair).collect::<BTreeMap<_, _>>(),
        users: Some(0..=0),
    }
}

#[test]
fn both_forms_come_change_and_go() {
    for engine in [Engine::Nft, Engine::Xtables] {
        let netns = weir_testing::namespace_or_skip!();
        let (one, two) = (
            host(&[("10.0.0.1", "a"), ("fd00::1", "a")]),
            host(&[("10.0.0.1", "b"), ("10.0.0.2", "c")]),
        );
        netns
            .run(|| {
                let first = apply(&one, engine);
                if engine == Engine::Xtables && first.as_ref().is_err_and(Error::is_unsupported) {
                    println!("skipped: {}", first.unwrap_err());
                    return;
                }
                assert!(!first.unwrap().is_empty(), "{engine}");
                assert_eq!(choose(engine == Engine::Xtables).unwrap(), engine);
                assert_eq!(
                    apply(&one, engine).unwrap(),
                    Vec::<String>::new(),
                    "{engine}"
                );
                assert!(!apply(&two, engine).unwrap().is_empty());
                assert_eq!(
                    apply(&two, engine).unwrap(),
                    Vec::<String>::new(),
                    "{engine}"
                );
                assert!(!remove().unwrap().is_empty());
                assert_eq!(remove().unwrap(), Vec::<String>::new(), "{engine}");
            })
            .unwrap();
    }
}

/// What is there now: sets and chains of each form.
fn forms() -> [bool; 3] {
    let tables = NftEngine::open().unwrap().tables().unwrap();
    let names = IpsetEngine::open().and_then(|mut engine| engine.names());
    let saved = weir_netfilter::xtables::XtEngine::open()
        .and_then(|mut engine| engine.ruleset())
        .unwrap()
        .to_string();
    let has_sets = names.is_ok_and(|names| names.iter().any(|n| SETS.contains(&n.as_str())));
    [
        tables.contains(&id()),
        saved.contains("ISTIO_POSTRT"),
        has_sets,
    ]
}

/// Legacy tables with sets; without them a printed skip.
fn has_legacy(host: &Host) -> bool {
    match apply(host, Engine::Xtables) {
        Err(e) if e.is_unsupported() => {
            println!("skipped: {e}");
            false
        }
        done => done.is_ok_and(|changes| !changes.is_empty()),
    }
}

#[test]
fn the_form_of_another_engine_goes() {
    let netns = weir_testing::namespace_or_skip!();
    let host = host(&[("10.0.0.1", "a"), ("fd00::1", "a")]);
    let steps = || {
        if !has_legacy(&host) {
            return;
        }
        assert_eq!(forms(), [false, true, true]);
        for (engine, expected) in [
            (Engine::Nft, [true, false, false]),
            (Engine::Xtables, [false, true, true]),
            (Engine::Nft, [true, false, false]),
        ] {
            assert!(!apply(&host, engine).unwrap().is_empty());
            assert_eq!(forms(), expected, "{engine}");
            assert_eq!(addresses(engine).unwrap(), host.addresses, "{engine}");
            assert_eq!(choose(engine == Engine::Xtables).unwrap(), engine);
            let again = apply(&host, engine).unwrap();
            assert_eq!(again, Vec::<String>::new(), "{engine}");
        }
        remove().unwrap();
        assert_eq!(forms(), [false; 3]);
    };
    netns.run(steps).unwrap();
}

/// A set is there before the rule that refers to it, and goes after that.
#[test]
fn ipv6_goes_and_comes_back() {
    let netns = weir_testing::namespace_or_skip!();
    let both = host(&[("10.0.0.1", "a"), ("fd00::1", "a")]);
    let mut v4 = both.clone();
    v4.config.enable_ipv6 = false;
    let steps = || {
        if !has_legacy(&both) {
            return;
        }
        for host in [&v4, &both, &v4] {
            assert!(!apply(host, Engine::Xtables).unwrap().is_empty());
            let expected: Vec<&str> = SETS.into_iter().take(host.families().len()).collect();
            let mut names = IpsetEngine::open().unwrap().names().unwrap();
            names.sort();
            assert_eq!(names, expected);
            let again = apply(host, Engine::Xtables).unwrap();
            assert_eq!(again, Vec::<String>::new());
        }
        remove().unwrap();
        assert_eq!(forms(), [false; 3]);
    };
    netns.run(steps).unwrap();
}

/// Only what differs is written, unless another writer was there.
#[test]
fn one_address_changes_among_many() {
    let netns = weir_testing::namespace_or_skip!();
    let (one, two, three) = (
        host(&[("10.0.0.1", "a"), ("10.0.0.3", "c"), ("fd00::1", "a")]),
        host(&[("10.0.0.1", "b"), ("10.0.0.2", "d"), ("10.0.0.3", "c")]),
        host(&[("10.0.0.1", "b"), ("10.0.0.2", "d"), ("fd00::1", "e")]),
    );
    let steps = || {
        let mut in_force = None;
        let mut put = |host: &Host| update(host, Engine::Nft, &mut in_force).unwrap();
        let now = || addresses(Engine::Nft).unwrap();
        assert!(!put(&one).is_empty());
        let element = |text: &str, v: u8| {
            let (verb, text) = text.split_once(' ').unwrap();
            format!("{verb} element inet istio-ambient-nat istio-inpod-probes-v{v} {{ {text} }}")
        };
        let expected = [
            element("delete 10.0.0.1 comment \"a\"", 4),
            element("add 10.0.0.1 comment \"b\"", 4),
            element("add 10.0.0.2 comment \"d\"", 4),
            element("delete fd00::1 comment \"a\"", 6),
        ];
        assert_eq!(put(&two), expected);
        assert_eq!((put(&two), now()), (vec![], two.addresses.clone()));
        // Another writer takes one away: the whole is compared.
        let flush = |text: &str| {
            let done = std::process::Command::new("nft").arg(text).status();
            assert!(done.unwrap().success(), "{text}");
        };
        flush("flush set inet istio-ambient-nat istio-inpod-probes-v4");
        assert!(!put(&three).is_empty());
        assert_eq!(now(), three.addresses);
        flush("flush chain inet istio-ambient-nat postrouting");
        assert!(!put(&three).is_empty(), "the rules are there again");
        assert_eq!(put(&three), Vec::<String>::new());
        remove().unwrap();
        assert!(!put(&one).is_empty());
        assert_eq!(now(), one.addresses);
        remove().unwrap();
    };
    netns.run(steps).unwrap();
}

#[test]
fn addresses_of_a_family_that_is_not_captured_are_left_out() {
    let mut host = host(&[("10.0.0.1", "a"), ("fd00::1", "a")]);
    host.config.enable_ipv6 = false;
    let text = ruleset(&host).unwrap().to_string();
    assert!(
        text.contains("10.0.0.1 comment \"a\"") && !text.contains("fd00::1"),
        "{text}"
    );
    assert_eq!(sets(&host).len(), 1);
    host.users = None;
    assert!(ruleset(&host).is_err());
}
