use super::*;
use proptest::prelude::*;

fn read(pairs: &[(&str, &str)]) -> Result<RedirectAnnotations, InputError> {
    let pairs = pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    RedirectAnnotations::read(&pairs.collect())
}

fn names(interfaces: &[InterfaceName]) -> Vec<String> {
    interfaces.iter().map(ToString::to_string).collect()
}

fn ports_of(ranges: &[PortRange]) -> Vec<u16> {
    let port = |range: &PortRange| {
        assert_eq!(range.0.start(), range.0.end());
        *range.0.start()
    };
    ranges.iter().map(port).collect()
}

/// Networks in the order of the text, by family.
fn texts(ranges: &Ranges) -> Vec<String> {
    let v4 = ranges.v4.iter().map(ToString::to_string);
    v4.chain(ranges.v6.iter().map(ToString::to_string))
        .collect()
}

/// The parsed value of one annotation.
fn of<T>(key: &str, text: &str, field: impl Fn(RedirectAnnotations) -> T) -> T {
    let read = read(&[(key, text)]);
    field(read.unwrap_or_else(|e| panic!("{key}={text:?}: {e}")))
}

/// Checks that each text is refused, and that the message names the key.
fn refused(key: &str, texts: &[&str]) {
    for text in texts {
        let error = read(&[(key, text)]).expect_err(text).to_string();
        assert!(error.contains(key), "{error}");
    }
}

fn plain(ports: &[u16]) -> Vec<PortRange> {
    ports.iter().map(|port| PortRange(*port..=*port)).collect()
}

#[test]
fn absent_annotations_have_defaults() {
    let expected = RedirectAnnotations {
        mode: InboundMode::Redirect,
        outbound_include: OutboundRanges::All,
        outbound_exclude: Ranges::default(),
        inbound: Inbound::All,
        inbound_ports_exclude: plain(&[15020, 15021, 15090]),
        outbound_ports_include: Vec::new(),
        outbound_ports_exclude: plain(&[15020]),
        virtual_interfaces: Vec::new(),
        exclude_interfaces: Vec::new(),
        warnings: Vec::new(),
    };
    assert_eq!(read(&[]).unwrap(), expected);
}

#[test]
fn interception_mode() {
    let tproxy = |table| InboundMode::Tproxy(TproxyMark { mark: 1337, table });
    let mode = |text: &str| of(INTERCEPTION_MODE, text, |r| r.mode);
    assert_eq!(mode("REDIRECT"), InboundMode::Redirect);
    assert_eq!(mode("TPROXY"), tproxy(Some(133)));
    // No inbound traffic is captured, so no route is needed.
    let off = [(INTERCEPTION_MODE, "TPROXY"), (INCLUDE_INBOUND_PORTS, "")];
    assert_eq!(read(&off).unwrap().mode, tproxy(None));
    let bad = ["", "NONE", "tproxy", "REDIRECT ", "Redirect"];
    refused(INTERCEPTION_MODE, &bad);
}

const GOOD_NETWORKS: [(&str, &[&str]); 5] = [
    ("", &[]),
    ("10.0.0.0/8", &["10.0.0.0/8"]),
    ("fd00::/8,10.1.2.3/8", &["10.1.2.3/8", "fd00::/8"]),
    ("0.0.0.0/0,0.0.0.0/0", &["0.0.0.0/0", "0.0.0.0/0"]),
    ("::ffff:10.0.0.0/104", &["::ffff:10.0.0.0/104"]),
];
const BAD_NETWORKS: [&str; 8] = [
    "10.0.0.1",
    "10.0.0.0/8,",
    ",",
    "10.0.0.0/8, 11.0.0.0/8",
    " 10.0.0.0/8",
    "*,10.0.0.0/8",
    " *",
    "fe80::1%eth0/64",
];

#[test]
fn outbound_networks() {
    for (text, expected) in GOOD_NETWORKS {
        let OutboundRanges::Ranges(got) =
            of(INCLUDE_OUTBOUND_IP_RANGES, text, |r| r.outbound_include)
        else {
            panic!("{text:?}")
        };
        assert_eq!(texts(&got), expected);
        let got = of(EXCLUDE_OUTBOUND_IP_RANGES, text, |r| r.outbound_exclude);
        assert_eq!(texts(&got), expected);
    }
    refused(INCLUDE_OUTBOUND_IP_RANGES, &BAD_NETWORKS);
    refused(EXCLUDE_OUTBOUND_IP_RANGES, &BAD_NETWORKS);
    let all = of(INCLUDE_OUTBOUND_IP_RANGES, "*", |r| r.outbound_include);
    assert_eq!(all, OutboundRanges::All);
    refused(EXCLUDE_OUTBOUND_IP_RANGES, &["*"]);
}

const GOOD_PORTS: [(&str, &[u16]); 6] = [
    ("", &[]),
    ("  ", &[]),
    ("0", &[0]),
    ("65535", &[65535]),
    (" 80 , 443 ", &[80, 443]),
    ("80,80,0080", &[80, 80, 80]),
];
const BAD_PORTS: [&str; 10] = [
    "80,", "80,,443", ",", "80-90", "80:90", "http", "65536", "-1", "+80", "*,80",
];

#[test]
fn port_lists() {
    for (text, expected) in GOOD_PORTS {
        let inbound = of(INCLUDE_INBOUND_PORTS, text, |r| r.inbound);
        match text {
            "" => assert_eq!(inbound, Inbound::Off),
            _ => assert_eq!(inbound, Inbound::Ports(plain(expected)), "{text:?}"),
        }
        let include = of(INCLUDE_OUTBOUND_PORTS, text, |r| r.outbound_ports_include);
        assert_eq!(ports_of(&include), expected);
        let exclude = of(EXCLUDE_OUTBOUND_PORTS, text, |r| r.outbound_ports_exclude);
        assert_eq!(ports_of(&exclude), expected);
    }
    for key in [
        INCLUDE_INBOUND_PORTS,
        INCLUDE_OUTBOUND_PORTS,
        EXCLUDE_OUTBOUND_PORTS,
        EXCLUDE_INBOUND_PORTS,
    ] {
        refused(key, &BAD_PORTS);
    }
    assert_eq!(of(INCLUDE_INBOUND_PORTS, "*", |r| r.inbound), Inbound::All);
    refused(INCLUDE_INBOUND_PORTS, &[" *", "* "]);
}

#[test]
fn a_star_is_refused_where_it_cannot_be_said() {
    for key in [
        EXCLUDE_INBOUND_PORTS,
        INCLUDE_OUTBOUND_PORTS,
        EXCLUDE_OUTBOUND_PORTS,
    ] {
        let error = read(&[(key, "*")]).unwrap_err().to_string();
        assert!(
            error.contains(key) && error.contains("\"*\" stands for all ports"),
            "{error}"
        );
    }
}

#[test]
fn all_inbound_ports_may_be_excluded_where_only_some_are_included() {
    let with = |include: &str, exclude: &str| {
        read(&[
            (INCLUDE_INBOUND_PORTS, include),
            (EXCLUDE_INBOUND_PORTS, exclude),
        ])
    };
    for include in ["80,443", ""] {
        let read = with(include, "*").unwrap();
        let own = [15020, 15021, 15090];
        assert_eq!(ports_of(&read.inbound_ports_exclude), own);
        let [warning] = &read.warnings[..] else {
            panic!("{:?}", read.warnings)
        };
        assert!(warning.contains(EXCLUDE_INBOUND_PORTS), "{warning}");
        assert!(with(include, "*,80").is_err());
        assert!(with(include, "http").is_err());
    }
    assert!(with("*", "*").is_err());
}

#[test]
fn excluded_inbound_ports_get_the_proxys_own() {
    for (text, expected) in [
        ("", &[15020, 15021, 15090][..]),
        ("  ", &[15020, 15021, 15090]),
        ("3306", &[3306, 15020, 15021, 15090]),
        ("15090,8080", &[15090, 8080, 15020, 15021]),
        ("80,80", &[80, 15020, 15021, 15090]),
        (" 80 , 443 ", &[80, 443, 15020, 15021, 15090]),
        // Duplicates are compared as text, not as numbers.
        ("015020", &[15020, 15020, 15021, 15090]),
    ] {
        let got = of(EXCLUDE_INBOUND_PORTS, text, |r| r.inbound_ports_exclude);
        assert_eq!(ports_of(&got), expected, "{text:?}");
    }
}

#[test]
fn interface_lists() {
    let good: [(&str, &[&str]); 6] = [
        ("", &[]),
        ("eth0", &["eth0"]),
        ("k6t-a,k6t.b_c", &["k6t-a", "k6t.b_c"]),
        (" net1 , net2 ", &["net1", "net2"]),
        ("abcdefghijklmno", &["abcdefghijklmno"]),
        ("a,a", &["a", "a"]),
    ];
    let bad = [
        ",",
        "eth0,",
        " ",
        "1eth",
        "_a",
        "abcdefghijklmnop",
        "eth+",
        "eth*",
        "a b",
        "\u{e9}th",
    ];
    for (text, expected) in good {
        let excluded = of(EXCLUDE_INTERFACES, text, |r| r.exclude_interfaces);
        assert_eq!(names(&excluded), expected);
        for key in [REROUTE_VIRTUAL_INTERFACES, KUBEVIRT_INTERFACES] {
            let rerouted = of(key, text, |r| r.virtual_interfaces);
            assert_eq!(names(&rerouted), expected);
        }
    }
    for key in [
        EXCLUDE_INTERFACES,
        REROUTE_VIRTUAL_INTERFACES,
        KUBEVIRT_INTERFACES,
    ] {
        refused(key, &bad);
    }
}

#[test]
fn the_newer_key_hides_the_older_one() {
    let both = |new, old| {
        read(&[
            (REROUTE_VIRTUAL_INTERFACES, new),
            (KUBEVIRT_INTERFACES, old),
        ])
        .map(|r| names(&r.virtual_interfaces))
    };
    assert_eq!(both("a", "b"), Ok(vec!["a".to_owned()]));
    assert_eq!(both("", "b"), Ok(vec![]));
    assert_eq!(both("a", "not an interface"), Ok(vec!["a".to_owned()]));
    assert!(both("not an interface", "b").is_err());
}

#[test]
fn an_error_says_what_is_wrong_and_what_is_right() {
    let error = read(&[(INCLUDE_INBOUND_PORTS, "80,http")])
        .unwrap_err()
        .to_string();
    let expected = "annotation traffic.sidecar.istio.io/includeInboundPorts: \"http\" is not a \
                    port; accepted: ports 0-65535 with commas between them";
    assert_eq!(error, expected);
}

proptest! {
    #[test]
    fn reading_never_panics(text in ".{0,60}", list in "[0-9a-z:./,* -]{0,40}") {
        for key in [
            INTERCEPTION_MODE, INCLUDE_OUTBOUND_IP_RANGES, EXCLUDE_OUTBOUND_IP_RANGES,
            INCLUDE_INBOUND_PORTS, EXCLUDE_INBOUND_PORTS, INCLUDE_OUTBOUND_PORTS,
            EXCLUDE_OUTBOUND_PORTS, REROUTE_VIRTUAL_INTERFACES, KUBEVIRT_INTERFACES,
            EXCLUDE_INTERFACES,
        ] {
            let _ = read(&[(key, &text)]);
            let _ = read(&[(key, &list)]);
        }
    }

    #[test]
    fn good_lists_keep_their_order(ports in prop::collection::vec(any::<u16>(), 1..20)) {
        let list = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        let read = read(&[(EXCLUDE_OUTBOUND_PORTS, &list)]).unwrap();
        prop_assert_eq!(ports_of(&read.outbound_ports_exclude), ports);
    }
}

/// An annotation may have 256 KiB, and the error goes to the runtime's log, the pod's events and the status page.
#[test]
fn a_long_value_is_not_repeated_in_an_error() {
    let long = "x".repeat(100_000);
    for key in [
        INTERCEPTION_MODE,
        EXCLUDE_INBOUND_PORTS,
        EXCLUDE_OUTBOUND_IP_RANGES,
        EXCLUDE_INTERFACES,
    ] {
        let annotations = BTreeMap::from([(key.to_owned(), long.clone())]);
        let error = RedirectAnnotations::read(&annotations)
            .unwrap_err()
            .to_string();
        assert!(error.len() < 500, "{key}: {} bytes", error.len());
        assert!(
            error.contains(key) && error.contains("(100000 bytes)"),
            "{error}"
        );
    }
}
