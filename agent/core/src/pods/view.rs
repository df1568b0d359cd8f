//! The part of a pod that the agent keeps.

use super::rest::Rest;
use crate::journal::PodRef;
use serde::Deserialize;
use serde_json::Value;
use std::net::IpAddr;
use weir_cni::json::{self, Object};
use weir_cni::pod::{Container, EnvVar, Pod, SecurityContext};

/// The container whose arguments and environment are kept.
const PROXY: &str = "istio-proxy";
/// The annotation with the redirection state of a pod in ambient mode.
pub const REDIRECTION: &str = "ambient.istio.io/redirection";
/// A copy of the manifest, which is not used.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// `v1.Pod`, reduced to what this agent and the plugin need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodView {
    /// The part that the decision about redirection needs. Arguments, environment and security context are kept only for the
    /// proxy: those of other containers are not needed and may contain secrets.
    pub pod: Pod,
    /// `metadata.resourceVersion`, opaque.
    pub resource_version: String,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.creationTimestamp`, RFC 3339 in UTC; empty if not known.
    pub created: String,
    /// The condition `Ready` is `True`.
    pub ready: bool,
    /// `spec.hostUsers`; with `Some(false)` the pod has its own user namespace.
    pub host_users: Option<bool>,
    /// `spec.serviceAccountName`
    pub service_account: String,
    /// `status.phase`: `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`, or empty.
    pub phase: String,
    /// `status.initContainerStatuses`
    pub init_statuses: Vec<InitStatus>,
    /// One of its containers has capabilities to write rules in its own network namespace.
    pub may_write_rules: bool,
}

/// `v1.ContainerStatus` of an init container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitStatus {
    /// The container's name.
    pub name: String,
    /// `state.terminated`: how it ended, if it is not running.
    pub state: Option<Terminated>,
    /// `lastState.terminated`: how its previous run ended.
    pub last: Option<Terminated>,
    /// `restartCount`
    pub restart_count: i64,
}

/// `v1.ContainerStateTerminated`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Exit status of the process.
    pub exit_code: i64,
    /// `Completed`, `Error` and others.
    #[serde(deserialize_with = "json::nullable")]
    pub reason: String,
    /// The termination message of the container.
    #[serde(deserialize_with = "json::nullable")]
    pub message: String,
    /// RFC 3339; empty if not known.
    #[serde(deserialize_with = "json::nullable")]
    pub started_at: String,
}

impl PodView {
    /// Decodes the API object.
    ///
    /// # Errors
    /// A field has the wrong type; names the field and the expected type.
    pub fn from_value(value: &Value) -> Result<Self, String> {
        let mut pod = Pod::from_value(value, "pod").map_err(|e| e.to_string())?;
        let Object(rest) = Object::<Rest>::deserialize(value).map_err(|e| format!("pod: {e}"))?;
        pod.metadata.annotations.remove(LAST_APPLIED);
        let spec = &mut pod.spec;
        for container in spec.init_containers.iter_mut().chain(&mut spec.containers) {
            reduce(container);
        }
        Ok(Self {
            pod,
            resource_version: rest.metadata.resource_version,
            deleting: rest.metadata.deletion_timestamp.is_some(),
            created: rest.metadata.creation_timestamp.unwrap_or_default(),
            ready: rest.status.is_ready(),
            host_users: rest.spec.host_users,
            may_write_rules: rest.spec.may_write_rules(),
            service_account: rest.spec.service_account_name,
            phase: rest.status.phase,
            init_statuses: rest
                .status
                .init_container_statuses
                .into_iter()
                .map(InitStatus::from)
                .collect(),
        })
    }

    /// `metadata.namespace`
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.pod.metadata.namespace
    }

    /// `metadata.name`
    #[must_use]
    pub fn name(&self) -> &str {
        &self.pod.metadata.name
    }

    /// `metadata.uid`
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.pod.metadata.uid
    }

    /// Returns the reference of the pod for the journal and the API server.
    pub fn reference(&self) -> PodRef {
        PodRef {
            namespace: self.namespace().into(),
            name: self.name().into(),
            uid: self.uid().into(),
            version: self.resource_version.as_str().into(),
        }
    }

    /// Returns true if the pod is pending or running and not being deleted.
    #[must_use]
    pub fn lives(&self) -> bool {
        matches!(self.phase.as_str(), "Pending" | "Running") && !self.deleting
    }

    /// Returns true if its containers have ended and will not be restarted.
    #[must_use]
    pub fn ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Returns true if the pod may need work: it has not ended, or its redirection is still to be removed.
    pub(super) fn is_needed(&self) -> bool {
        !self.ended() || self.pod.metadata.annotations.contains_key(REDIRECTION)
    }

    /// Returns the addresses without duplicates, `status.podIP` first. IPv4-mapped IPv6 addresses are converted to IPv4.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let status = &self.pod.status;
        let mut all: Vec<IpAddr> = Vec::new();
        for address in status.pod_ip.iter().chain(&status.pod_ips) {
            let address = address.to_canonical();
            if !all.contains(&address) {
                all.push(address);
            }
        }
        all
    }
}

/// Clears all but the name, except for the proxy, of which it keeps the input of [`weir_cni::pod::PodFacts`].
fn reduce(container: &mut Container) {
    if container.name == PROXY {
        return;
    }
    container.args = Vec::<String>::new();
    container.env = Vec::<EnvVar>::new();
    container.security_context = None::<SecurityContext>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_cni::pod::{PodFacts, Skip};

    /// As `kubectl get pod -o json` gives it, shortened.
    pub(super) fn broken() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-0", "namespace": "shop", "uid": "5c7f", "resourceVersion": "4711",
                "deletionTimestamp": null, "labels": {"app": "web"},
                "annotations": {"sidecar.istio.io/status": "{}", LAST_APPLIED: "{...}"},
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]
            },
            "spec": {
                "nodeName": "node1", "hostUsers": false, "serviceAccountName": "web",
                "initContainers": [{"name": "istio-validation", "args": ["x"]}],
                "containers": [
                    {"name": "app", "env": [{"name": "PASSWORD", "value": "secret"}], "args": ["a"]},
                    {"name": "istio-proxy", "args": ["proxy", "sidecar"],
                     "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {}}}],
                     "securityContext": {"runAsUser": 1337}}
                ]
            },
            "status": {
                "phase": "Pending", "podIP": "10.0.0.2",
                "podIPs": [{"ip": "10.0.0.2"}, {"ip": "fd00::2"}],
                "initContainerStatuses": [{
                    "name": "istio-validation", "restartCount": 2,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {
                        "exitCode": 126, "reason": "Error", "message": "no rules",
                        "startedAt": "2026-11-20T21:15:02Z", "finishedAt": "2026-11-20T21:15:03Z"}}
                }]
            }
        })
    }

    #[test]
    fn a_pod_of_the_api_server() {
        let view = PodView::from_value(&broken()).unwrap();
        assert_eq!(
            (view.namespace(), view.name(), view.uid()),
            ("shop", "web-0", "5c7f")
        );
        assert_eq!(
            (view.resource_version.as_str(), view.phase.as_str()),
            ("4711", "Pending")
        );
        assert_eq!((view.deleting, view.host_users), (false, Some(false)));
        assert_eq!(view.service_account, "web");
        let addresses: Vec<String> = view.addresses().iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.2", "fd00::2"]);
        let last = Terminated {
            exit_code: 126,
            reason: "Error".into(),
            message: "no rules".into(),
            started_at: "2026-11-20T21:15:02Z".into(),
        };
        let status = InitStatus {
            name: "istio-validation".into(),
            state: None,
            last: Some(last),
            restart_count: 2,
        };
        assert_eq!(view.init_statuses, [status]);
    }

    /// What the plugin concludes is the same from the whole object and from what is kept of it, also
    /// after it went over a wire.
    #[test]
    fn the_facts_are_those_of_the_whole_pod() {
        let whole = Pod::from_value(&broken(), "pod").unwrap();
        let kept = PodView::from_value(&broken()).unwrap().pod;
        let wire = serde_json::to_value(&kept).unwrap();
        let text = wire.to_string();
        for secret in ["secret", "PASSWORD", "last-applied", "managed"] {
            assert!(!text.contains(secret), "{text}");
        }
        let read = Pod::from_value(&wire, "wire").unwrap();
        assert_eq!(read, kept);
        let facts = PodFacts::of(&read);
        let mut expected = PodFacts::of(&whole);
        expected.annotations.remove(LAST_APPLIED);
        assert_eq!(facts, expected);
        assert_eq!(Skip::of(&facts), None);
    }

    #[test]
    fn an_address_of_ipv4_in_the_form_of_ipv6_is_one_of_ipv4() {
        let ips = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]);
        let value = json!({"status": {"podIP": "::ffff:10.0.0.1", "podIPs": ips}});
        let addresses = PodView::from_value(&value).unwrap().addresses();
        let expected = ["10.0.0.1", "fd00::1"].map(|a| a.parse::<IpAddr>().unwrap());
        assert_eq!(addresses, expected);
    }

    #[test]
    fn who_is_meant() {
        let mut value = broken();
        let view = PodView::from_value(&value).unwrap();
        assert!(
            view.pod.is_called("5c7f") && !view.pod.is_called("other") && !view.pod.is_called("")
        );
        value["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "file-hash"});
        let view = PodView::from_value(&value).unwrap();
        assert!(
            !view.pod.is_called("file-hash"),
            "anybody may write the annotation"
        );
        value["metadata"]["ownerReferences"] =
            json!([{"kind": "Node", "name": "node1", "uid": "n"}]);
        value["metadata"]["deletionTimestamp"] = json!("2026-11-20T21:15:02Z");
        let view = PodView::from_value(&value).unwrap();
        assert!(view.pod.is_called("5c7f") && view.pod.is_called("file-hash") && view.deleting);
    }

    #[test]
    fn who_may_write_rules() {
        let of = |kind: &str, context: Value| {
            let value =
                json!({"spec": {kind: [{"name": "a"}, {"name": "b", "securityContext": context}]}});
            PodView::from_value(&value).unwrap().may_write_rules
        };
        for kind in ["containers", "initContainers", "ephemeralContainers"] {
            assert!(of(kind, json!({"privileged": true})), "{kind}");
            for add in ["NET_ADMIN", "CAP_NET_ADMIN", "all", "SYS_ADMIN"] {
                assert!(
                    of(kind, json!({"capabilities": {"add": ["CHOWN", add]}})),
                    "{add}"
                );
            }
            for nothing in [
                json!(null),
                json!({}),
                json!({"capabilities": {"drop": ["ALL"]}}),
                json!({"privileged": false, "capabilities": {"add": ["NET_RAW"]}}),
            ] {
                assert!(!of(kind, nothing.clone()), "{nothing}");
            }
        }
    }

    #[test]
    fn little_is_enough_and_wrong_types_are_named() {
        for little in [
            json!({}),
            json!({"status": null}),
            json!({"status": {"phase": null}}),
        ] {
            let view = PodView::from_value(&little).unwrap_or_else(|e| panic!("{little}: {e}"));
            assert_eq!(view, PodView::default());
        }
        for (wrong, word) in [
            (json!([]), "object"),
            (json!({"metadata": {"name": 1}}), "metadata.name"),
            (
                json!({"status": {"podIP": "10.0.0.256"}}),
                "not an IP address",
            ),
            (json!({"spec": {"hostUsers": "no"}}), "bool"),
            (json!({"status": {"initContainerStatuses": {}}}), "sequence"),
        ] {
            let error = PodView::from_value(&wrong).unwrap_err();
            assert!(error.contains(word), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_array_is_no_object_at_any_depth() {
        let of_container = |member: Value| {
            let statuses = json!([{"name": "a", "state": member}]);
            json!({"status": {"initContainerStatuses": statuses}})
        };
        for wrong in [
            json!({"metadata": []}),
            json!({"metadata": ["1", null]}),
            json!({"spec": []}),
            json!({"spec": {"containers": [[]]}}),
            json!({"spec": {"containers": [{"securityContext": [true]}]}}),
            json!({"spec": {"ephemeralContainers": [[{"privileged": true}]]}}),
            json!({"spec": {"initContainers": [{"securityContext": {"capabilities": [["ALL"]]}}]}}),
            json!({"status": []}),
            json!({"status": ["Running"]}),
            json!({"status": {"initContainerStatuses": [["a"]]}}),
            of_container(json!([])),
            of_container(json!([{"exitCode": 126}])),
            of_container(json!({"terminated": [126, "Error", "", ""]})),
            json!({"status": {"initContainerStatuses": [{"lastState": [{}]}]}}),
        ] {
            let error = PodView::from_value(&wrong).expect_err(&wrong.to_string());
            assert!(error.contains("object"), "{wrong}: {error}");
        }
    }
}
