//! `mangle`: transparent proxying, and packets that conntrack finds invalid.

use super::super::OUTBOUND_MARK;
use super::super::family::Family;
use super::{
    Chains, DIVERT, DROP, INBOUND, IS, IS_NOT, OUTPUT, Owner, PREROUTING, Returns, TPROXY, ports,
    tcp,
};
use crate::config::{Inbound, Intent};
use weir_netfilter::xtables::{Connmark, ConntrackState, Rule, Target, Tproxy, Xmark};

/// States of packets of known and related connections.
const KNOWN: [ConntrackState; 2] = [ConntrackState::Related, ConntrackState::Established];

pub(super) fn chains(intent: &Intent, family: &Family) -> Chains {
    let mut chains = Chains::default();
    let mark = intent.tproxy().map(|t| t.mark);
    prerouting(intent, mark, &mut chains);
    if intent.drop_invalid {
        chains.add(DROP, Rule::builder().target(Target::Drop));
    }
    let Some(mark) = mark else { return chains };
    output(intent, family, mark, &mut chains);
    inbound(intent, family, mark, &mut chains);
    if intent.inbound != Inbound::Off {
        divert(mark, &mut chains);
        tproxy(intent, family, mark, &mut chains);
    }
    chains
}

const fn set_mark(value: u32) -> Target {
    Target::Mark(Xmark {
        value,
        mask: u32::MAX,
    })
}

/// 1. Transparent: packets from excluded interfaces return.
/// 2. Invalid packets of every protocol are dropped, if configured.
/// 3. Transparent: other TCP is inbound traffic.
/// 4. Transparent: the mark of the proxy's connections is saved in conntrack.
fn prerouting(intent: &Intent, mark: Option<u32>, chains: &mut Chains) {
    if mark.is_some() {
        for name in &intent.exclude_interfaces {
            let rule = Rule::builder().in_interface(name.as_str());
            chains.add(PREROUTING, rule.returns());
        }
    }
    if intent.drop_invalid {
        chains.add(
            PREROUTING,
            Rule::builder()
                .ctstate(&[ConntrackState::Invalid])
                .jump(DROP),
        );
    }
    let Some(mark) = mark else { return };
    if intent.inbound != Inbound::Off {
        chains.add(PREROUTING, tcp().jump(INBOUND));
    }
    let save = Target::Connmark(Connmark::Save {
        nfmask: u32::MAX,
        ctmask: u32::MAX,
    });
    chains.add(PREROUTING, tcp().mark(IS, mark).target(save));
}

/// The rules of `output` in [`nft`](super::super::nft), in the same order.
fn output(intent: &Intent, family: &Family, mark: u32, chains: &mut Chains) {
    for name in &intent.exclude_interfaces {
        let rule = Rule::builder().out_interface(name.as_str());
        chains.add(OUTPUT, rule.returns());
    }
    chains.add(OUTPUT, tcp().out_interface("lo").mark(IS, mark).returns());
    for owner in Owner::all(intent) {
        let to_itself = tcp().not_destination(family.loopback).out_interface("lo");
        chains.add(
            OUTPUT,
            owner.option(to_itself, IS).target(set_mark(OUTBOUND_MARK)),
        );
    }
    let restore = Target::Connmark(Connmark::Restore {
        nfmask: u32::MAX,
        ctmask: u32::MAX,
    });
    chains.add(OUTPUT, tcp().connmark(mark).target(restore));
}

/// `ISTIO_INBOUND`:
/// 1. The proxy's own marked packets return.
/// 2. The proxy's connections to the application return.
/// 3. Other packets over `lo` return, unless the proxy sends them to its own pod.
/// 4. All ports captured: excluded ones return. Packets of known connections are diverted to their
///    socket, others go to the inbound listener.
/// 5. Ports listed: as 4, for each listed port.
fn inbound(intent: &Intent, family: &Family, mark: u32, chains: &mut Chains) {
    let mut add = |rule| chains.add(INBOUND, rule);
    add(tcp().mark(IS, mark).returns());
    add(tcp()
        .source(family.passthrough)
        .in_interface("lo")
        .returns());
    add(tcp()
        .in_interface("lo")
        .mark(IS_NOT, OUTBOUND_MARK)
        .returns());
    match &intent.inbound {
        Inbound::Off => {}
        Inbound::All => {
            for port in &intent.inbound_ports_exclude {
                add(Rule::builder().tcp_dport(ports(port)).returns());
            }
            add(tcp().ctstate(&KNOWN).jump(DIVERT));
            add(tcp().jump(TPROXY));
        }
        Inbound::Ports(list) => {
            for port in list {
                let to_port = || Rule::builder().tcp_dport(ports(port));
                add(to_port().ctstate(&KNOWN).jump(DIVERT));
                add(to_port().jump(TPROXY));
            }
        }
    }
}

/// `ISTIO_DIVERT`: sets the mark that selects the local table, and accepts.
fn divert(mark: u32, chains: &mut Chains) {
    chains.add(DIVERT, Rule::builder().target(set_mark(mark)));
    chains.add(DIVERT, Rule::builder().target(Target::Accept));
}

/// `ISTIO_TPROXY`: packets that are not for loopback go to the inbound listener unchanged.
fn tproxy(intent: &Intent, family: &Family, mark: u32, chains: &mut Chains) {
    let on_port = intent.inbound_capture_port;
    let target = Target::Tproxy(Tproxy {
        on_port,
        on_ip: family.any,
        mark,
        mask: u32::MAX,
    });
    chains.add(
        TPROXY,
        tcp().not_destination(family.loopback).target(target),
    );
}
