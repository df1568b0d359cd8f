//! Decides whether a pod belongs to the mesh.

use super::settings::AmbientSettings;
use std::collections::BTreeMap;
use std::fmt;
use weir_cni::plugin::{AGENT_POD_PREFIX, NotAmbient};
use weir_core::pods::{NamespaceView, PodView};

/// The label of ztunnel's own pods.
const ZTUNNEL: (&str, &str) = ("app", "ztunnel");

/// The decision for one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// It belongs to the mesh.
    Member,
    /// It does not.
    No(Why),
    /// It depends on the labels of the namespace, which are not known yet: the pod stays as it is.
    Unknown,
}

/// The reason why a pod does not belong to the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// All its containers have ended.
    Ended,
    /// It is a pod of ztunnel.
    Ztunnel,
    /// It is a pod of the node agent.
    Agent,
    /// `EXCLUDE_NAMESPACES`
    Excluded,
    /// By the checks and selectors that the plugin applies, too.
    Plugin(NotAmbient),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("it has ended"),
            Self::Ztunnel => f.write_str("it is ztunnel"),
            Self::Agent => f.write_str("it is the node agent"),
            Self::Excluded => f.write_str("its namespace is excluded (EXCLUDE_NAMESPACES)"),
            Self::Plugin(why) => why.fmt(f),
        }
    }
}

/// Returns true for a pod of ztunnel.
pub(super) fn is_ztunnel(settings: &AmbientSettings, view: &PodView) -> bool {
    let app = view.pod.metadata.labels.get(ZTUNNEL.0);
    app.is_some_and(|app| app == ZTUNNEL.1) && view.namespace() == settings.system_namespace
}

/// Decides for a pod. `namespace` is the pod's namespace, if known.
pub(super) fn decide(
    settings: &AmbientSettings,
    view: &PodView,
    namespace: Option<&NamespaceView>,
) -> Decision {
    let is_agent = view.name().starts_with(AGENT_POD_PREFIX);
    if view.ended() {
        return Decision::No(Why::Ended);
    }
    if is_ztunnel(settings, view) {
        return Decision::No(Why::Ztunnel);
    }
    if is_agent && view.namespace() == settings.own_namespace {
        return Decision::No(Why::Agent);
    }
    if settings
        .exclude_namespaces
        .iter()
        .any(|n| n == view.namespace())
    {
        return Decision::No(Why::Excluded);
    }
    let decided = match namespace {
        Some(namespace) => settings.enablement.decide(&view.pod, &namespace.labels),
        // Only the selectors without a namespace part can decide; one match is enough.
        None => match settings
            .in_any_namespace
            .decide(&view.pod, &BTreeMap::new())
        {
            Err(NotAmbient::NotSelected) => return Decision::Unknown,
            decided => decided,
        },
    };
    match decided {
        Ok(()) => Decision::Member,
        Err(why) => Decision::No(Why::Plugin(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::ffi::OsString;
    use weir_core::settings::resolve;

    /// The value set by the chart.
    const SELECTORS: &str = "
- podSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}
- podSelector: {matchExpressions: [{key: istio.io/dataplane-mode, operator: NotIn, values: [none]}]}
  namespaceSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}
";

    fn settings() -> AmbientSettings {
        let lookup = |name: &str| {
            let value = match name {
                "AMBIENT_ENABLED" => "true",
                "AMBIENT_ENABLEMENT_SELECTOR" => SELECTORS,
                "EXCLUDE_NAMESPACES" => "kube-system",
                "POD_NAMESPACE" => "istio-system",
                _ => return None,
            };
            Some(OsString::from(value))
        };
        let resolved = resolve(&BTreeMap::new(), &lookup);
        AmbientSettings::of(&resolved).unwrap().unwrap()
    }

    fn decided(pod: Value, namespace: Option<&str>) -> Decision {
        let mut object = json!({"metadata": {"name": "web", "namespace": "shop"},
            "spec": {}, "status": {"phase": "Running"}});
        merge(&mut object, pod);
        let view = PodView::from_value(&object).unwrap();
        let namespace = namespace.map(|mode| NamespaceView {
            labels: [("istio.io/dataplane-mode".to_owned(), mode.to_owned())].into(),
            ..NamespaceView::default()
        });
        decide(&settings(), &view, namespace.as_ref())
    }

    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from,
        }
    }

    #[test]
    fn the_first_that_holds_decides() {
        let mode = |mode: &str| json!({"metadata": {"labels": {"istio.io/dataplane-mode": mode}}});
        let not = |why| Decision::No(Why::Plugin(why));
        for (pod, namespace, expected) in [
            (json!({}), Some("ambient"), Decision::Member),
            (json!({}), Some("none"), not(NotAmbient::NotSelected)),
            (mode("ambient"), Some("none"), Decision::Member),
            (mode("none"), Some("ambient"), not(NotAmbient::NotSelected)),
            (json!({}), None, Decision::Unknown),
            (mode("ambient"), None, Decision::Member),
            (mode("none"), None, Decision::Unknown),
            (
                json!({"spec": {"hostNetwork": true}}),
                None,
                not(NotAmbient::HostNetwork),
            ),
            (
                json!({"spec": {"hostNetwork": true}}),
                Some("ambient"),
                not(NotAmbient::HostNetwork),
            ),
            (
                json!({"metadata": {"annotations": {"sidecar.istio.io/status": ""}}}),
                Some("ambient"),
                not(NotAmbient::Sidecar),
            ),
            (
                json!({"status": {"phase": "Succeeded"}}),
                Some("ambient"),
                Decision::No(Why::Ended),
            ),
            (
                json!({"metadata": {"namespace": "kube-system"}}),
                Some("ambient"),
                Decision::No(Why::Excluded),
            ),
            (
                json!({"metadata": {"namespace": "istio-system", "labels": {"app": "ztunnel"}}}),
                Some("ambient"),
                Decision::No(Why::Ztunnel),
            ),
            (
                json!({"metadata": {"labels": {"app": "ztunnel"}}}),
                Some("ambient"),
                Decision::Member,
            ),
            (
                json!({"metadata": {"namespace": "istio-system", "name": "istio-cni-node-x"}}),
                Some("ambient"),
                Decision::No(Why::Agent),
            ),
        ] {
            assert_eq!(
                decided(pod.clone(), namespace),
                expected,
                "{pod} {namespace:?}"
            );
        }
    }
}
