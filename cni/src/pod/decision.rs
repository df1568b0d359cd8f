//! Decides whether a pod is redirected, and gives the reason if it is not.

use super::PodFacts;
use crate::annotation::{INJECT, STATUS};
use crate::config::{quoted, text};
use std::fmt;

/// Why a pod is not redirected. The conditions are checked in this order; the first that applies counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skip {
    /// It uses the host's network: its rules would apply to the node.
    HostNetwork,
    /// It sets up the redirection itself: it has a container `istio-init`.
    InitContainer,
    /// The proxy's variable `DISABLE_ENVOY` has this true value.
    EnvoyDisabled(String),
    /// It has no container `istio-proxy`.
    NoProxy,
    /// The proxy has this type, which is not a sidecar.
    ProxyType(String),
    /// It opted out by the label.
    OptedOutByLabel(String),
    /// It opted out by the annotation.
    OptedOutByAnnotation(String),
    /// It was not injected: the status annotation is absent.
    NotInjected,
}

impl Skip {
    /// Returns the reason for a pod with these facts; `None`: its traffic is redirected to its sidecar.
    #[must_use]
    pub fn of(facts: &PodFacts) -> Option<Self> {
        if facts.host_network {
            return Some(Self::HostNetwork);
        }
        if facts.has_container("istio-init") {
            return Some(Self::InitContainer);
        }
        if let Some(Ok(true)) = facts.proxy_switch("DISABLE_ENVOY") {
            let value = facts
                .proxy_env
                .get("DISABLE_ENVOY")
                .cloned()
                .unwrap_or_default();
            return Some(Self::EnvoyDisabled(value));
        }
        if !facts.has_container("istio-proxy") {
            return Some(Self::NoProxy);
        }
        if !matches!(facts.proxy_type.as_str(), "" | "sidecar") {
            return Some(Self::ProxyType(facts.proxy_type.clone()));
        }
        if let Some(reason) = opted_out(facts) {
            return Some(reason);
        }
        (!facts.annotations.contains_key(STATUS)).then_some(Self::NotInjected)
    }
}

/// Returns the opt-out of a pod. A label that is present overrides the annotation, even if the label is empty.
fn opted_out(facts: &PodFacts) -> Option<Skip> {
    let is_no = |value: &&String| text::boolean(value) == Some(false);
    if let Some(label) = facts.labels.get(INJECT) {
        return is_no(&label).then(|| Skip::OptedOutByLabel(label.clone()));
    }
    let annotation = facts.annotations.get(INJECT).filter(is_no);
    annotation.cloned().map(Skip::OptedOutByAnnotation)
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostNetwork => {
                f.write_str("it uses the node's network (hostNetwork), where no plugin is called")
            }
            Self::InitContainer => f.write_str(
                "it has a container istio-init, which sets up the redirection from inside the pod",
            ),
            Self::EnvoyDisabled(value) => {
                write!(
                    f,
                    "the variable DISABLE_ENVOY of istio-proxy is {}",
                    quoted(value)
                )
            }
            Self::NoProxy => f.write_str("it has no container istio-proxy"),
            Self::ProxyType(kind) => {
                let kind = quoted(kind);
                write!(f, "its istio-proxy is of type {kind}, not a sidecar")
            }
            Self::OptedOutByLabel(value) => write!(f, "its label {INJECT} is {}", quoted(value)),
            Self::OptedOutByAnnotation(value) => {
                write!(f, "its annotation {INJECT} is {}", quoted(value))
            }
            Self::NotInjected => {
                write!(
                    f,
                    "its annotation {STATUS} is absent: no sidecar was injected"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn injected() -> PodFacts {
        PodFacts {
            containers: ["app".into(), "istio-proxy".into()].into(),
            annotations: [(STATUS.to_owned(), String::new())].into(),
            ..PodFacts::default()
        }
    }

    fn decide(change: impl FnOnce(&mut PodFacts)) -> Option<Skip> {
        let mut facts = injected();
        change(&mut facts);
        Skip::of(&facts)
    }

    fn set(map: &mut std::collections::BTreeMap<String, String>, key: &str, value: &str) {
        map.insert(key.to_owned(), value.to_owned());
    }

    #[test]
    fn an_injected_pod_is_redirected() {
        assert_eq!(decide(|_| ()), None);
        assert_eq!(decide(|f| f.proxy_type = "sidecar".into()), None);
    }

    #[test]
    fn each_reason() {
        assert_eq!(decide(|f| f.host_network = true), Some(Skip::HostNetwork));
        let init = |f: &mut PodFacts| _ = f.containers.insert("istio-init".into());
        assert_eq!(decide(init), Some(Skip::InitContainer));
        assert_eq!(
            decide(|f| set(&mut f.proxy_env, "DISABLE_ENVOY", "T")),
            Some(Skip::EnvoyDisabled("T".into()))
        );
        assert_eq!(
            decide(|f| _ = f.containers.remove("istio-proxy")),
            Some(Skip::NoProxy)
        );
        assert_eq!(
            decide(|f| f.proxy_type = "router".into()),
            Some(Skip::ProxyType("router".into()))
        );
        let long = Skip::ProxyType("x".repeat(100_000)).to_string();
        assert!(long.len() < 300, "{}", long.len());
        assert_eq!(
            decide(|f| set(&mut f.labels, INJECT, "false")),
            Some(Skip::OptedOutByLabel("false".into()))
        );
        assert_eq!(
            decide(|f| set(&mut f.annotations, INJECT, "0")),
            Some(Skip::OptedOutByAnnotation("0".into()))
        );
        assert_eq!(decide(|f| f.annotations.clear()), Some(Skip::NotInjected));
    }

    #[test]
    fn the_first_reason_counts() {
        let decision = decide(|f| {
            f.containers = ["istio-init".to_owned()].into();
            f.annotations.clear();
        });
        assert_eq!(decision, Some(Skip::InitContainer));
        // DISABLE_ENVOY is checked before the container.
        let decision = decide(|f| {
            set(&mut f.proxy_env, "DISABLE_ENVOY", "1");
            f.containers.clear();
        });
        assert_eq!(decision, Some(Skip::EnvoyDisabled("1".into())));
    }

    #[test]
    fn what_is_no_boolean_is_ignored() {
        for value in ["", "yes", "no", "tRUE", " true"] {
            assert_eq!(
                decide(|f| set(&mut f.proxy_env, "DISABLE_ENVOY", value)),
                None
            );
            assert_eq!(decide(|f| set(&mut f.labels, INJECT, value)), None);
        }
    }

    #[test]
    fn a_label_hides_the_annotation() {
        for label in ["", "true", "what"] {
            let decision = decide(|f| {
                set(&mut f.labels, INJECT, label);
                set(&mut f.annotations, INJECT, "false");
            });
            assert_eq!(decision, None);
        }
    }
}
