//! Reads that fail in the middle return everything or an error, never an incomplete result.

use crate::common::tool;
use crate::faults::scene::{new, old, owned, prepared};
use crate::faults::transport::{Fault, Faulty, Plan, faulty, socket};
use crate::faults::{ERRNOS, effort};
use std::fmt::Debug;
use std::rc::Rc;
use weir_netfilter::ipset;
use weir_netfilter::nft::NftEngine;
use weir_netlink::{Netns, Result};
use weir_testing::namespace_or_skip;

/// Lets each call of a read fail in each way. A successful result must equal the result without faults.
fn is_whole_or_an_error<T: PartialEq + Debug>(
    ns: &Netns,
    name: &str,
    read: impl Fn(&Rc<Plan>) -> Result<T> + Sync,
) {
    ns.run(|| {
        let plan = Rc::new(Plan::new(None));
        let whole = read(&plan).unwrap();
        let total = plan.calls.get();
        assert!(total > 2, "{name}: only {total} calls");
        let (mut failed, mut made) = (0, 0);
        for at in (0..total).step_by(effort::stride(total)) {
            let instead = ERRNOS.iter().map(|n| Fault::Instead(*n));
            // A lost answer: with ENOBUFS the kernel reports the loss, with ENOMEM another call seems to have failed.
            let after = [libc::ENOBUFS, libc::ENOMEM].map(Fault::After);
            for fault in instead.chain(after) {
                made += 1;
                match read(&Rc::new(Plan::new(Some((at, fault))))) {
                    Ok(found) => assert!(found == whole, "{name}, call {at}, {fault:?}: {found:?}"),
                    Err(e) => {
                        failed += 1;
                        assert!(
                            e.to_string().len() > 20,
                            "{name}, call {at}, {fault:?}: {e}"
                        );
                    }
                }
            }
        }
        assert!(failed > made / 5, "{name}: {failed} of {made} failed");
    })
    .unwrap();
}

#[test]
fn nf_tables() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    is_whole_or_an_error(&ns, "everything", |plan| {
        Ok(faulty(plan).read()?.ruleset.to_string())
    });
    is_whole_or_an_error(&ns, "the tables", |plan| faulty(plan).tables());
    is_whole_or_an_error(&ns, "a difference", |plan| {
        Ok(faulty(plan).drift(&new(), &owned())?.ops)
    });
    // The engine must not report that nothing differs unless it has read everything.
    is_whole_or_an_error(&ns, "no difference", |plan| {
        Ok(faulty(plan).drift(&old(), &owned())?.ops)
    });
    let seen = ns.run(|| {
        NftEngine::open()
            .unwrap()
            .drift(&old(), &owned())
            .unwrap()
            .ops
    });
    assert_eq!(seen.unwrap(), []);
}

fn sets(plan: &Rc<Plan>) -> Result<ipset::IpsetEngine<Faulty>> {
    ipset::IpsetEngine::with_socket(socket(plan))
}

#[test]
fn ipset() {
    let ns = namespace_or_skip!();
    // A dump of several datagrams, with a set that takes more than one.
    let mut text = String::from("create a hash:ip\ncreate b hash:net\nadd b 10.0.0.0/8\n");
    for n in 0..3000_u32 {
        text += &format!("add a 10.1.{}.{}\n", n / 250, n % 250);
    }
    if let Err(e) = tool(&ns, "ipset", &["restore"], &text) {
        weir_testing::lacks::skip("ipset hash:ip", "2.6.39", e);
        return;
    }
    let names = |listed: Vec<ipset::Listed>| -> Vec<ipset::Set> {
        listed.into_iter().map(|l| l.set).collect()
    };
    is_whole_or_an_error(&ns, "all sets", |plan| Ok(names(sets(plan)?.list(None)?)));
    is_whole_or_an_error(&ns, "a set", |plan| Ok(names(sets(plan)?.list(Some("a"))?)));
    is_whole_or_an_error(&ns, "headers", |plan| Ok(names(sets(plan)?.headers(None)?)));
    is_whole_or_an_error(&ns, "text", |plan| sets(plan)?.text());
    is_whole_or_an_error(&ns, "a difference", |plan| {
        sets(plan)?.drift(&[], &["a".into(), "b".into()])
    });
    let held = ns.run(|| names(ipset::IpsetEngine::open().unwrap().list(None).unwrap()));
    let held = held.unwrap();
    is_whole_or_an_error(&ns, "no difference", |plan| {
        sets(plan)?.drift(&held, &["a".into(), "b".into()])
    });
}
