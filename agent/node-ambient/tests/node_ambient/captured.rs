//! The set of captured pods is read from a node, whoever wrote it.

use crate::ebpf::{applied, bpffs, builds};
use crate::scene::{POD, PROXY, inside};
use crate::{carrier, each, up};
use std::collections::BTreeSet;
use weir_node_ambient::{captured, ebpf, remove};

#[test]
fn rules_say_which_addresses_they_capture() {
    let both = BTreeSet::from([inside(POD, false), inside(POD, true)]);
    each(&["veth"], |scene, engine, name| {
        assert_eq!(captured(&scene.node, None).unwrap(), BTreeSet::new());
        // Other tables than the default ones, which this function has no configuration of.
        let numbers = r#", "routing": {"inbound_table": 110, "outbound_table": 111}"#;
        if !up(scene, engine, &(carrier(name) + numbers)) {
            return;
        }
        assert_eq!(captured(&scene.node, None).unwrap(), both);
        remove(&scene.node, Some(&scene.config(&[(PROXY, 1)], ""))).unwrap();
        assert_eq!(captured(&scene.node, None).unwrap(), BTreeSet::new());
    });
}

#[test]
fn programs_say_which_addresses_they_capture() {
    for (scene, mounted) in builds() {
        let bpffs = bpffs(&mounted);
        let now = || captured(&scene.node, Some(&bpffs)).unwrap();
        assert_eq!(now(), BTreeSet::new());
        let mut config = scene.config(&[(PROXY, 1)], "");
        applied(&scene, &mounted, &config);
        assert_eq!(
            now(),
            BTreeSet::from([inside(POD, false), inside(POD, true)])
        );
        config.pods[0].addresses.truncate(1);
        applied(&scene, &mounted, &config);
        assert_eq!(now(), BTreeSet::from([inside(POD, false)]));
        ebpf::remove(&scene.node, &bpffs, Some(&config)).unwrap();
        assert_eq!(now(), BTreeSet::new());
    }
}
