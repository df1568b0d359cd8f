//! Legacy tables: the blob of the kernel, and the text of `iptables-restore`.

use super::{choose, text};
use crate::Conversation;
use weir_netfilter::xtables::{self, plan, plan_restore};
use weir_netfilter::xtables::{Ownership, Ruleset, Script, Sets, Snapshot, XtEngine, XtFamily};
use weir_netlink::Result;

/// Resolves names of sets without a kernel: the set with index N is `setN`.
struct Numbered;

impl Sets for Numbered {
    fn index(&self, _: XtFamily, name: &str) -> Result<u16> {
        Ok(name
            .strip_prefix("set")
            .and_then(|n| n.parse().ok())
            .unwrap_or(0))
    }

    fn name(&self, index: u16) -> Result<Option<String>> {
        Ok((index < 1000).then(|| format!("set{index}")))
    }
}

/// The text of all tables, joined from its pieces.
fn listed(engine: XtEngine<impl xtables::XtTransport>) -> Option<String> {
    let mut text = String::new();
    let take = |piece: &str| {
        text.push_str(piece);
        Ok(())
    };
    engine.listing().ok()?.write(take).ok()?;
    Some(text)
}

/// Reads and prints the tables of both families, and plans the removal of their rules.
pub(super) fn read(input: &[u8]) {
    let engine = || XtEngine::with_transport(Conversation::replay(input), Box::new(Numbered));
    let text = listed(engine());
    let Ok(found) = engine().read() else {
        assert!(text.is_none(), "listed, and not read");
        return;
    };
    assert_eq!(text, Some(found.ruleset.to_string()));
    for family in [XtFamily::Ip, XtFamily::Ip6] {
        let saved = found.ruleset.family(family).to_string();
        drop(Script::parse(family, &saved));
    }
    let ours = Ownership {
        prefix: "ISTIO_".to_owned(),
        ..Ownership::default()
    };
    drop(plan(&Ruleset::default(), &found, &ours));
    drop(plan(&found.ruleset, &found, &ours));
}

/// `iptables-restore` in a network namespace without tables; the first byte selects the family.
pub(super) fn restore(input: &[u8]) {
    let (which, input) = choose(input);
    let family = if which == b'6' {
        XtFamily::Ip6
    } else {
        XtFamily::Ip
    };
    if let Ok(script) = Script::parse(family, &text(input)) {
        for keep in [false, true] {
            drop(plan_restore(&script, &Snapshot::default(), keep));
        }
    }
}
