use super::*;
use proptest::prelude::*;

fn read(pairs: &[(&str, &str)]) -> Result<RedirectAnnotations, InputError> {
    let pairs = pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    RedirectAnnotations::read(&pairs.collect())
}

/// The value that results from one annotation, or that it is refused with its key in the message.
fn value(key: &str, text: &str, field: fn(RedirectAnnotations) -> String) -> Option<String> {
    match read(&[(key, text)]) {
        Ok(read) => Some(field(read)),
        Err(error) => {
            assert!(error.to_string().contains(key), "{error}");
            None
        }
    }
}

fn kept(key: &str, field: fn(RedirectAnnotations) -> String, good: &[&str], bad: &[&str]) {
    for text in good {
        assert_eq!(
            value(key, text, field).as_deref(),
            Some(*text),
            "{key}={text:?}"
        );
    }
    for text in bad {
        assert_eq!(value(key, text, field), None, "{key}={text:?}");
    }
}

#[test]
fn absent_annotations_have_defaults() {
    let read = read(&[]).unwrap();
    let expected = RedirectAnnotations {
        interception_mode: "REDIRECT".into(),
        include_outbound_ip_ranges: "*".into(),
        exclude_outbound_ip_ranges: String::new(),
        include_inbound_ports: "*".into(),
        exclude_inbound_ports: "15020,15021,15090".into(),
        include_outbound_ports: String::new(),
        exclude_outbound_ports: "15020".into(),
        reroute_virtual_interfaces: String::new(),
        exclude_interfaces: String::new(),
    };
    assert_eq!(read, expected);
}

#[test]
fn interception_mode() {
    let bad = ["", "NONE", "tproxy", "REDIRECT ", "Redirect"];
    kept(
        INTERCEPTION_MODE,
        |r| r.interception_mode,
        &["REDIRECT", "TPROXY"],
        &bad,
    );
}

const GOOD_NETWORKS: [&str; 5] = [
    "",
    "10.0.0.0/8",
    "10.1.2.3/8,fd00::/8",
    "0.0.0.0/0,0.0.0.0/0",
    "::ffff:10.0.0.0/104",
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
    let include = |r: RedirectAnnotations| r.include_outbound_ip_ranges;
    kept(
        INCLUDE_OUTBOUND_IP_RANGES,
        include,
        &GOOD_NETWORKS,
        &BAD_NETWORKS,
    );
    kept(INCLUDE_OUTBOUND_IP_RANGES, include, &["*"], &[]);
    let exclude = |r: RedirectAnnotations| r.exclude_outbound_ip_ranges;
    kept(
        EXCLUDE_OUTBOUND_IP_RANGES,
        exclude,
        &GOOD_NETWORKS,
        &BAD_NETWORKS,
    );
    kept(EXCLUDE_OUTBOUND_IP_RANGES, exclude, &[], &["*"]);
}

const GOOD_PORTS: [&str; 6] = ["", "  ", "0", "65535", " 80 , 443 ", "80,80,0080"];
const BAD_PORTS: [&str; 10] = [
    "80,", "80,,443", ",", "80-90", "80:90", "http", "65536", "-1", "+80", "*,80",
];

#[test]
fn port_lists() {
    let include_in = |r: RedirectAnnotations| r.include_inbound_ports;
    kept(INCLUDE_INBOUND_PORTS, include_in, &GOOD_PORTS, &BAD_PORTS);
    kept(INCLUDE_INBOUND_PORTS, include_in, &["*"], &[" *", "* "]);
    let include_out = |r: RedirectAnnotations| r.include_outbound_ports;
    kept(INCLUDE_OUTBOUND_PORTS, include_out, &GOOD_PORTS, &BAD_PORTS);
    let exclude_out = |r: RedirectAnnotations| r.exclude_outbound_ports;
    kept(EXCLUDE_OUTBOUND_PORTS, exclude_out, &GOOD_PORTS, &BAD_PORTS);
    let exclude_in = |r: RedirectAnnotations| r.exclude_inbound_ports;
    kept(EXCLUDE_INBOUND_PORTS, exclude_in, &[], &BAD_PORTS);
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
        let keys = [
            (INCLUDE_INBOUND_PORTS, include),
            (EXCLUDE_INBOUND_PORTS, exclude),
        ];
        read(&keys).map(|r| r.exclude_inbound_ports)
    };
    for include in ["80,443", ""] {
        assert_eq!(with(include, "*").unwrap(), "*,15020,15021,15090");
        assert!(with(include, "*,80").is_err());
        assert!(with(include, "http").is_err());
    }
    assert!(with("*", "*").is_err());
}

#[test]
fn excluded_inbound_ports_get_the_proxys_own() {
    for (text, expected) in [
        ("", "15020,15021,15090"),
        ("  ", "15020,15021,15090"),
        ("3306", "3306,15020,15021,15090"),
        ("15090,8080", "15090,8080,15020,15021"),
        ("80,80", "80,15020,15021,15090"),
        (" 80 , 443 ", "80 , 443,15020,15021,15090"),
        // Texts are compared, not numbers.
        ("015020", "015020,15020,15021,15090"),
    ] {
        let got = value(EXCLUDE_INBOUND_PORTS, text, |r| r.exclude_inbound_ports);
        assert_eq!(got.as_deref(), Some(expected), "{text:?}");
    }
    assert_eq!(with_proxy_ports("80,"), "80,15020,15021,15090");
}

#[test]
fn interface_lists() {
    let good = [
        "",
        "eth0",
        "k6t-a,k6t.b_c",
        " net1 , net2 ",
        "abcdefghijklmno",
        "a,a",
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
    kept(EXCLUDE_INTERFACES, |r| r.exclude_interfaces, &good, &bad);
    kept(
        REROUTE_VIRTUAL_INTERFACES,
        |r| r.reroute_virtual_interfaces,
        &good,
        &bad,
    );
    kept(
        KUBEVIRT_INTERFACES,
        |r| r.reroute_virtual_interfaces,
        &good,
        &bad,
    );
}

#[test]
fn the_newer_key_hides_the_older_one() {
    let both = |new, old| {
        read(&[
            (REROUTE_VIRTUAL_INTERFACES, new),
            (KUBEVIRT_INTERFACES, old),
        ])
        .map(|r| r.reroute_virtual_interfaces)
    };
    assert_eq!(both("a", "b"), Ok("a".into()));
    assert_eq!(both("", "b"), Ok(String::new()));
    assert_eq!(both("a", "not an interface"), Ok("a".into()));
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
    fn good_lists_are_kept_as_they_are(ports in prop::collection::vec(any::<u16>(), 1..20)) {
        let list = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        let read = read(&[(EXCLUDE_OUTBOUND_PORTS, &list)]).unwrap();
        prop_assert_eq!(read.exclude_outbound_ports, list);
    }
}
