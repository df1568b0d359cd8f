use super::maps::Maps;
use super::*;

/// Acceptance check 1 of eBPF mode, for the programs of the node.
#[test]
fn check_1_every_program_loads() {
    let has_events = crate::events::is_supported().unwrap_or(false);
    for bits in 0..if has_events { 16 } else { 8 } {
        let [dual, dns, exclude, events] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let traits = NodeTraits {
            dual,
            dns,
            exclude,
            events,
        };
        let maps = match Maps::create(traits) {
            Err(e) if e.is_permission() => {
                println!("skipped: {e}");
                return;
            }
            made => made.unwrap(),
        };
        let small = Maps::small(traits).unwrap();
        for role in NodeRole::ALL {
            let code = assemble(role, traits).unwrap();
            let load = |maps: &Maps| {
                let loaded = code.load("weir_test", &maps.list());
                let program =
                    loaded.unwrap_or_else(|e| panic!("{role:?} {traits:?}: {e}\n{}", e.log));
                program.info().unwrap().tag
            };
            assert_eq!(load(&maps), load(&small), "{role:?} {traits:?}");
        }
    }
}

/// Keys as the programs make them; mapped addresses are those of IPv4.
#[test]
fn keys_of_exclusions_are_read_as_written() {
    for text in [
        "10.0.0.0/8",
        "0.0.0.0/0",
        "192.0.2.7/32",
        "fd00::/8",
        "::/0",
        "::1/128",
    ] {
        let net = text.parse().unwrap();
        assert_eq!(exclude::peer_of(&exclude::peer_key(net)), Some(net));
    }
    let mapped = "::ffff:10.0.0.0/104".parse().unwrap();
    assert_eq!(canonical(mapped), "10.0.0.0/8".parse().unwrap());
    let key = exclude::peer_key("10.0.0.0/8".parse().unwrap());
    assert_eq!(key, exclude::peer_key(mapped));
    assert_eq!(key[..4], 104_u32.to_ne_bytes());
    assert_eq!(key[14..], [0xff, 0xff, 10, 0, 0, 0]);
    for (pod, net) in [("10.0.0.1", "10.0.0.0/8"), ("fd00::1", "::/0")] {
        let pair = (pod.parse().unwrap(), net.parse().unwrap());
        assert_eq!(
            exclude::pod_peer_of(&exclude::pod_peer_key(pair.0, pair.1)),
            Some(pair)
        );
        let port = (pair.0, Side::Inbound, 0x1234);
        assert_eq!(
            exclude::pod_port_of(&exclude::pod_port_key(pair.0, (port.1, port.2))),
            Some(port)
        );
    }
    for port in [(Side::Outbound, 80), (Side::Inbound, 65_535)] {
        assert_eq!(exclude::port_of(&exclude::port_key(port)), Some(port));
    }
    assert_eq!(
        exclude::port_key((Side::Outbound, 0x1234))[..2],
        [0x12, 0x34]
    );
}
