//! From a pod to the configuration of its redirection.

use super::PodFacts;
use crate::annotation::RedirectAnnotations;
use crate::config::{InputError, SidecarConfig};

/// What is known about a pod's redirection besides the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement<'a> {
    /// Path of the pod's network namespace.
    pub network_namespace: &'a str,
    /// `native_nftables` of the network configuration.
    pub native_nftables: bool,
    /// The variable `DRY_RUN_FILE_PATH` of this process; empty when it is not set. Only the xtables
    /// engine can run dry.
    pub dry_run_file: &'a str,
}

/// The configuration of a pod's redirection, not yet filled from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRedirect {
    /// To be completed by [`fill`](crate::fill::fill) with the pod's own addresses.
    pub config: SidecarConfig,
    /// What was given and has no effect.
    pub warnings: Vec<String>,
}

/// User and group of the proxy when the pod does not say, or says 0: a redirection that leaves root's
/// traffic would leave too much.
const PROXY_ID: i64 = 1337;

/// Reads what the pod asks for.
///
/// # Errors
///
/// An annotation cannot be used: which, and why.
pub fn redirect_from(
    facts: &PodFacts,
    placement: &Placement<'_>,
) -> Result<PodRedirect, InputError> {
    let annotations = RedirectAnnotations::read(&facts.annotations).map_err(|mut error| {
        error.input = format!("pod {facts}: {}", error.input);
        error
    })?;
    let mut warnings = Vec::new();
    let mut switch = |name: &str| match facts.proxy_switch(name) {
        None => false,
        Some(Ok(value)) => value,
        Some(Err(value)) => {
            warnings.push(format!(
                "pod {facts}: the variable {name} of istio-proxy is {value:?}, neither true nor \
                 false: taken as false"
            ));
            false
        }
    };
    let redirect_dns = switch("ISTIO_META_DNS_CAPTURE");
    let dual_stack = switch("ISTIO_DUAL_STACK");
    let drop_invalid = switch("INVALID_DROP");
    let id = |given: Option<i64>| given.filter(|id| *id != 0).unwrap_or(PROXY_ID).to_string();
    let config = SidecarConfig {
        host_filesystem_pod_network: true,
        network_namespace: placement.network_namespace.to_owned(),
        proxy_uid: id(facts.proxy_uid),
        proxy_gid: id(facts.proxy_gid),
        inbound_interception_mode: annotations.interception_mode,
        outbound_ip_ranges_include: annotations.include_outbound_ip_ranges,
        outbound_ip_ranges_exclude: annotations.exclude_outbound_ip_ranges,
        inbound_ports_include: annotations.include_inbound_ports,
        inbound_ports_exclude: annotations.exclude_inbound_ports,
        outbound_ports_include: annotations.include_outbound_ports,
        outbound_ports_exclude: annotations.exclude_outbound_ports,
        exclude_interfaces: annotations.exclude_interfaces,
        reroute_virtual_interfaces: annotations.reroute_virtual_interfaces,
        redirect_dns,
        capture_all_dns: redirect_dns,
        drop_invalid,
        dual_stack,
        native_nftables: placement.native_nftables,
        dry_run: !placement.native_nftables && !placement.dry_run_file.is_empty(),
        ..SidecarConfig::default()
    };
    Ok(PodRedirect { config, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(env: &[(&str, &str)]) -> PodFacts {
        PodFacts {
            name: "web".into(),
            namespace: "shop".into(),
            proxy_env: env
                .iter()
                .map(|(n, v)| ((*n).into(), (*v).into()))
                .collect(),
            ..PodFacts::default()
        }
    }

    #[test]
    fn ids_are_replaced_each_for_itself() {
        for (uid, gid, expected) in [
            (None, None, ("1337", "1337")),
            (Some(0), Some(5), ("1337", "5")),
            (Some(1_000_670_000), Some(0), ("1000670000", "1337")),
        ] {
            let facts = PodFacts {
                proxy_uid: uid,
                proxy_gid: gid,
                ..facts(&[])
            };
            let config = redirect_from(&facts, &Placement::default()).unwrap().config;
            assert_eq!(
                (config.proxy_uid.as_str(), config.proxy_gid.as_str()),
                expected
            );
        }
    }

    #[test]
    fn switches_of_the_proxy() {
        let env = [
            ("ISTIO_META_DNS_CAPTURE", "1"),
            ("ISTIO_DUAL_STACK", "TRUE"),
        ];
        let got = redirect_from(&facts(&env), &Placement::default()).unwrap();
        let c = got.config;
        assert!(c.redirect_dns && c.capture_all_dns && c.dual_stack && !c.drop_invalid);
        assert_eq!(got.warnings, Vec::<String>::new());

        let env = [
            ("ISTIO_META_DNS_CAPTURE", ""),
            ("ISTIO_DUAL_STACK", "yes"),
            ("INVALID_DROP", "t"),
        ];
        let got = redirect_from(&facts(&env), &Placement::default()).unwrap();
        let c = got.config;
        assert!(!c.redirect_dns && !c.capture_all_dns && !c.dual_stack && c.drop_invalid);
        assert_eq!(got.warnings.len(), 2);
        assert!(got.warnings[1].contains("shop/web") && got.warnings[1].contains("\"yes\""));
    }

    #[test]
    fn dry_run_is_for_xtables_only() {
        for (native_nftables, dry_run_file, expected) in [
            (false, "", false),
            (false, "/tmp/x", true),
            (true, "/tmp/x", false),
        ] {
            let placement = Placement {
                network_namespace: "/n",
                native_nftables,
                dry_run_file,
            };
            let config = redirect_from(&facts(&[]), &placement).unwrap().config;
            assert_eq!(config.dry_run, expected);
            assert_eq!(config.network_namespace, "/n");
            assert!(config.host_filesystem_pod_network);
        }
    }

    #[test]
    fn a_bad_annotation_is_named_with_its_pod() {
        let mut facts = facts(&[]);
        facts
            .annotations
            .insert("sidecar.istio.io/interceptionMode".into(), "NONE".into());
        let error = redirect_from(&facts, &Placement::default())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("pod shop/web: annotation sidecar.istio.io/interceptionMode"));
    }
}
