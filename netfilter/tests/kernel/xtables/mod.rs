//! The real legacy tools, and the engine of this crate in a namespace.
mod extensions;

use weir_testing::rights;

use crate::common::tool;
use std::net::UdpSocket;
use std::time::Duration;
use weir_netfilter::xtables::{Ownership, Ruleset, Script, Snapshot, XtEngine, XtFamily};
use weir_netlink::Netns;

/// A namespace in which the legacy tools have all rights. Prints the reason and returns `None` otherwise.
///
/// Their lock is a file of the machine, and a rule may match any user.
pub fn namespace() -> Option<Netns> {
    if let Some(reason) = rights::not_first_user_namespace() {
        eprintln!("skipped: {reason}");
        return None;
    }
    weir_testing::namespace()
}

fn name(family: XtFamily, what: &str) -> String {
    match family {
        XtFamily::Ip => format!("iptables-legacy{what}"),
        XtFamily::Ip6 => format!("ip6tables-legacy{what}"),
    }
}

/// Loads text with `iptables-legacy-restore`.
#[track_caller]
pub fn load(ns: &Netns, family: XtFamily, text: &str, args: &[&str]) {
    let args = [&["-w", "60"], args].concat();
    tool(ns, &name(family, "-restore"), &args, text)
        .unwrap_or_else(|e| panic!("the tool refuses:\n{text}\n{e}"));
}

/// `iptables-legacy ARGS`
#[track_caller]
pub fn run(ns: &Netns, family: XtFamily, args: &str) -> String {
    let args: Vec<&str> = ["-w", "60"]
        .into_iter()
        .chain(args.split_whitespace())
        .collect();
    tool(ns, &name(family, ""), &args, "").unwrap_or_else(|e| panic!("{args:?}: {e}"))
}

/// The output of `iptables-legacy-save` without comments, with tables in the order of their names.
pub fn save(ns: &Netns, family: XtFamily) -> String {
    plain(&tool(ns, &name(family, "-save"), &[], "").unwrap())
}

/// Like [`save`], with counters.
pub fn save_counted(ns: &Netns, family: XtFamily) -> String {
    by_table(&without_remarks(
        &tool(ns, &name(family, "-save"), &["-c"], "").unwrap(),
    ))
}

pub fn without_remarks(text: &str) -> String {
    text.lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| format!("{l}\n"))
        .collect()
}

/// The tables in the order of their names; the kernel lists them in the order of their creation.
pub fn by_table(text: &str) -> String {
    let mut tables: Vec<&str> = text.split_inclusive("COMMIT\n").collect();
    tables.sort_unstable();
    tables.concat()
}

/// Without comments, and with the counters of policies at zero.
pub fn plain(text: &str) -> String {
    by_table(&without_remarks(text))
        .lines()
        .map(|l| match (l.starts_with(':'), l.rfind('[')) {
            (true, Some(at)) => format!("{}[0:0]\n", &l[..at]),
            _ => format!("{l}\n"),
        })
        .collect()
}

/// Sends a datagram of this many bytes to a closed port of the calling thread's namespace, and waits until the kernel's refusal
/// arrives: afterwards, no packet of it can change a counter.
pub fn refused_datagram(length: usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect("127.0.0.1:9").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    socket.send(&vec![7; length]).unwrap();
    let refused = socket.recv(&mut [0]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// Calls `f` with an engine in the namespace.
pub fn engine<R: Send>(ns: &Netns, f: impl FnOnce(&mut XtEngine) -> R + Send) -> R {
    ns.run(|| f(&mut XtEngine::open().unwrap())).unwrap()
}

pub fn read(ns: &Netns) -> Snapshot {
    engine(ns, |e| e.read().unwrap())
}

/// Ownership of the user chains of a ruleset.
pub fn owning(ruleset: &Ruleset) -> Ownership {
    let chains = |t: &weir_netfilter::xtables::Table| {
        let names = t.chains.iter().map(|c| (t.name.clone(), c.name.clone()));
        names.collect::<Vec<_>>()
    };
    Ownership {
        chains: ruleset.tables.iter().flat_map(chains).collect(),
        ..Ownership::default()
    }
}

/// The text of one family, as this crate lists it.
pub fn ours(ns: &Netns, family: XtFamily) -> String {
    by_table(&without_remarks(
        &read(ns).ruleset.family(family).to_string(),
    ))
}

/// Executes a restore text with this crate's engine.
#[track_caller]
pub fn restore(ns: &Netns, family: XtFamily, text: &str, keep: bool) {
    let script = Script::parse(family, text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    engine(ns, |e| e.restore(&script, keep)).unwrap_or_else(|e| panic!("{e}"));
}

/// Creates the sets to which the texts refer.
pub fn make_sets(ns: &Netns) {
    let script = "create plain hash:ip counters\ncreate pair hash:ip,port\n\
                  create timed hash:ip timeout 60\ncreate plain6 hash:ip family inet6 counters\n\
                  create pair6 hash:ip,port family inet6\ncreate timed6 hash:ip family inet6 timeout 60\n\
                  create docker-ext-bridges-v4 hash:net\ncreate cali40all-ipam-pools hash:net\n\
                  create cali40masq-ipam-pools hash:net\ncreate cali40all-hosts-net hash:net\n\
                  create cali40s:Z9nM2cQ2pVfM2b9xWm1 hash:net\n";
    tool(ns, "ipset", &["restore"], script).unwrap();
}

/// The namespace's lists of tables. Reading them changes nothing.
pub fn names(ns: &Netns) -> (String, String) {
    let read = |f: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{f}")).unwrap();
    ns.run(|| (read("ip_tables_names"), read("ip6_tables_names")))
        .unwrap()
}
