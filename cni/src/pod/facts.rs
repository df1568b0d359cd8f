//! The properties of a pod that its redirection depends on.

use super::{Container, Pod, SecurityContext};
use crate::config::text;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// The properties of a pod that its redirection depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID, never reused for another pod.
    pub uid: String,
    /// The node to which the pod is bound; empty if it is not bound.
    pub node_name: String,
    /// True if the pod uses the node's network.
    pub host_network: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Names of init containers and containers.
    pub containers: BTreeSet<String>,
    /// Environment of `istio-proxy`; a value from another source (`valueFrom`) is empty text.
    pub proxy_env: BTreeMap<String, String>,
    /// The second argument of `istio-proxy proxy TYPE`; empty if there is none.
    pub proxy_type: String,
    /// User of the proxy's container, if its own security context sets one.
    pub proxy_uid: Option<i64>,
    /// Group of the proxy's container, if its own security context sets one.
    pub proxy_gid: Option<i64>,
    /// Addresses, beginning with the primary one (`podIP`).
    pub addresses: Vec<IpAddr>,
}

/// The container that runs the proxy.
const PROXY: &str = "istio-proxy";

impl PodFacts {
    /// Reads the facts of a pod. Visits init containers first; of several proxies the last one counts, and
    /// their environments are merged.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let (metadata, spec) = (&pod.metadata, &pod.spec);
        let mut facts = Self {
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            node_name: spec.node_name.clone(),
            host_network: spec.host_network,
            labels: metadata.labels.clone(),
            annotations: metadata.annotations.clone(),
            addresses: addresses(pod),
            ..Self::default()
        };
        for container in spec.init_containers.iter().chain(&spec.containers) {
            facts.containers.insert(container.name.clone());
            if container.name == PROXY {
                facts.visit_proxy(container);
            }
        }
        facts
    }

    fn visit_proxy(&mut self, container: &Container) {
        for var in &container.env {
            self.proxy_env
                .insert(var.name.clone(), var.value.clone().unwrap_or_default());
        }
        if let [first, second, ..] = container.args.as_slice()
            && first == "proxy"
        {
            self.proxy_type.clone_from(second);
        }
        if let Some(SecurityContext {
            run_as_user,
            run_as_group,
        }) = container.security_context
        {
            self.proxy_uid = run_as_user;
            self.proxy_gid = run_as_group;
        }
    }

    /// True if a container or init container has this name.
    pub(crate) fn has_container(&self, name: &str) -> bool {
        self.containers.contains(name)
    }

    /// Returns the proxy's variable as a boolean: `None` if it is not set, else the value, or the text if it is not a
    /// boolean.
    pub(crate) fn proxy_switch(&self, name: &str) -> Option<Result<bool, &str>> {
        let value = self.proxy_env.get(name)?;
        Some(text::boolean(value).ok_or(value))
    }
}

fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let mut addresses: Vec<_> = pod.status.pod_ip.into_iter().collect();
    for addr in &pod.status.pod_ips {
        if !addresses.contains(addr) {
            addresses.push(*addr);
        }
    }
    addresses
}

/// Formats the pod as `NAMESPACE/NAME`.
impl fmt::Display for PodFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::EnvVar;

    fn proxy(args: &[&str], env: &[(&str, Option<&str>)]) -> Container {
        Container {
            name: PROXY.into(),
            args: args.iter().map(|s| (*s).to_owned()).collect(),
            env: env
                .iter()
                .map(|(n, v)| EnvVar {
                    name: (*n).into(),
                    value: v.map(Into::into),
                })
                .collect(),
            security_context: None,
        }
    }

    #[test]
    fn a_later_proxy_overrides_and_environments_merge() {
        let mut pod = Pod::default();
        let ids = |user, group| {
            Some(SecurityContext {
                run_as_user: user,
                run_as_group: group,
            })
        };
        let init = proxy(&["proxy", "router"], &[("A", Some("1")), ("B", Some("1"))]);
        pod.spec.init_containers = vec![Container {
            security_context: ids(Some(5), Some(6)),
            ..init
        }];
        let regular = proxy(
            &["proxy"],
            &[("B", None), ("C", Some("2")), ("C", Some("3"))],
        );
        pod.spec.containers = vec![Container {
            security_context: ids(None, Some(7)),
            ..regular
        }];
        let facts = PodFacts::of(&pod);
        let env: Vec<_> = facts
            .proxy_env
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        assert_eq!(env, ["A=1", "B=", "C=3"]);
        assert_eq!(
            facts.proxy_type, "router",
            "one argument says nothing about the type"
        );
        assert_eq!((facts.proxy_uid, facts.proxy_gid), (None, Some(7)));
    }

    #[test]
    fn a_proxy_without_security_context_keeps_the_ids() {
        let mut pod = Pod::default();
        let ids = Some(SecurityContext {
            run_as_user: Some(5),
            run_as_group: None,
        });
        pod.spec.containers = vec![
            Container {
                security_context: ids,
                ..proxy(&[], &[])
            },
            proxy(&["x", "sidecar"], &[]),
        ];
        let facts = PodFacts::of(&pod);
        assert_eq!(facts.proxy_uid, Some(5));
        assert_eq!(facts.proxy_type, "", "the first argument is not proxy");
    }

    #[test]
    fn addresses_are_named_once() {
        let mut pod = Pod::default();
        pod.status.pod_ip = "10.0.0.2".parse().ok();
        pod.status.pod_ips = vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        assert_eq!(PodFacts::of(&pod).addresses, pod.status.pod_ips);
    }
}
