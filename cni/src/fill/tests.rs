use super::*;

fn ips(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|ip| ip.parse().unwrap()).collect()
}

fn run(
    config: &mut SidecarConfig,
    env: &[(&str, &str)],
    change: impl FnOnce(&mut FillSources<'_>),
) -> Result<Vec<String>, InputError> {
    let env = |name: &str| {
        env.iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| (*v).to_owned())
    };
    let addresses = ips(&["10.0.0.2"]);
    let mut sources = FillSources::new(&env, &addresses);
    sources.passwd = "/nonexistent/passwd".into();
    sources.resolv_conf = "/nonexistent/resolv.conf".into();
    change(&mut sources);
    fill(config, &sources)
}

struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-fill-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn variables_overwrite_and_absence_is_the_default() {
    let mut config = SidecarConfig {
        owner_groups_include: "1".into(),
        owner_groups_exclude: "2".into(),
        host_ipv4_loopback_cidr: "127.0.0.1/8".into(),
        ..SidecarConfig::default()
    };
    run(&mut config, &[], |_| ()).unwrap();
    assert_eq!(config.owner_groups_include, "*");
    assert_eq!(config.owner_groups_exclude, "");
    assert_eq!(config.host_ipv4_loopback_cidr, "127.0.0.1/32");
    let env = [
        ("ISTIO_OUTBOUND_OWNER_GROUPS", ""),
        ("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "7"),
        ("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.1/16"),
    ];
    run(&mut config, &env, |_| ()).unwrap();
    assert_eq!(
        config.owner_groups_include, "",
        "set but empty is the empty list"
    );
    assert_eq!(config.owner_groups_exclude, "7");
    assert_eq!(config.host_ipv4_loopback_cidr, "127.0.0.1/16");
}

#[test]
fn proxy_ids() {
    let passwd = TempFile::new(
        "passwd",
        "root:x:0:0::/:\nistio-proxy:x:1500:1501::/:\nme:x:8:9::/:\n",
    );
    let ids = |uid: &str, gid: &str, env: &[(&str, &str)], known: bool| {
        let mut config = SidecarConfig {
            proxy_uid: uid.into(),
            proxy_gid: gid.into(),
            ..SidecarConfig::default()
        };
        let change = |s: &mut FillSources<'_>| {
            if known {
                s.passwd.clone_from(&passwd.0);
            }
        };
        run(&mut config, env, change).unwrap();
        format!("{} {}", config.proxy_uid, config.proxy_gid)
    };
    assert_eq!(ids("", "", &[], true), "1500 1500");
    assert_eq!(ids("", "", &[("ENVOY_USER", "me")], true), "8 8");
    assert_eq!(
        ids("", "", &[("ENVOY_USER", "nobody-knows")], true),
        "1337 1337"
    );
    assert_eq!(ids("", "", &[], false), "1337 1337");
    assert_eq!(ids("3,4", "", &[], true), "3,4 3,4");
    assert_eq!(ids("3,4", "1,2", &[], true), "3,4 1,2");
    assert_eq!(ids("", "5", &[], true), "1500 5");
}

#[test]
fn the_address_walk() {
    for (addresses, dual_stack, expected) in [
        (
            &["127.0.0.1", "10.0.0.2", "::1", "fd00::2"][..],
            false,
            Some(("10.0.0.2", false)),
        ),
        (
            &["10.0.0.2", "fe80::1", "fd00::2"],
            true,
            Some(("10.0.0.2", true)),
        ),
        (&["10.0.0.2", "fe80::1"], true, Some(("10.0.0.2", false))),
        (
            &["127.0.0.1", "::1", "fe80::1", "fd00::2"],
            false,
            Some(("fd00::2", true)),
        ),
        (&["fd00::2"], true, Some(("fd00::2", true))),
        (
            &["169.254.0.1", "224.0.0.5", "ff02::1", "ff12::1", "10.0.0.3"],
            true,
            Some(("10.0.0.3", false)),
        ),
        (
            &["::ffff:10.0.0.2", "fd00::2"],
            false,
            Some(("10.0.0.2", false)),
        ),
        (
            &["::ffff:127.0.0.1", "::ffff:169.254.0.1", "fd00::2"],
            false,
            Some(("fd00::2", true)),
        ),
        (&["224.0.1.1"], false, Some(("224.0.1.1", false))),
        (&["127.0.0.1", "::1", "fe80::1"], false, None),
        (&[], true, None),
    ] {
        let result = local_address(&ips(addresses), dual_stack).ok();
        let expected = expected.map(|(ip, enable_ipv6)| (ip.parse().unwrap(), enable_ipv6));
        assert_eq!(result, expected, "{addresses:?} {dual_stack}");
    }
}

#[test]
fn no_usable_address_is_told() {
    let mut config = SidecarConfig::default();
    let loopback = ips(&["127.0.0.1", "fe80::1"]);
    let addresses = loopback.clone();
    let env = |_: &str| None;
    let error = fill(&mut config, &FillSources::new(&env, &addresses))
        .unwrap_err()
        .to_string();
    assert!(error.contains("127.0.0.1, fe80::1"), "{error}");
}

#[test]
fn resolv_conf_is_read_only_when_it_is_needed() {
    let dns = |redirect, all, file: Option<&str>| {
        let mut config = SidecarConfig {
            redirect_dns: redirect,
            capture_all_dns: all,
            ..SidecarConfig::default()
        };
        let file = file.map(|text| TempFile::new("resolv", text));
        let change = |s: &mut FillSources<'_>| {
            if let Some(file) = &file {
                s.resolv_conf.clone_from(&file.0);
            }
        };
        let warnings = run(&mut config, &[], change)?;
        Ok::<_, InputError>((config.dns_servers_v4, config.dns_servers_v6, warnings.len()))
    };
    assert_eq!(dns(false, false, None), Ok((vec![], vec![], 0)));
    assert_eq!(dns(true, true, None), Ok((vec![], vec![], 0)));
    let error = dns(true, false, None).unwrap_err().to_string();
    assert!(
        error.contains("/nonexistent/resolv.conf: cannot be read"),
        "{error}"
    );
    let text = "# nameserver 1.1.1.1\nnameserver 10.96.0.10\nsearch a b\n\tnameserver\tfd00::a # x\n\
                nameserver\nnameserver fe80::1%eth0\nnameserver ::ffff:10.0.0.1\nnameservers 2.2.2.2\n";
    let (v4, v6, warnings) = dns(true, false, Some(text)).unwrap();
    assert_eq!(v4, ["10.96.0.10"]);
    assert_eq!(v6, ["fd00::a", "::ffff:10.0.0.1"]);
    assert_eq!(warnings, 1);
}
