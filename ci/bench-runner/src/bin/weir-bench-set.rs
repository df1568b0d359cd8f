//! `weir-bench-set NETNS ADDRESSES [SIZE]`: one nf_tables set of many addresses.
//!
//! Reads a file with one IPv4 address per line and creates `table ip bench` with the set `s` of these addresses in one
//! transaction; with SIZE the set declares its size. Like `nft -f` it does not read back.
#![forbid(unsafe_code)]
// A set that was not created must not be measured.
#![allow(clippy::expect_used)]

use std::fs::File;
use std::net::IpAddr;

use nix::sched::{CloneFlags, setns};
use weir_netfilter::nft::{Data, DataType, Element, NftEngine, Ruleset, Set, Table, TableFamily};

fn main() {
    weir_netlink::tuning::one_heap();
    let mut arguments = std::env::args().skip(1);
    let netns = arguments.next().expect("NETNS");
    let text = std::fs::read_to_string(arguments.next().expect("ADDRESSES")).expect("the file");
    let size = arguments.next();
    let netns = File::open(netns).expect("the namespace");
    setns(netns, CloneFlags::CLONE_NEWNET).expect("setns");

    let mut set = Set::new("s", DataType::IPV4_ADDR, 4);
    set.elements = text
        .lines()
        .map(|line| line.parse::<IpAddr>().expect("an address"))
        .map(|address| Element::value(Data::addr(address)))
        .collect();
    set.size = size.map(|size| size.parse().expect("a number"));
    drop(text);
    let mut table = Table::new(TableFamily::Ip, "bench");
    table.sets.push(set);
    let desired = Ruleset {
        tables: vec![table],
    };
    let owned = [(TableFamily::Ip, "bench".to_owned())];
    let mut engine = NftEngine::open().expect("nf_tables");
    let transaction = engine.drift(&desired, &owned).expect("read");
    engine.commit(&transaction).expect("committed");
}
