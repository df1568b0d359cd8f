//! Acceptance check 8 of eBPF mode, for rules as well: exclusion of TCP connections by peer and by port.

use crate::ebpf::{answer, applied, builds, web};
use crate::enrolled::{excluding, with_second};
use crate::scene::{OUTSIDE, PATIENCE, POD, PROXY, SECOND, Scene, Servers, ask, connects, inside};
use crate::{each, up};
use std::net::{SocketAddr, TcpStream};
use weir_netlink::Netns;
use weir_node_ambient::Config;

/// The exclusions of a configuration, and the answers to connections of the pod and to it.
const CASES: [(&str, &str, &str); 11] = [
    ("", "outbound|outside|x", "inbound|pod|x"),
    (
        r#""peers": ["10.1.4.0/24", "fd00:1:4::/48"]"#,
        "outside|x",
        "pod|x",
    ),
    // The longest prefix decides, whatever the order.
    (
        r#""peers": ["10.1.4.0/24", "fd00:1:4::/48"], "except": ["10.1.4.10/32", "fd00:1:4::a/128"]"#,
        "outbound|outside|x",
        "inbound|pod|x",
    ),
    (
        r#""except": ["10.0.0.0/8", "fd00::/8"], "peers": ["10.1.0.0/16", "fd00:1::/32"]"#,
        "outside|x",
        "pod|x",
    ),
    // Exclusions that do not match these connections.
    (
        r#""peers": ["10.2.0.0/16", "fd01::/16"], "outbound_ports": [80], "inbound_ports": [81]"#,
        "outbound|outside|x",
        "inbound|pod|x",
    ),
    (r#""peers": ["0.0.0.0/0", "::/0"]"#, "outside|x", "pod|x"),
    (
        r#""outbound_ports": [8080, 443]"#,
        "outside|x",
        "inbound|pod|x",
    ),
    (
        r#""inbound_ports": [8080, 443]"#,
        "outbound|outside|x",
        "pod|x",
    ),
    (
        r#""outbound_ports": [8080], "inbound_ports": [8080]"#,
        "outside|x",
        "pod|x",
    ),
    // An exception applies to networks, not to ports.
    (
        r#""peers": ["10.1.0.0/16", "fd00:1::/32"], "except": ["10.1.4.0/24", "fd00:1:4::/48"], "inbound_ports": [8080]"#,
        "outbound|outside|x",
        "pod|x",
    ),
    // Without networks, an exception changes nothing.
    (
        r#""except": ["10.1.4.0/24"]"#,
        "outbound|outside|x",
        "inbound|pod|x",
    ),
];

fn more(exclude: &str) -> String {
    format!(r#", "exclude": {{{exclude}}}"#)
}

fn arrive(scene: &Scene, case: &str, outbound: &str, inbound: &str) {
    for v6 in [false, true] {
        let said = [
            answer(&scene.pod, web(OUTSIDE, v6)),
            answer(&scene.outside, web(POD, v6)),
            answer(&scene.node, web(POD, v6)),
        ];
        assert_eq!(said, [outbound, inbound, "pod|x"], "{case}, IPv6: {v6}");
    }
}

/// Connects from an address and port of the client's choice.
fn connect_from(netns: &Netns, from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let connect = || {
        let domain = socket2::Domain::for_address(to);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.bind(&from.into())?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        Ok(socket.into())
    };
    netns.run(connect).unwrap()
}

/// IPv4-mapped IPv6 addresses count as IPv4, and `::/0` does not contain them.
const MAPPED: [(&str, bool, bool); 3] = [
    (r#""peers": ["::ffff:10.1.4.0/120"]"#, true, false),
    (r#""peers": ["::/0"]"#, false, true),
    (r#""peers": ["0.0.0.0/0"]"#, true, false),
];

fn mapped(scene: &Scene, case: &str, v4: bool, v6: bool) {
    let text = |is_excluded| match is_excluded {
        true => "outside|x",
        false => "outbound|outside|x",
    };
    let said = [false, true].map(|v6| answer(&scene.pod, web(OUTSIDE, v6)));
    assert_eq!(said, [text(v4), text(v6)], "{case}");
}

// matrix: every
#[test]
fn check_8_programs_capture_all_but_exclusions() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        let config = |exclude| scene.config(&[(PROXY, 1)], &more(exclude));
        for (exclude, outbound, inbound) in CASES {
            applied(&scene, &mounted, &config(exclude));
            arrive(&scene, exclude, outbound, inbound);
        }
        for (exclude, v4, v6) in MAPPED {
            applied(&scene, &mounted, &config(exclude));
            mapped(&scene, exclude, v4, v6);
        }
        // A client cannot avoid the proxy by its source port: the connection reaches the proxy or fails.
        applied(&scene, &mounted, &config(r#""outbound_ports": [7777]"#));
        let from = SocketAddr::new(inside(OUTSIDE, false), 7777);
        if let Ok(mut stream) = connect_from(&scene.outside, from, web(POD, false)) {
            let said = ask(&mut stream, "x");
            assert!(said.as_deref().is_ok_and(|s| s.starts_with("inbound")) || said.is_err());
        }
        // Neither can a pod by its own port.
        applied(&scene, &mounted, &config(r#""inbound_ports": [7777]"#));
        let from = SocketAddr::new(inside(POD, false), 7777);
        if let Ok(mut stream) = connect_from(&scene.pod, from, web(OUTSIDE, false)) {
            let said = ask(&mut stream, "x");
            assert!(said.as_deref().is_ok_and(|s| s.starts_with("outbound")) || said.is_err());
        }
        // Without a proxy, only excluded connections succeed.
        let closed = scene.config(&[], &more(r#""outbound_ports": [8080]"#));
        applied(&scene, &mounted, &closed);
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outside|x");
        assert!(!connects(&scene.outside, web(POD, false)));
    }
}

#[test]
fn rules_capture_all_but_exclusions() {
    each(&["veth"], |scene, engine, carrier| {
        let _servers = Servers::start(scene);
        let more = |exclude| format!(r#"{}, "carrier": "{carrier}""#, more(exclude));
        for (exclude, outbound, inbound) in CASES {
            if !up(scene, engine, &more(exclude)) {
                return;
            }
            let config = scene.config(&[(PROXY, 1)], &more(exclude));
            let left = weir_node_ambient::compare(&config, &scene.node, Some(engine)).unwrap();
            assert!(left.is_empty(), "{:#?}", left.host);
            arrive(scene, exclude, outbound, inbound);
        }
        for (exclude, v4, v6) in MAPPED {
            assert!(up(scene, engine, &more(exclude)));
            mapped(scene, exclude, v4, v6);
        }
    });
}

/// A configuration with exclusions of the pod alone beside those of all pods.
fn of_pod(scene: &Scene, exclude: &str, more: &str) -> Config {
    excluding(scene.config(&[(PROXY, 1)], more), exclude)
}

/// The exclusions of all pods, those of the pod, and the answer to its connection to the outside: the pod's decide.
const BOTH: [(&str, &str, &str); 4] = [
    (
        r#""peers": ["10.1.0.0/16", "fd00:1::/32"]"#,
        r#""except": ["10.1.4.0/24", "fd00:1:4::/48"]"#,
        "outbound|outside|x",
    ),
    (
        r#""except": ["10.1.4.10/32", "fd00:1:4::a/128"]"#,
        r#""peers": ["10.0.0.0/8", "fd00::/8"]"#,
        "outside|x",
    ),
    (
        r#""outbound_ports": [8080]"#,
        r#""except": ["10.0.0.0/8", "fd00::/8"], "outbound_ports": [81]"#,
        "outside|x",
    ),
    (
        r#""peers": ["10.1.4.0/24", "fd00:1:4::/48"]"#,
        r#""outbound_ports": [81]"#,
        "outside|x",
    ),
];

/// The first pod excludes all its connections, and the second one none.
fn one_of_two(scene: &Scene) -> Config {
    let peers = r#""peers": ["0.0.0.0/0", "::/0"]"#;
    with_second(of_pod(scene, peers, r#", "carrier": "veth""#), scene)
}

/// The exclusions of a pod apply to its own connections only, not to those of its peer.
fn others_are_captured(scene: &Scene) {
    for v6 in [false, true] {
        let said = [
            answer(&scene.pod, web(OUTSIDE, v6)),
            answer(&scene.outside, web(POD, v6)),
            answer(&scene.second, web(OUTSIDE, v6)),
            answer(&scene.outside, web(SECOND, v6)),
            answer(&scene.pod, web(SECOND, v6)),
            answer(&scene.second, web(POD, v6)),
        ];
        let expected = [
            "outside|x",
            "pod|x",
            "outbound|outside|x",
            "inbound|neighbour|x",
            "inbound|neighbour|x",
            "outbound|pod|x",
        ];
        assert_eq!(said, expected, "IPv6: {v6}");
    }
}

// matrix: every
#[test]
fn programs_capture_all_but_what_a_pod_excludes() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        servers.echo(&scene.second, "neighbour");
        for (exclude, outbound, inbound) in CASES {
            applied(&scene, &mounted, &of_pod(&scene, exclude, ""));
            arrive(&scene, exclude, outbound, inbound);
        }
        for (of_all, exclude, outbound) in BOTH {
            applied(&scene, &mounted, &of_pod(&scene, exclude, &more(of_all)));
            for v6 in [false, true] {
                let said = answer(&scene.pod, web(OUTSIDE, v6));
                assert_eq!(said, outbound, "{of_all}, {exclude}");
            }
        }
        applied(&scene, &mounted, &one_of_two(&scene));
        others_are_captured(&scene);
    }
}

// matrix: every
#[test]
fn rules_capture_all_but_what_a_pod_excludes() {
    each(&["veth"], |scene, engine, _| {
        let servers = Servers::start(scene);
        servers.echo(&scene.second, "neighbour");
        let veth = r#", "carrier": "veth""#;
        if !up(scene, engine, veth) {
            return;
        }
        let apply = |config: &Config| {
            weir_node_ambient::apply(config, &scene.node, Some(engine), false).unwrap();
            let left = weir_node_ambient::compare(config, &scene.node, Some(engine)).unwrap();
            assert!(left.is_empty(), "{:#?}", left.host);
        };
        for (exclude, outbound, inbound) in CASES {
            apply(&of_pod(scene, exclude, veth));
            arrive(scene, exclude, outbound, inbound);
        }
        for (of_all, exclude, outbound) in BOTH {
            apply(&of_pod(scene, exclude, &format!("{veth}{}", more(of_all))));
            for v6 in [false, true] {
                let said = answer(&scene.pod, web(OUTSIDE, v6));
                assert_eq!(said, outbound, "{of_all}, {exclude}");
            }
        }
        apply(&one_of_two(scene));
        others_are_captured(scene);
    });
}
