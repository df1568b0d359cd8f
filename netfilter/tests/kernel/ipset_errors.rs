//! Errors of the kernel and their texts, requests that the engine refuses by itself, and limits.

use weir_testing::namespace_or_skip;
use weir_testing::rights;

use crate::common::ipset::{engine, ipset, load, our_load, save, seedless};
use crate::common::tool;
use ipnet::IpNet;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;
use weir_netfilter::ipset::{
    Entry, Existing, Header, IpsetEngine, Key, SetFamily, SetType, error, restore,
};
use weir_netlink::message::Netfilter;
use weir_netlink::nfnetlink::Socket;
use weir_netlink::{Error, ErrorKind, InForce, NetlinkSocket, Netns, Transport};
use weir_testing::tool::inside;

fn ip(n: u32) -> Entry {
    Entry::new(IpAddr::V4(Ipv4Addr::from_bits(n)).into())
}

fn header(name: &str) -> Header {
    Header::new(name, SetType::HashIp, SetFamily::Inet)
}

#[track_caller]
fn says(error: &Error, name: &str, words: &[&str]) {
    assert!(
        matches!(error.kind, ErrorKind::Translated { name: n, .. } if n == name),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(words.iter().all(|w| text.contains(w)), "{text}");
}

/// Drops the kernel's answers on request.
struct Loses {
    kernel: NetlinkSocket,
    loses: Rc<Cell<Option<i32>>>,
}

impl Transport for Loses {
    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.kernel.send(datagram)
    }
    fn receive(&self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        let got = self.kernel.receive(buf, wait)?;
        match self.loses.get() {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(got),
        }
    }
    fn reopen(&self) -> weir_netlink::Result<Self> {
        Ok(Self {
            kernel: self.kernel.reopen()?,
            loses: Rc::clone(&self.loses),
        })
    }
}

#[test]
fn a_lost_answer_does_not_say_that_the_kernel_lacks_a_type() {
    let ns = namespace_or_skip!();
    ns.run(|| {
        let loses = Rc::new(Cell::new(None));
        let socket = Socket::with_transport(Loses {
            kernel: NetlinkSocket::open::<Netfilter>().unwrap(),
            loses: Rc::clone(&loses),
        });
        let mut engine = IpsetEngine::with_socket(socket).unwrap();
        for errno in [libc::ENOBUFS, libc::EAGAIN, libc::EPERM] {
            loses.set(Some(errno));
            let e = engine
                .revisions(&SetType::HashIp, SetFamily::Inet)
                .unwrap_err();
            assert!(!e.is_unsupported(), "{e}");
            assert!(e.errno() == Some(errno) || e.is_timed_out(), "{e}");
        }
        loses.set(None);
        let revisions = engine.revisions(&SetType::HashIp, SetFamily::Inet).unwrap();
        assert!(*revisions.end() > 0);
        let unknown = SetType::Other("hash:weir".to_owned());
        let e = engine.revisions(&unknown, SetFamily::Inet).unwrap_err();
        assert!(e.is_unsupported(), "{e}");
    })
    .unwrap();
}

#[test]
fn refusals_of_the_kernel_have_names_and_words() {
    let ns = namespace_or_skip!();
    engine(&ns, |e| {
        e.create(&header("s"), Existing::Refuse).unwrap();
        e.create(
            &Header::new("net", SetType::HashNet, SetFamily::Inet),
            Existing::Refuse,
        )
        .unwrap();
        e.create(
            &Header::new("l", SetType::ListSet, SetFamily::Unspec),
            Existing::Refuse,
        )
        .unwrap();
        let six = Entry::new(Key::from("::1".parse::<IpAddr>().unwrap()));
        let refuse = Existing::Refuse;
        let e1 = e.add("s", [ip(1), six.clone()], refuse).unwrap_err();
        says(
            &e1,
            "IPSET_ERR_PROTOCOL",
            &["cannot add ::1 to set s", "family", "4097"],
        );
        // The entries before the refused one were added.
        assert!(e.test("s", &ip(1)).unwrap());
        let e1 = e
            .add("s", [ip(2), ip(3), ip(1), ip(4)], refuse)
            .unwrap_err();
        says(&e1, "IPSET_ERR_EXIST", &["cannot add 0.0.0.1 to set s"]);
        assert!(error::is_exist(&e1));
        e.add("s", [ip(1)], Existing::Accept).unwrap();
        let e1 = e.delete("s", [ip(2), ip(99)], refuse).unwrap_err();
        says(
            &e1,
            "IPSET_ERR_EXIST",
            &["cannot delete 0.0.0.99 from set s"],
        );
        e.delete("s", [ip(99)], Existing::Accept).unwrap();
        says(
            &e.add("s", [ip(0)], refuse).unwrap_err(),
            "IPSET_ERR_HASH_ELEM",
            &["0.0.0.0"],
        );
        let zero = Entry::new(Key::from("10.0.0.0/0".parse::<IpNet>().unwrap()));
        says(
            &e.add("net", [zero], refuse).unwrap_err(),
            "IPSET_ERR_INVALID_CIDR",
            &["1 to 32"],
        );
        for missing in [
            e.add("none", [ip(1)], refuse).unwrap_err(),
            e.list(Some("none")).unwrap_err(),
            e.destroy("none").unwrap_err(),
            e.flush("none").unwrap_err(),
            e.rename("none", "x").unwrap_err(),
            e.test("none", &ip(1)).unwrap_err(),
        ] {
            assert!(missing.is_not_found(), "{missing}");
            says(&missing, "ENOENT", &["there is no such set"]);
        }
        let e1 = e.create(&header("s"), refuse).unwrap_err();
        assert!(e1.is_exists());
        says(&e1, "EEXIST", &["cannot create set s"]);
        e.create(&header("s"), Existing::Accept).unwrap();
        // Only a newer kernel might accept this.
        let six = Header::new("s", SetType::HashIp, SetFamily::Inet6);
        let other = e.create(&six, Existing::Accept).unwrap_err();
        assert!(
            other.is_exists() || matches!(other.kind, ErrorKind::Refused(_)),
            "{other}"
        );
        says(
            &e.swap("s", "net").unwrap_err(),
            "IPSET_ERR_TYPE_MISMATCH",
            &["sets s and net"],
        );
        says(
            &e.rename("s", "net").unwrap_err(),
            "IPSET_ERR_EXIST_SETNAME2",
            &["set s to net"],
        );
        let member = |n: &str| Entry::new(Key::Set(n.into()));
        says(
            &e.add("l", [member("none")], refuse).unwrap_err(),
            "IPSET_ERR_NAME",
            &["none"],
        );
        e.create(
            &Header::new("l2", SetType::ListSet, SetFamily::Unspec),
            refuse,
        )
        .unwrap();
        says(
            &e.add("l", [member("l2")], refuse).unwrap_err(),
            "IPSET_ERR_LOOP",
            &["l2"],
        );
        e.add("l", [member("s")], refuse).unwrap();
        says(&e.destroy("s").unwrap_err(), "IPSET_ERR_BUSY", &["in use"]);
        // The kernel refuses a message as a whole.
        let timeout = Entry {
            timeout: Some(1),
            ..ip(7)
        };
        says(
            &e.add("s", [timeout], refuse).unwrap_err(),
            "IPSET_ERR_TIMEOUT",
            &["0.0.0.7"],
        );
        says(
            &e.add("s", [ip(7).with_comment("c")], refuse).unwrap_err(),
            "IPSET_ERR_COMMENT",
            &["0.0.0.7"],
        );
        let mut ports = Header::new("p", SetType::BitmapPort, SetFamily::Unspec);
        ports.range = Some((80, 90));
        e.create(&ports, refuse).unwrap();
        let port = Entry::new(Key::Port(91));
        says(
            &e.add("p", [port], refuse).unwrap_err(),
            "IPSET_ERR_BITMAP_RANGE",
            &["91"],
        );
        let mut addresses = Header::new("a", SetType::BitmapIp, SetFamily::Inet);
        addresses.addresses = Some(([0, 0, 0, 0].into(), [0, 0, 0, 255].into()));
        e.create(&addresses, refuse).unwrap();
        let words = &["0.0.1.4", "outside of the set's range"];
        let added = e.add("a", [ip(3), ip(260)], refuse).unwrap_err();
        says(&added, "IPSET_ERR_BITMAP_RANGE", words);
    });
}

#[test]
fn a_full_set_says_so() {
    let ns = namespace_or_skip!();
    engine(&ns, |e| {
        let small = Header {
            max_elem: Some(10),
            ..header("s")
        };
        e.create(&small, Existing::Refuse).unwrap();
        let error = e.add("s", (1..=11).map(ip), Existing::Refuse).unwrap_err();
        says(
            &error,
            "IPSET_ERR_HASH_FULL",
            &["0.0.0.11 to set s", "maxelem"],
        );
        assert!(error::is_full(&error));
        // If a replacement does not fit, the old set stays and nothing else is left.
        let desired = weir_netfilter::ipset::Set {
            header: Header {
                comment: true,
                ..small
            },
            entries: (100..200).map(ip).collect(),
        };
        let owned = ["s".to_owned()];
        assert!(error::is_full(&e.apply(&[desired], &owned).unwrap_err()));
        assert_eq!(e.names().unwrap(), ["s"]);
        assert_eq!(e.list(Some("s")).unwrap()[0].set.entries.len(), 10);
    });
}

#[test]
fn a_set_that_a_rule_names_is_replaced_under_it_and_not_destroyed() {
    let ns = namespace_or_skip!();
    load(&ns, "create s hash:ip\nadd s 10.0.0.1\n");
    let legacy = |args: &str| {
        // Another program of the machine may hold the lock of the tools.
        let args = format!("-w 60 {args}");
        let args: Vec<&str> = args.split(' ').collect();
        tool(&ns, "iptables-legacy", &args, "").unwrap()
    };
    legacy("-A OUTPUT -m set --match-set s dst -j DROP");
    engine(&ns, |e| {
        says(&e.destroy("s").unwrap_err(), "IPSET_ERR_BUSY", &["rule"]);
        assert_eq!(e.headers(Some("s")).unwrap()[0].references, 1);
        let mut desired = weir_netfilter::ipset::Set::new(Header {
            counters: true,
            ..header("s")
        });
        desired.entries.push(ip(5));
        e.apply(&[desired.clone()], &["s".to_owned()]).unwrap();
        assert_eq!(e.headers(Some("s")).unwrap()[0].references, 1);
        // A set of another type cannot be swapped in.
        desired.header = Header::new("s", SetType::HashNet, SetFamily::Inet);
        desired.entries.clear();
        says(
            &e.apply(&[desired], &["s".to_owned()]).unwrap_err(),
            "IPSET_ERR_BUSY",
            &["set s"],
        );
    });
    let rules = legacy("-S");
    assert!(rules.contains("--match-set s dst"), "{rules}");
}

/// The reference is released later, as after a transaction of nf_tables.
#[test]
fn a_set_that_is_given_up_later_is_waited_for() {
    let ns = namespace_or_skip!();
    load(&ns, "create s hash:ip\ncreate l list:set\nadd l s\n");
    let begun = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            engine(&ns, |e| {
                begun.wait();
                e.destroy_after_commit("s").unwrap();
            });
        });
        begun.wait();
        engine(&ns, |e| {
            // Released after several exchanges.
            for _ in 0..100 {
                assert_eq!(e.names().unwrap().len(), 2);
            }
            e.destroy("l").unwrap();
        });
        waiting.join().unwrap();
    });
    engine(&ns, |e| assert!(e.names().unwrap().is_empty()));
}

/// Two of four sets are in use: the error names both, and the others are deleted.
#[test]
fn sets_that_cannot_go_keep_no_other() {
    let ns = namespace_or_skip!();
    let text = "create a hash:ip\ncreate b hash:ip\ncreate c hash:ip\ncreate d hash:ip\n\
                create theirs list:set\nadd theirs a\nadd theirs c\n";
    load(&ns, text);
    let owned = ["a", "b", "c", "d"].map(str::to_owned);
    let error = engine(&ns, |e| e.apply(&[], &owned).unwrap_err());
    let text = error.to_string();
    for part in ["destroy set a", "destroy set c"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("set b") && !text.contains("set d"), "{text}");
    assert_eq!(error.in_force, InForce::Unknown, "{error}");
    let left = save(&ns);
    assert!(
        left.contains("create a ") && left.contains("create c "),
        "{left}"
    );
    assert!(
        !left.contains("create b ") && !left.contains("create d "),
        "{left}"
    );
    tool(&ns, "ipset", &["destroy", "theirs"], "").unwrap();
    engine(&ns, |e| e.apply(&[], &owned).unwrap());
    assert_eq!(save(&ns), "");
}

#[test]
fn timeouts_run_down_and_are_no_drift() {
    let ns = namespace_or_skip!();
    engine(&ns, |e| {
        let mut set = weir_netfilter::ipset::Set::new(Header {
            timeout: Some(2),
            ..header("s")
        });
        set.entries = vec![
            ip(1),
            Entry {
                timeout: Some(0),
                ..ip(2)
            },
        ];
        e.apply(&[set.clone()], &["s".to_owned()]).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let first = |e: &mut IpsetEngine| {
            let entries = e.list(Some("s")).unwrap().remove(0).set.entries;
            entries.into_iter().find(|x| x.key == ip(1).key)
        };
        while first(e).is_some_and(|x| x.timeout > Some(1)) {
            assert!(
                std::time::Instant::now() < deadline,
                "the timeout does not run"
            );
            std::thread::yield_now();
        }
        while first(e).is_some() {
            assert!(
                std::time::Instant::now() < deadline,
                "the entry does not go"
            );
            std::thread::yield_now();
        }
        // A deleted set is drift.
        assert_eq!(e.apply(&[set], &["s".to_owned()]).unwrap().ops.len(), 1);
    });
}

#[test]
fn what_cannot_be_kept_is_refused_before_the_kernel_is_asked() {
    let ns = namespace_or_skip!();
    engine(&ns, |e| {
        e.create(
            &Header {
                comment: true,
                ..header("s")
            },
            Existing::Refuse,
        )
        .unwrap();
        let refused = |e: Error| assert!(matches!(e.kind, ErrorKind::Refused(_)), "{e}");
        for comment in ["a\"b", "a\nb", &"x".repeat(256)] {
            refused(
                e.add("s", [ip(1).with_comment(comment)], Existing::Refuse)
                    .unwrap_err(),
            );
        }
        let longest = "y".repeat(255);
        e.add("s", [ip(1).with_comment(&longest)], Existing::Refuse)
            .unwrap();
        assert_eq!(
            e.list(None).unwrap()[0].set.entries[0].comment,
            Some(longest)
        );
        for name in ["", "a\nb", &"n".repeat(32)] {
            refused(e.create(&header(name), Existing::Refuse).unwrap_err());
            refused(e.destroy(name).unwrap_err());
        }
        e.create(&header(&"n".repeat(31)), Existing::Refuse)
            .unwrap();
        refused(
            e.create(
                &Header::new("z", SetType::Other("bitmap:weir".into()), SetFamily::Inet),
                Existing::Refuse,
            )
            .unwrap_err(),
        );
        refused(
            e.create(
                &Header {
                    bucket_size: Some(4),
                    ..Header::new("z", SetType::ListSet, SetFamily::Unspec)
                },
                Existing::Refuse,
            )
            .unwrap_err(),
        );
        refused(
            e.apply(&[weir_netfilter::ipset::Set::new(header("q"))], &[])
                .unwrap_err(),
        );
    });
}

#[test]
fn a_restore_is_carried_out_whole_or_names_the_line() {
    let ns = namespace_or_skip!();
    let bad = "create a hash:ip\nadd a 10.0.0.1\n\nadd a 10.0.0.999\n";
    let error = our_load(&ns, bad).unwrap_err();
    assert!(error.to_string().contains("line 4, column 7"), "{error}");
    assert_eq!(error.in_force, InForce::No);
    for bad in [
        "create a hash:ip comment\nadd a 10.0.0.1 comment \"x\0y\"\n",
        "create a hash:ip\nadd a 10.0.0.1\ncreate b\0c hash:ip\n",
    ] {
        let error = our_load(&ns, bad).unwrap_err();
        let text = error.to_string();
        assert!(text.ends_with("zero byte; remove it"), "{text}");
        assert_eq!(error.in_force, InForce::No);
        assert_eq!(save(&ns), "");
    }
    // The error names the line that the kernel refuses.
    let twice = "create a hash:ip\nadd a 10.0.0.1\n# again\nadd a 10.0.0.2\nadd a 10.0.0.1\n";
    let error = our_load(&ns, twice).unwrap_err().to_string();
    assert!(
        error.contains("line 5: 10.0.0.1 to set a") && error.contains("IPSET_ERR_EXIST"),
        "{error}"
    );
    engine(&ns, |e| e.restore(twice, Existing::Accept)).unwrap();
    let error = our_load(&ns, "create a hash:ip\n").unwrap_err().to_string();
    assert!(error.contains("line 1: set a"), "{error}");
    our_load(
        &ns,
        "create a hash:ip -exist\nadd a 10.0.0.1 -exist\n-! add a 10.0.0.2\n",
    )
    .unwrap();
    let error = restore::check(bad, Vec::new()).unwrap_err();
    assert_eq!(error.column, 7, "{error}");
    our_load(
        &ns,
        "flush a\nrename a b\ncreate c hash:ip\nswap b c\ndel b 1.1.1.1 -exist\ndestroy\n",
    )
    .unwrap();
    assert_eq!(save(&ns), "");
}

/// The kernel goes on with the next message of a datagram after a refused one; `ipset restore` stops.
#[test]
fn no_line_after_a_refused_one_is_in_force() {
    let (ns, oracle) = (namespace_or_skip!(), Netns::create().unwrap());
    // The last line of each needs another message.
    for (text, refused) in [
        (
            "create a hash:ip maxelem 1\ncreate b hash:ip\nadd a 1.1.1.1\nadd a 2.2.2.2\nadd b 3.3.3.3\n",
            "line 4: ",
        ),
        (
            "create c hash:ip\nadd c 1.1.1.1\nadd c 1.1.1.1\nadd c 10.0.0.0/21\n",
            "line 3: ",
        ),
        (
            "create d hash:ip\nadd d 1.1.1.1\ndel d 2.2.2.2\nadd d 3.3.3.3\n",
            "line 3: ",
        ),
    ] {
        let error = our_load(&ns, text).unwrap_err();
        assert!(error.to_string().contains(refused), "{error}");
        assert_eq!(error.in_force, InForce::Unknown, "{error}");
        ipset(&oracle, "restore", text).unwrap_err();
        assert_eq!(seedless(&save(&ns)), seedless(&save(&oracle)), "{text}");
    }
    // The first entry of the first command is refused.
    let before = save(&ns);
    for text in [
        "add d 1.1.1.1\nadd d 5.5.5.5\nadd b 5.5.5.5\n",
        "create b hash:ip\nadd d 5.5.5.5\n",
        "destroy d\ndel d 5.5.5.5\n",
    ] {
        if text.starts_with("destroy") {
            let rule = [
                "-w",
                "60",
                "-A",
                "OUTPUT",
                "-m",
                "set",
                "--match-set",
                "d",
                "dst",
            ];
            tool(&ns, "iptables-legacy", &rule, "").unwrap();
        }
        let error = our_load(&ns, text).unwrap_err();
        assert_eq!(error.in_force, InForce::No, "{error}");
        assert_eq!(save(&ns), before, "{text}");
    }
    let error = engine(&ns, |e| e.add("d", [ip(5), ip(5), ip(6)], Existing::Refuse));
    assert_eq!(error.unwrap_err().in_force, InForce::Unknown);
    let error = engine(&ns, |e| e.add("none", [ip(5), ip(6)], Existing::Refuse));
    assert_eq!(error.unwrap_err().in_force, InForce::No);
}

#[test]
fn many_entries() {
    const N: u32 = 65_536;
    let ns = namespace_or_skip!();
    engine(&ns, |e| {
        let set = Header {
            max_elem: Some(N),
            ..header("s")
        };
        e.create(&set, Existing::Refuse).unwrap();
        let all = || (0..N).map(|n| ip(0x0a00_0000 + n));
        e.add("s", all(), Existing::Refuse).unwrap();
        let listed = e.list(Some("s")).unwrap().remove(0);
        let keys: BTreeSet<String> = listed
            .set
            .entries
            .iter()
            .map(|x| x.key.to_string())
            .collect();
        assert_eq!(keys.len(), N as usize);
        // The set becomes full: a message in the middle fails, and the error reports it.
        let again = all().skip(60_000).map(|mut x| {
            if let Some(IpAddr::V4(v4)) = x.key.address() {
                x.key = IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() + 0x0100_0000)).into();
            }
            x
        });
        assert!(error::is_full(
            &e.add("s", again, Existing::Refuse).unwrap_err()
        ));
        e.delete("s", all(), Existing::Refuse).unwrap();
        let left = e.list(Some("s")).unwrap().remove(0).set.entries;
        assert!(
            left.iter().all(|x| !keys.contains(&x.key.to_string())),
            "{left:?}"
        );
        // With the longest comments, a message contains fewer entries.
        e.create(
            &Header {
                comment: true,
                ..header("c")
            },
            Existing::Refuse,
        )
        .unwrap();
        e.add(
            "c",
            all().take(2000).map(|x| x.with_comment("z".repeat(255))),
            Existing::Refuse,
        )
        .unwrap();
        assert_eq!(e.list(Some("c")).unwrap()[0].set.entries.len(), 2000);
    });
}

#[test]
fn without_rights_the_error_names_them() {
    let ns = namespace_or_skip!();
    if !nix_is_root() {
        return eprintln!("skipped: needs root, to give rights up");
    }
    if let Some(reason) = rights::unmapped([65_534]) {
        return eprintln!("skipped: {reason}");
    }
    let this = std::env::current_exe().unwrap();
    let out = inside(&ns)
        .args([
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
        ])
        .arg(this)
        .args([
            "--exact",
            "--nocapture",
            "--ignored",
            "ipset_errors::helper_opens_an_engine",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        text.contains("EPERM") && text.contains("CAP_NET_ADMIN"),
        "{text}{out:?}"
    );
}

fn nix_is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .unwrap()
        .contains("\nUid:\t0\t")
}

#[test]
#[ignore = "called by another test without rights"]
fn helper_opens_an_engine() {
    match IpsetEngine::open() {
        Ok(_) => println!("it opened"),
        Err(e) => println!("{e}"),
    }
}

#[test]
fn the_tool_refuses_the_same() {
    let ns = namespace_or_skip!();
    load(
        &ns,
        "create s hash:ip\ncreate s6 hash:ip family inet6\ncreate n hash:net\ncreate p hash:ip,port\ncreate p6 hash:ip,port family inet6\ncreate b bitmap:port range 1-9\ncreate t hash:ip timeout 5\n",
    );
    for line in [
        "create",
        "create x",
        "create x hash:none",
        "create x hash:ip family inet5",
        "create x hash:ip hashsize z",
        "create x hash:ip nonsense",
        "create x hash:ip netmask 33",
        "create x hash:net netmask 8",
        "create x bitmap:port",
        "create x bitmap:port range 1-65536",
        "create x list:set hashsize 8",
        "create x hash:ip timeout 2147484",
        "create abcdefghijklmnopqrstuvwxyz0123456789 hash:ip",
        "add",
        "add s",
        "add nobody 10.0.0.1",
        "add s 10.0.0.x",
        "add s ::1",
        "add s6 10.0.0.1",
        "add s 10.0.0.1/33",
        "add s 10.0.0.1 nomatch",
        "add s 10.0.0.1 timeout 5",
        "add s 10.0.0.1 comment \"a",
        "add s 10.0.0.1 comment \"a\"",
        "add p 10.0.0.1",
        "add p 10.0.0.1,tcp:70000",
        "add p 10.0.0.1,icmpv6:1/1",
        "add p6 ::1,icmp:1/1",
        "add p 10.0.0.1,gre:5",
        "add p 10.0.0.1,icmp:nonsense",
        "add p 10.0.0.1,nonsense:1",
        "add b 10",
        "add b x",
        "add n 10.0.0.1/-1",
        "frobnicate s",
        "rename s",
        "swap s",
        "add s 10.0.0.1 packets 5",
        "add t 10.0.0.1 timeout 2147484",
    ] {
        assert!(
            ipset(&ns, "restore", &format!("{line}\n")).is_err(),
            "the tool takes: {line}"
        );
        let error = our_load(&ns, &format!("{line}\n")).expect_err(line);
        assert!(
            error.to_string().contains("line 1, column "),
            "{line}: {error}"
        );
    }
}

#[test]
fn a_reader_that_stops_leaves_the_engine_usable() {
    let ns = namespace_or_skip!();
    engine(&ns, |e| {
        e.create(&header("s"), Existing::Refuse).unwrap();
        e.add("s", (1..=20_000).map(ip), Existing::Refuse).unwrap();
        for _ in 0..3 {
            let stop = || Error::refused("read", "it", "enough");
            assert!(e.each(None, |_| Err(stop())).is_err());
            assert_eq!(e.list(None).unwrap()[0].set.entries.len(), 20_000);
        }
    });
}

#[test]
fn sets_that_are_too_large_are_named_and_not_held() {
    let ns = namespace_or_skip!();
    engine(&ns, |e| {
        e.create(&header("small"), Existing::Refuse).unwrap();
        e.create(&header("large"), Existing::Refuse).unwrap();
        let entries = (1..=20_000).map(ip);
        e.add("large", entries, Existing::Refuse).unwrap();
        let mut bounded = IpsetEngine::open().unwrap().read_limit(100_000);
        for error in [
            bounded.list(None).unwrap_err(),
            bounded.text().unwrap_err(),
            bounded.drift(&[], &["large".to_owned()]).unwrap_err(),
        ] {
            let text = error.to_string();
            for word in ["100000 bytes", "set large", "flush"] {
                assert!(text.contains(word), "{text}");
            }
        }
        // The same engine lists a small set, and passes on a large one in pieces.
        assert_eq!(bounded.list(Some("small")).unwrap().len(), 1);
        let mut entries = 0;
        bounded
            .each(None, |_| {
                entries += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(entries, 20_002);
    });
}
