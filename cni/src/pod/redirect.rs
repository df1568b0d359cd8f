//! Derives a pod's redirection: converts annotations and the proxy's container to typed values, and these to an intent.

use super::PodFacts;
use super::environment::{NodeEnvironment, has_ipv6};
use crate::annotation::RedirectAnnotations;
use crate::config::{Dns, IdRange, InputError, Intent, MAX_ID, quoted};
use std::net::IpAddr;

/// The redirection that a pod requests. The address families are determined in its network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRedirect {
    /// The values of its annotations.
    pub annotations: RedirectAnnotations,
    /// User of the proxy.
    pub proxy_uid: u32,
    /// Group of the proxy.
    pub proxy_gid: u32,
    /// Redirect all DNS traffic to the proxy: `ISTIO_META_DNS_CAPTURE`.
    pub capture_dns: bool,
    /// Redirect both families: `ISTIO_DUAL_STACK`.
    pub dual_stack: bool,
    /// Drop packets that conntrack finds invalid: `INVALID_DROP`.
    pub drop_invalid: bool,
    /// Addresses of the pod as its status lists them; empty while it starts.
    pub addresses: Vec<IpAddr>,
    /// Warnings: values that were given and have no effect.
    pub warnings: Vec<String>,
}

/// User and group of the proxy if the pod sets none, or sets 0: excluding root's traffic from capture would exclude
/// too much.
const PROXY_ID: u32 = 1337;

/// Derives the redirection that the pod requests.
///
/// # Errors
/// An annotation or an id is invalid; the error names it and the reason.
pub fn redirect_from(facts: &PodFacts) -> Result<PodRedirect, InputError> {
    let of_pod = |mut error: InputError| {
        error.input = format!("pod {facts}: {}", error.input);
        error
    };
    let mut annotations = RedirectAnnotations::read(&facts.annotations).map_err(of_pod)?;
    let given = std::mem::take(&mut annotations.warnings);
    let mut warnings: Vec<String> = given.iter().map(|w| format!("pod {facts}: {w}")).collect();
    let mut switch = |name: &str| match facts.proxy_switch(name) {
        None => false,
        Some(Ok(value)) => value,
        Some(Err(value)) => {
            warnings.push(format!(
                "pod {facts}: the variable {name} of istio-proxy is {}, neither true nor \
                 false: taken as false",
                quoted(value)
            ));
            false
        }
    };
    Ok(PodRedirect {
        annotations,
        proxy_uid: proxy_id("runAsUser", facts.proxy_uid).map_err(of_pod)?,
        proxy_gid: proxy_id("runAsGroup", facts.proxy_gid).map_err(of_pod)?,
        capture_dns: switch("ISTIO_META_DNS_CAPTURE"),
        dual_stack: switch("ISTIO_DUAL_STACK"),
        drop_invalid: switch("INVALID_DROP"),
        addresses: facts.addresses.clone(),
        warnings,
    })
}

fn proxy_id(field: &str, given: Option<i64>) -> Result<u32, InputError> {
    let Some(id) = given.filter(|id| *id != 0) else {
        return Ok(PROXY_ID);
    };
    let known = u32::try_from(id).ok().filter(|id| *id <= MAX_ID);
    known.ok_or_else(|| {
        let (input, accepted) = (format!("{field} of istio-proxy"), format!("0-{MAX_ID}"));
        InputError::value(input, id.to_string(), "is no id", accepted)
    })
}

impl PodRedirect {
    /// Returns the intent for a network namespace with these addresses, the default network's first.
    ///
    /// # Errors
    /// No address can be the pod's; the lists would make more than
    /// [`MAX_RULES`](crate::config::MAX_RULES) rules.
    pub fn intent(
        &self,
        environment: &NodeEnvironment,
        addresses: &[IpAddr],
    ) -> Result<Intent, InputError> {
        let asked = self.annotations.clone();
        let id = |id: u32| vec![IdRange(id..=id)];
        let intent = Intent {
            enable_ipv6: has_ipv6(addresses, self.dual_stack)?,
            mode: asked.mode,
            proxy_uids: id(self.proxy_uid),
            proxy_gids: id(self.proxy_gid),
            inbound: asked.inbound,
            inbound_ports_exclude: asked.inbound_ports_exclude,
            owner_groups: environment.owner_groups.clone(),
            outbound_ports_include: asked.outbound_ports_include,
            outbound_ports_exclude: asked.outbound_ports_exclude,
            outbound_include: asked.outbound_include,
            outbound_exclude: asked.outbound_exclude,
            virtual_interfaces: asked.virtual_interfaces,
            exclude_interfaces: asked.exclude_interfaces,
            loopback_v4: environment.loopback_v4,
            dns: if self.capture_dns { Dns::All } else { Dns::Off },
            drop_invalid: self.drop_invalid,
            ..Intent::default()
        };
        intent.checked()
    }
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
            (None, None, (1337, 1337)),
            (Some(0), Some(5), (1337, 5)),
            (Some(1_000_670_000), Some(0), (1_000_670_000, 1337)),
            (Some(4_294_967_294), None, (4_294_967_294, 1337)),
        ] {
            let facts = PodFacts {
                proxy_uid: uid,
                proxy_gid: gid,
                ..facts(&[])
            };
            let got = redirect_from(&facts).unwrap();
            assert_eq!((got.proxy_uid, got.proxy_gid), expected);
        }
        for id in [-1, 4_294_967_295, i64::MAX] {
            let facts = PodFacts {
                proxy_gid: Some(id),
                ..facts(&[])
            };
            let error = redirect_from(&facts).unwrap_err().to_string();
            let expected = format!("pod shop/web: runAsGroup of istio-proxy: \"{id}\" is no id");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn switches_of_the_proxy() {
        let env = [
            ("ISTIO_META_DNS_CAPTURE", "1"),
            ("ISTIO_DUAL_STACK", "TRUE"),
        ];
        let got = redirect_from(&facts(&env)).unwrap();
        assert!(got.capture_dns && got.dual_stack && !got.drop_invalid);
        assert_eq!(got.warnings, Vec::<String>::new());

        let env = [
            ("ISTIO_META_DNS_CAPTURE", ""),
            ("ISTIO_DUAL_STACK", "yes"),
            ("INVALID_DROP", "t"),
        ];
        let got = redirect_from(&facts(&env)).unwrap();
        assert!(!got.capture_dns && !got.dual_stack && got.drop_invalid);
        assert_eq!(got.warnings.len(), 2);
        assert!(got.warnings[1].contains("shop/web") && got.warnings[1].contains("\"yes\""));
        let long = "x".repeat(300_000);
        let got = redirect_from(&facts(&[("INVALID_DROP", &long)])).unwrap();
        assert!(got.warnings[0].len() < 300, "{}", got.warnings[0].len());
    }

    #[test]
    fn a_bad_annotation_is_named_with_its_pod() {
        let mut facts = facts(&[]);
        facts
            .annotations
            .insert("sidecar.istio.io/interceptionMode".into(), "NONE".into());
        let error = redirect_from(&facts).unwrap_err().to_string();
        assert!(error.starts_with("pod shop/web: annotation sidecar.istio.io/interceptionMode"));
    }
}
