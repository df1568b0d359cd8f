//! Decides what a pod asks for.
//!
//! Owned objects in the network namespace of a pod without redirection are removed only if they are certainly ours: the
//! pod has no container that could ever have been its proxy and none that could have written rules itself, it is not an
//! ambient pod, and our tables and chains hold only what this program writes.

use weir_cni::pod::{PodFacts, Skip};
use weir_core::pods::PodView;

/// Set by Istio on pods of ambient mode.
const AMBIENT: &str = "ambient.istio.io/redirection";

/// Set by Istio's injection.
const INJECTED: &str = "sidecar.istio.io/status";

/// Returns the facts of a live pod with its own addresses that asks for redirection.
pub(crate) fn asks(view: &PodView) -> Option<PodFacts> {
    let facts = own_network(view)?;
    Skip::of(&facts).is_none().then_some(facts)
}

/// For a live pod without redirection: whether owned objects in its network namespace may be removed, or why not. `None`: they are
/// not looked for.
pub(super) fn nothing(view: &PodView) -> Option<Result<(), String>> {
    let facts = own_network(view)?;
    if view.pod.metadata.annotations.contains_key(AMBIENT) {
        return None;
    }
    Some(match Skip::of(&facts)? {
        // Its init container writes the rules.
        Skip::InitContainer => return None,
        Skip::NoProxy if view.may_write_rules => {
            Err("a container of it may write rules itself".to_owned())
        }
        // It may have been repaired by the criteria.
        Skip::NoProxy if facts.annotations.contains_key(INJECTED) => {
            Err("it was injected by Istio".to_owned())
        }
        Skip::NoProxy => Ok(()),
        // It may have asked for redirection when it started.
        reason => Err(format!("it has a proxy, and {reason}")),
    })
}

fn own_network(view: &PodView) -> Option<PodFacts> {
    let facts = PodFacts::of(&view.pod);
    (view.lives() && !facts.host_network && !view.addresses().is_empty()).then_some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(change: impl FnOnce(&mut Value)) -> Option<Result<(), String>> {
        let mut pod = json!({"metadata": {"name": "a", "annotations": {}},
            "spec": {"containers": [{"name": "app"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1"}});
        change(&mut pod);
        nothing(&PodView::from_value(&pod).unwrap())
    }

    #[test]
    fn what_may_be_removed() {
        assert_eq!(of(|_| {}), Some(Ok(())));
        // Not examined.
        let proxy = json!([{"name": "istio-proxy"}]);
        assert_eq!(of(|p| p["spec"]["hostNetwork"] = true.into()), None);
        assert_eq!(of(|p| p["status"]["podIP"] = Value::Null), None);
        assert_eq!(of(|p| p["status"]["phase"] = "Succeeded".into()), None);
        assert_eq!(
            of(|p| p["metadata"]["deletionTimestamp"] = "2026-11-20T21:15:02Z".into()),
            None
        );
        assert_eq!(
            of(|p| p["metadata"]["annotations"][AMBIENT] = "enabled".into()),
            None
        );
        assert_eq!(
            of(|p| p["spec"]["initContainers"] = json!([{"name": "istio-init"}])),
            None
        );
        let asks = |p: &mut Value| {
            p["spec"]["containers"] = proxy.clone();
            p["metadata"]["annotations"]["sidecar.istio.io/status"] = "{}".into();
        };
        assert_eq!(of(asks), None);
        // Examined, but not removed.
        let opted_out = |p: &mut Value| p["spec"]["containers"] = proxy.clone();
        assert!(matches!(of(opted_out), Some(Err(_))));
        let injected = |p: &mut Value| p["metadata"]["annotations"][INJECTED] = "{}".into();
        assert!(matches!(of(injected), Some(Err(_))));
        let writes = |p: &mut Value| {
            p["spec"]["containers"][0]["securityContext"]["privileged"] = true.into();
        };
        assert!(matches!(of(writes), Some(Err(_))));
    }
}
