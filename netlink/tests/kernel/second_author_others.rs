//! Random qdiscs, filters, namespace ids and policy rules between two implementations, as in [`crate::second_author`].

use crate::second_author::{family, networks, random, rule_both_ways, scene};
use proptest::prelude::*;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::nsid::{NsidAttribute, NsidMessage};
use rtnetlink::packet_route::route::RouteProtocol as TheirProtocol;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpfOption, TcFilterMatchAllOption, TcMessage, TcOption,
};
use std::os::fd::{AsFd, AsRawFd};
use weir_bpf::{BPF_PROG_TYPE_SCHED_CLS, Program};
use weir_netlink::Netns;
use weir_netlink::route::{
    BpfFilter, Filter, FilterKind, Matchall, PolicyRule, Qdisc, RouteProtocol, TcHandle,
};
use weir_testing::namespace_or_skip;

/// A program that lets every packet pass; `None` if the kernel refuses to load it.
pub fn program() -> Option<Program> {
    // r0 = TC_ACT_UNSPEC; exit
    let code = [
        [0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        [0x95, 0, 0, 0, 0, 0, 0, 0],
    ];
    match Program::load(BPF_PROG_TYPE_SCHED_CLS, 0, &code, c"GPL") {
        Ok(program) => Some(program),
        Err(e) => {
            println!("skipped, filters of eBPF: {e}");
            None
        }
    }
}

/// The message about an object of a link.
fn about(link: u32, (handle, parent): (TcHandle, TcHandle), info: u32) -> TcMessage {
    let mut message = TcMessage::with_index(link.cast_signed());
    message.header.handle = handle.0.into();
    message.header.parent = parent.0.into();
    message.header.info = info;
    message
}

fn listed(found: Vec<RouteNetlinkMessage>) -> Vec<TcMessage> {
    let found = found.into_iter().filter_map(|m| match m {
        RouteNetlinkMessage::NewQueueDiscipline(m) | RouteNetlinkMessage::NewTrafficFilter(m) => {
            Some(m)
        }
        _ => None,
    });
    found.collect()
}

#[test]
fn qdiscs() {
    let netns = namespace_or_skip!();
    let (ours, theirs, link) = scene(&netns);
    let clsact = Qdisc::clsact(link);
    let mut message = about(link, (clsact.handle, clsact.parent), 0);
    message.attributes = vec![TcAttribute::Kind("clsact".to_owned())];
    if let Err(e) = ours.add_qdisc(&clsact) {
        assert!(e.is_not_found(), "{e}");
        return weir_testing::lacks::skip("qdisc clsact", "4.5", e);
    }
    let found = listed(theirs.list(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default())));
    let is_ours =
        |m: &TcMessage| m.header == message.header && m.attributes.contains(&message.attributes[0]);
    // The kernel counts references in `info`.
    let found = found.into_iter().map(|mut m| {
        m.header.info = 0;
        m
    });
    assert!(found.clone().any(|m| is_ours(&m)), "{found:?}");
    theirs.delete(RouteNetlinkMessage::DelQueueDiscipline(message.clone()));

    theirs.add(RouteNetlinkMessage::NewQueueDiscipline(message));
    let found = ours.qdiscs().expect("listed");
    let key = |q: &Qdisc| (q.link, q.handle, q.parent, q.kind.clone());
    assert!(found.iter().any(|q| key(q) == key(&clsact)), "{found:?}");
    assert!(ours.delete_qdisc(&clsact).expect("deleted"));
}

/// The parts of a filter that both sides write.
fn key(f: &Filter) -> impl PartialEq + std::fmt::Debug {
    let kind = match &f.kind {
        FilterKind::Bpf(b) => (b.name.clone(), b.flags),
        FilterKind::Matchall(m) => (None, m.classid),
        other => panic!("{other:?}"),
    };
    (f.link, f.parent, f.priority, f.protocol, f.handle, kind)
}

#[test]
fn filters() {
    let netns = namespace_or_skip!();
    let (ours, theirs, link) = scene(&netns);
    if let Err(e) = ours.add_qdisc(&Qdisc::clsact(link)) {
        return weir_testing::lacks::skip("qdisc clsact", "4.5", e);
    }
    let program = program();
    let matchall = FilterKind::Matchall(Matchall {
        classid: Some(1),
        ..Matchall::default()
    });
    let matchall = Filter::new(link, TcHandle::INGRESS, 1, matchall);
    let mut kinds = vec!["bpf"];
    kinds.retain(|_| program.is_some());
    match ours.add_filter(&matchall) {
        Err(e) => {
            assert!(e.is_not_found(), "{e}");
            weir_testing::lacks::skip("filter matchall", "4.8", e);
        }
        Ok(_) => {
            assert!(ours.delete_filter(&matchall).expect("deleted"));
            kinds.push("matchall");
        }
    }
    if kinds.is_empty() {
        return;
    }
    let strategy = (
        proptest::sample::select(kinds),
        any::<bool>(),
        1..=u16::MAX,
        proptest::sample::select(vec![0x0003_u16, 0x0800, 0x86dd]),
        1..u32::MAX,
        1..u32::MAX,
        "[a-z]{1,15}",
    );
    random(
        strategy,
        |(kind, is_egress, priority, protocol, handle, class, name)| {
            let parent = [TcHandle::INGRESS, TcHandle::EGRESS][usize::from(is_egress)];
            let (kind, options) = match program.as_ref().filter(|_| kind == "bpf") {
                Some(program) => {
                    let options = [
                        TcFilterBpfOption::ProgFd(program.as_fd().as_raw_fd().cast_unsigned()),
                        TcFilterBpfOption::ProgName(name.clone()),
                        TcFilterBpfOption::Flags(TcBpfFlags::DirectAction),
                    ];
                    let options = options.map(TcOption::Bpf).to_vec();
                    (FilterKind::bpf(program.as_fd(), &name), options)
                }
                None => {
                    let matchall = Matchall {
                        classid: Some(class),
                        ..Matchall::default()
                    };
                    let option = TcFilterMatchAllOption::ClassId(class.into());
                    (
                        FilterKind::Matchall(matchall),
                        vec![TcOption::MatchAll(option)],
                    )
                }
            };
            let filter = Filter {
                protocol,
                handle,
                ..Filter::new(link, parent, priority, kind)
            };
            let info = u32::from(priority) << 16 | u32::from(protocol.to_be());
            let mut message = about(link, (TcHandle(handle), parent), info);
            message.attributes = vec![
                TcAttribute::Kind(filter.kind.word().to_owned()),
                TcAttribute::Options(options.clone()),
            ];
            theirs.add(RouteNetlinkMessage::NewTrafficFilter(message.clone()));
            let found = ours.filters(link, parent).expect("listed");
            let found: Vec<_> = found.iter().filter(|f| f.handle != 0).collect();
            let [found] = found.as_slice() else {
                panic!("{found:?}")
            };
            assert_eq!(key(found), key(&filter));
            if let FilterKind::Bpf(BpfFilter { id, tag, .. }) = &found.kind {
                assert!(id.is_some() && tag.as_ref().is_some_and(|tag| tag.len() == 8));
            }
            assert!(ours.delete_filter(&filter).expect("deleted"));

            assert!(ours.add_filter(&filter).expect("added"));
            let all = about(link, (TcHandle(0), parent), 0);
            let found = listed(theirs.list(RouteNetlinkMessage::GetTrafficFilter(all)));
            let found = found.iter().find(|m| m.header == message.header);
            let found = found.expect("ours");
            assert!(found.attributes.contains(&message.attributes[0]));
            let theirs_read = found.attributes.iter().find_map(|a| match a {
                TcAttribute::Options(options) => Some(options),
                _ => None,
            });
            let theirs_read = theirs_read.expect("options");
            // The descriptor is only in a request.
            let is_fd = |o: &&TcOption| matches!(o, TcOption::Bpf(TcFilterBpfOption::ProgFd(_)));
            let mut written = options.iter().filter(|o| !is_fd(o));
            assert!(written.all(|o| theirs_read.contains(o)), "{theirs_read:?}");
            theirs.delete(RouteNetlinkMessage::DelTrafficFilter(message));
        },
    );
}

#[test]
fn namespace_ids() {
    let netns = namespace_or_skip!();
    let (ours, theirs, _) = scene(&netns);
    let used = std::cell::RefCell::new(std::collections::BTreeSet::new());
    random((0..1_000_000i32, 0..1_000_000i32), |(first, second)| {
        // An id remains as long as its namespace.
        if !used.borrow_mut().insert(first) || !used.borrow_mut().insert(second) {
            return;
        }
        let (one, two) = (Netns::create().expect("one"), Netns::create().expect("two"));
        let fd = |ns: &Netns| NsidAttribute::Fd(ns.as_fd().as_raw_fd().cast_unsigned());
        let mut message = NsidMessage::default();
        message.attributes = vec![fd(&one), NsidAttribute::Id(first)];
        theirs.add(RouteNetlinkMessage::NewNsId(message));
        assert_eq!(ours.nsid(&one).expect("asked"), Some(first));
        assert!(ours.nsids().expect("listed").contains(&first));

        assert!(ours.set_nsid(&two, second).expect("set"));
        let found = theirs.list(RouteNetlinkMessage::GetNsId(NsidMessage::default()));
        let has = |id| {
            found.iter().any(|m| match m {
                RouteNetlinkMessage::NewNsId(m) => m.attributes.contains(&NsidAttribute::Id(id)),
                _ => false,
            })
        };
        assert!(has(first) && has(second), "{found:?}");
    });
}

#[test]
fn policy_rules_by_destination_and_link() {
    let netns = namespace_or_skip!();
    let (ours, theirs, _) = scene(&netns);
    let strategy = (
        networks(),
        proptest::option::of("[a-z]{1,15}"),
        1..90_000u32,
        1..32_000u32,
        5..=255u8,
    );
    random(strategy, |(net, iif, table, priority, protocol)| {
        let mut rule = PolicyRule::to(net, table).at(priority);
        rule.protocol = RouteProtocol::from(protocol);
        rule.selectors.iif.clone_from(&iif);
        let mut message = RuleMessage::default();
        message.header.family = family(net.addr());
        message.header.dst_len = net.prefix_len();
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Destination(net.network()),
            RuleAttribute::Table(table),
            RuleAttribute::Priority(priority),
            RuleAttribute::Protocol(TheirProtocol::from(protocol)),
        ];
        message.attributes.extend(iif.map(RuleAttribute::Iifname));
        rule_both_ways(&ours, &theirs, &rule, message);
    });
}
