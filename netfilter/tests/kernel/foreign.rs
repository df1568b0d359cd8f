//! A desired object that is not owned is refused by every engine, in `apply` and `drift`, before anything is sent.
// matrix: host: the refusal needs no kernel

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use weir_netfilter::ipset::{Header, IpsetEngine, Set, SetFamily, SetType};
use weir_netfilter::nft::{self, NftEngine, TableFamily};
use weir_netfilter::xtables::{
    Chain, Ownership, Ruleset, SocketSets, Table, XtEngine, XtFamily, XtTransport,
};
use weir_netlink::message::Netfilter;
use weir_netlink::nfnetlink::Socket;
use weir_netlink::{Error, ErrorKind, NetlinkSocket, Transport};
use weir_testing::namespace_or_skip;

/// Counts the requests.
struct Counting<K>(K, Rc<Cell<u32>>);

impl<K> Counting<K> {
    fn count(&self) {
        self.1.set(self.1.get() + 1);
    }
}

impl<K: Transport> Transport for Counting<K> {
    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.count();
        self.0.send(datagram)
    }
    fn receive(&self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        self.0.receive(buf, wait)
    }
    fn reopen(&self) -> weir_netlink::Result<Self> {
        Ok(Self(self.0.reopen()?, Rc::clone(&self.1)))
    }
}

impl XtTransport for Counting<()> {
    fn names(&mut self, _: XtFamily) -> io::Result<Vec<String>> {
        self.count();
        Ok(Vec::new())
    }
    fn get(&mut self, _: XtFamily, _: i32, _: &mut [u8]) -> io::Result<usize> {
        self.count();
        Err(io::Error::from_raw_os_error(libc::ENOENT))
    }
    fn replace(&mut self, _: XtFamily, _: &mut [u8], _: &mut [u8]) -> io::Result<()> {
        self.count();
        Ok(())
    }
    fn add_counters(&mut self, _: XtFamily, _: &[u8]) -> io::Result<()> {
        self.count();
        Ok(())
    }
}

#[track_caller]
fn refused(error: &Error, words: &[&str]) {
    assert!(matches!(error.kind, ErrorKind::Refused(_)), "{error:?}");
    let text = error.to_string();
    assert!(words.iter().all(|w| text.contains(w)), "{text}");
}

fn socket(sent: &Rc<Cell<u32>>) -> Socket<Counting<NetlinkSocket>> {
    let kernel = NetlinkSocket::open::<Netfilter>().unwrap();
    Socket::with_transport(Counting(kernel, Rc::clone(sent)))
}

#[test]
fn a_table_of_nf_tables() {
    let ns = namespace_or_skip!();
    ns.run(|| {
        let sent = Rc::default();
        let mut engine = NftEngine::with_socket(socket(&sent));
        let owned = [(TableFamily::Inet, "ours".to_owned())];
        let desired = nft::Ruleset {
            tables: vec![nft::Table::new(TableFamily::Ip, "ours")],
        };
        let words = ["table ip ours", "not among the owned tables", "name it"];
        refused(&engine.apply(&desired, &owned).unwrap_err(), &words);
        refused(&engine.drift(&desired, &owned).unwrap_err(), &words);
        assert_eq!(sent.get(), 0);
    })
    .unwrap();
}

#[test]
fn a_set_of_ipset() {
    let ns = namespace_or_skip!();
    ns.run(|| {
        let sent = Rc::default();
        let mut engine = match IpsetEngine::with_socket(socket(&sent)) {
            Err(e) if e.is_unsupported() => return eprintln!("skipped: {e}"),
            engine => engine.unwrap(),
        };
        let version = sent.get();
        let set = |name: &str| Set::new(Header::new(name, SetType::HashIp, SetFamily::Inet));
        let desired = [set("ours"), set("theirs")];
        let owned = ["ours".to_owned()];
        let words = ["set theirs", "not among the owned sets", "name it"];
        refused(&engine.apply(&desired, &owned).unwrap_err(), &words);
        refused(&engine.drift(&desired, &owned).unwrap_err(), &words);
        assert_eq!(sent.get(), version);
    })
    .unwrap();
}

#[test]
fn a_table_or_chain_of_legacy_tables() {
    let ns = namespace_or_skip!();
    let desired = |table: &str, chain: &str| Ruleset {
        tables: vec![Table {
            chains: vec![Chain::user("OURS_A"), Chain::user(chain)],
            ..Table::new(XtFamily::Ip6, table)
        }],
    };
    let ours = Ownership {
        prefix: "OURS_".to_owned(),
        chains: vec![("nat".to_owned(), "NAMED".to_owned())],
        tables: &["nat"],
        ..Ownership::default()
    };
    ns.run(|| {
        let sent: Rc<Cell<u32>> = Rc::default();
        let sets = Box::new(SocketSets::open().unwrap());
        let mut engine = XtEngine::with_transport(Counting((), Rc::clone(&sent)), sets);
        let table = ["ip6tables table mangle", "not among the owned tables"];
        let chain = ["ip6tables table nat chain THEIRS", "the owner's prefix"];
        for (name, other, words) in [("mangle", "OURS_B", table), ("nat", "THEIRS", chain)] {
            let desired = desired(name, other);
            refused(&engine.apply(&desired, &ours).unwrap_err(), &words);
            refused(&engine.drift(&desired, &ours).unwrap_err(), &words);
            assert_eq!(sent.get(), 0);
        }
        for other in ["OURS_B", "NAMED"] {
            let drift = engine.drift(&desired("nat", other), &ours);
            assert_eq!(drift.unwrap().ops.len(), 2);
        }
        assert_ne!(sent.get(), 0);
    })
    .unwrap();
}
