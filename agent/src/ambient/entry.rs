//! The interface where the plugin hands over a pod and waits until it is captured.

use super::decision::{Decision, Why, decide};
use super::keeper::{Sandbox, Told};
use super::roster::Roster;
use super::settings::AmbientSettings;
use crate::dataplane::Hindrance;
use serde::Deserialize;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_cni::json::any_case::AnyCase;
use weir_cni::json::{self, any_case};
use weir_core::pods::{PodView, Pods};
use weir_core::sandboxes::Sandboxes;
use weir_reconcile::Handle;

/// Maximum time until the watch reports a pod: the API server notifies the kubelet at the same time.
const KNOWN: Duration = Duration::from_millis(1500);
/// Time limit for an enrolment: the plugin gives up after 5 s, and the container runtime retries.
const ENROLLED: Duration = Duration::from_millis(4800);
/// Time limit for CHECK of a known pod.
const CHECKED: Duration = Duration::from_secs(3);

/// The body that the plugin posts to `/cmdadd`. Plugins of other versions, and Istio's own, send it, too. As in Istio's agent, keys
/// match in any case, and a member that is absent or null is empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct HandedOver {
    /// `CNI_NETNS`; empty if not given.
    #[serde(deserialize_with = "json::nullable")]
    netns: String,
    #[serde(deserialize_with = "json::nullable")]
    pod_name: String,
    #[serde(deserialize_with = "json::nullable")]
    pod_namespace: String,
    /// The addresses in the previous plugin's result, if there is one.
    #[serde(rename = "IPs", deserialize_with = "json::nullable")]
    ips: Vec<Option<AnyCase<Ip>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Ip {
    #[serde(deserialize_with = "any_case::object_or_default")]
    address: Address,
}

/// The mask and the other members of upstream's structure are not needed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Address {
    #[serde(rename = "IP", deserialize_with = "json::nullable")]
    ip: String,
}

impl HandedOver {
    /// Parses the body of a request and its addresses.
    ///
    /// # Errors
    /// The body is not valid JSON of this form.
    pub(crate) fn read(body: &[u8]) -> Result<(Self, Vec<IpAddr>), String> {
        let body = match body.trim_ascii() {
            b"null" => b"{}",
            _ => body,
        };
        let AnyCase(pod) = json::from_slice::<AnyCase<Self>>(body).map_err(|e| e.to_string())?;
        let addresses = pod.addresses()?;
        Ok((pod, addresses))
    }

    /// Returns `NAMESPACE/NAME`.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.pod_namespace, self.pod_name)
    }

    /// Returns the addresses without those of loopback, which every network namespace has. IPv4-mapped IPv6 addresses are converted.
    ///
    /// # Errors
    /// One of them is not a valid IP address.
    fn addresses(&self) -> Result<Vec<IpAddr>, String> {
        let texts = self.ips.iter().flatten();
        let texts = texts.map(|AnyCase(ip)| &ip.address.ip);
        let parse = |text: &String| {
            let parsed: IpAddr = text
                .parse()
                .map_err(|_| format!("IPs: {text:?} is not an IP address"))?;
            Ok(parsed.to_canonical())
        };
        let parsed = texts.filter(|text| !text.is_empty()).map(parse);
        let is_local = |a: &Result<IpAddr, String>| a.as_ref().is_ok_and(IpAddr::is_loopback);
        parsed.filter(|address| !is_local(address)).collect()
    }
}

/// Enrols pods that the plugin hands over. Clones share the state.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(super) settings: Arc<AmbientSettings>,
    pub(super) pods: Pods,
    pub(super) told: Told,
    pub(super) roster: Roster,
    pub(super) sandboxes: Sandboxes,
    pub(super) handle: Handle,
}

/// Why CHECK of a pod does not succeed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CheckError {
    /// The pod is not enrolled as it should be.
    Differs(String),
    /// The pod is not known, or is going away: this is no difference.
    Unknown(String),
}

impl Entry {
    /// Enrols a pod and waits until it is captured and the proxy has taken it. `Some`: it is not enrolled, for this reason, and may
    /// start nevertheless.
    ///
    /// # Errors
    /// The pod is not known, does not belong to the mesh, cannot be enrolled, or is not enrolled in time.
    pub(crate) async fn enrol(
        &self,
        handed_over: &HandedOver,
        addresses: Vec<IpAddr>,
    ) -> Result<Option<String>, String> {
        let begun = Instant::now();
        let view = self.known(handed_over).await?;
        match self.decide(&view) {
            Decision::Member => {}
            // The plugin applies the exclusion, unless its configuration differs. Upstream enrols the pod and removes it
            // again at once.
            Decision::No(why @ Why::Excluded) => return Ok(Some(why.to_string())),
            Decision::No(why) => return Err(format!("it is not a pod of ambient mode: {why}")),
            Decision::Unknown => {
                return Err("the labels of its namespace are not known".to_owned());
            }
        }
        let uid: Arc<str> = view.uid().into();
        let netns = PathBuf::from(&handed_over.netns);
        let sandbox = Sandbox {
            addresses,
            before: view.addresses(),
            netns,
        };
        self.told.put(&uid, sandbox);
        let late = || {
            Err(format!(
                "it is not captured, or ztunnel has not taken it, within {ENROLLED:?}; that goes on, and the runtime tries again"
            ))
        };
        let left = ENROLLED.saturating_sub(begun.elapsed());
        let settled = self.settled(uid, left).await;
        settled.unwrap_or_else(late).map(|()| None)
    }

    /// Checks that the pod is enrolled in the network namespace named at CNI CHECK, and that nothing keeps packets from its rules. A pod
    /// with a job in progress passes: some container runtimes kill pods whose CHECK fails.
    ///
    /// # Errors
    /// It is not enrolled, or the pod is not known.
    pub(crate) async fn check(&self, named: &HandedOver) -> Result<(), CheckError> {
        let view = self.known(named).await.map_err(CheckError::Unknown)?;
        let checked = self.check_known(&view, named).await;
        let is_present = self
            .present(named)
            .is_some_and(|now| now.uid() == view.uid());
        checked.map_err(|why| match is_present {
            true => CheckError::Differs(why),
            false => CheckError::Unknown(why),
        })
    }

    async fn check_known(&self, view: &PodView, named: &HandedOver) -> Result<(), String> {
        // ADD accepts it, too.
        if self.decide(view) == Decision::No(Why::Excluded) {
            return Ok(());
        }
        let uid: Arc<str> = view.uid().into();
        match self.settled(Arc::clone(&uid), CHECKED).await {
            Some(settled) => settled?,
            None => return Ok(()),
        }
        let Some(captured) = self.roster.captured(&uid) else {
            return Ok(());
        };
        let netns = Path::new(&named.netns);
        if self.sandboxes.is_elsewhere(netns, captured.netns) {
            return Err(format!(
                "it is captured in the network namespace {}, and {} is another one",
                captured.netns,
                netns.display()
            ));
        }
        match captured.hindered {
            Some(Hindrance::Foreign(what)) => Err(format!("it is in conflict: {what}")),
            // What is not known is no difference.
            _ => Ok(()),
        }
    }

    fn decide(&self, view: &PodView) -> Decision {
        let namespace = self.pods.namespace(view.namespace());
        decide(&self.settings, view, namespace.as_deref())
    }

    /// Waits for the result of the pod's work; `None` if it is not finished within the limit.
    async fn settled(&self, uid: Arc<str>, limit: Duration) -> Option<Result<(), String>> {
        let settled = tokio::time::timeout(limit, self.handle.settled(uid));
        settled.await.ok()
    }

    /// Returns the pod, if the watch has reported it. A pod that is being deleted may be a previous one of this name.
    fn present(&self, named: &HandedOver) -> Option<Arc<PodView>> {
        let view = self.pods.get(&named.pod_namespace, &named.pod_name);
        view.filter(|view| !view.deleting && !view.ended())
    }

    /// Returns the pod, waiting until it and the labels of its namespace are known.
    async fn known(&self, handed_over: &HandedOver) -> Result<Arc<PodView>, String> {
        let mut changes = self.pods.subscribe();
        let seen = async {
            loop {
                changes.borrow_and_update();
                if let Some(view) = self.present(handed_over)
                    && self.decide(&view) != Decision::Unknown
                {
                    return Some(view);
                }
                changes.changed().await.ok()?;
            }
        };
        let seen = tokio::time::timeout(KNOWN, seen).await;
        seen.ok().flatten().ok_or_else(|| {
            format!(
                "the API server has told of no such pod of this node within {KNOWN:?}, or not of its namespace"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn read(value: &Value) -> Result<HandedOver, String> {
        HandedOver::read(value.to_string().as_bytes()).map(|(pod, _)| pod)
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,20}".prop_map(Value::from),
            "(/|\\.\\./|proc/|self/|ns/|net|\u{0}){0,8}".prop_map(Value::from),
            "[0-9a-f.:/%]{0,20}".prop_map(Value::from),
        ];
        let key = prop_oneof![
            Just("Netns".to_owned()),
            Just("IPs".to_owned()),
            Just("Address".to_owned()),
            Just("IP".to_owned()),
            ".{0,6}",
        ];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(key.clone(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// A body as other plugins send it, with one member replaced, removed or added.
    fn nearly() -> impl Strategy<Value = Value> {
        let keys = ["Netns", "PodName", "PodNamespace", "IPs", "Other"];
        let change = (
            prop::sample::select(keys.to_vec()),
            prop::option::of(any_json()),
        );
        (change, prop::option::of(any_json())).prop_map(|((key, value), address)| {
            let mut body = json!({"Netns": "/var/run/netns/x", "PodName": "web", "PodNamespace": "shop",
                "IPs": [{"Interface": 0, "Address": {"IP": "10.0.0.2", "Mask": "////AA=="}, "Gateway": ""}]});
            if let Some(address) = address {
                body["IPs"][0]["Address"]["IP"] = address;
            }
            match value {
                Some(value) => body[key] = value,
                None => _ = body.as_object_mut().unwrap().remove(key),
            }
            body
        })
    }

    /// Parsing returns a pod or an error, and so does the search for its network namespace.
    fn is_read(body: &[u8]) -> Result<(), TestCaseError> {
        match HandedOver::read(body) {
            Err(why) => prop_assert!(!why.is_empty()),
            Ok((pod, addresses)) => {
                prop_assert!(addresses.len() <= pod.ips.len());
                let announced = Sandboxes::of_node().announce_path("uid", Path::new(&pod.netns));
                // No path generated here is that of a pod.
                prop_assert!(announced.is_err_and(|why| why.contains(&pod.netns)));
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_pod_or_a_reason(body in prop::collection::vec(any::<u8>(), 0..200)) {
            is_read(&body)?;
        }

        #[test]
        fn any_json_is_a_pod_or_a_reason(body in prop_oneof![any_json(), nearly()]) {
            is_read(body.to_string().as_bytes())?;
        }

        #[test]
        fn a_body_that_is_cut_or_changed_is_a_pod_or_a_reason(
            body in nearly(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()
        ) {
            let mut body = body.to_string().into_bytes();
            let at = at.index(body.len());
            match cut {
                true => body.truncate(at),
                false => body[at] = byte,
            }
            is_read(&body)?;
        }
    }

    /// The form that Istio's plugin sends.
    #[test]
    fn the_form_of_other_plugins() {
        let body = json!({"Netns": "/var/run/netns/x", "PodName": "web", "PodNamespace": "shop", "IPs": [
            {"Interface": 0, "Address": {"IP": "10.0.0.2", "Mask": "////AA=="}, "Gateway": "10.0.0.1"},
            {"Interface": null, "Address": {"IP": "::ffff:10.0.0.3", "Mask": ""}, "Gateway": ""},
            {"Address": {"IP": "fd00::2", "Mask": "//////////8AAAAAAAAAAA=="}}]});
        let read_ = read(&body).unwrap();
        let addresses: Vec<String> = read_
            .addresses()
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(addresses, ["10.0.0.2", "10.0.0.3", "fd00::2"]);
        assert_eq!(
            (read_.name().as_str(), read_.netns.as_str()),
            ("shop/web", "/var/run/netns/x")
        );
        let mut none = body;
        none["IPs"] = json!(null);
        assert_eq!(read(&none).unwrap().addresses(), Ok(Vec::new()));
    }

    /// Go's decoder matches keys in any case.
    #[test]
    fn keys_in_any_case() {
        let body = json!({"netns": "/var/run/netns/x", "podName": "web", "PODNAMESPACE": "shop",
            "ips": [{"address": {"ip": "10.0.0.2", "mask": "////AA=="}}]});
        let (pod, addresses) = HandedOver::read(body.to_string().as_bytes()).unwrap();
        assert_eq!(
            (pod.name().as_str(), pod.netns.as_str()),
            ("shop/web", "/var/run/netns/x")
        );
        assert_eq!(addresses, ["10.0.0.2".parse::<IpAddr>().unwrap()]);
        let mut bad = body;
        bad["ips"][0]["address"]["ip"] = json!(1);
        let why = HandedOver::read(bad.to_string().as_bytes()).unwrap_err();
        assert!(why.contains("IPs[0]: Address: IP: invalid type"), "{why}");
    }

    /// Such a pod is not known; the answer is that of Istio's agent.
    #[test]
    fn members_that_are_absent_or_null_are_empty() {
        for body in [
            json!(null),
            json!({}),
            json!({"Netns": null, "PodName": null, "IPs": null}),
        ] {
            let pod = read(&body).unwrap();
            assert_eq!(
                (pod.name().as_str(), pod.netns.as_str()),
                ("/", ""),
                "{body}"
            );
        }
        let body = json!({"Netns": "", "PodName": "web", "PodNamespace": "shop", "IPs": [
            null, {}, {"Address": null}, {"Address": {"IP": null}}, {"Address": {"IP": ""}},
            {"Address": {"IP": "10.0.0.2"}}]});
        let pod = read(&body).unwrap();
        assert_eq!(pod.addresses(), Ok(vec!["10.0.0.2".parse().unwrap()]));
    }

    #[test]
    fn what_cannot_be_read() {
        for body in [
            json!([]),
            json!("web"),
            json!({"Netns": 1, "PodName": "a", "PodNamespace": "b"}),
            json!({"Netns": "a", "PodName": "a", "PodNamespace": "b", "IPs": "10.0.0.1"}),
            json!({"Netns": "a", "PodName": "a", "PodNamespace": "b", "IPs": [[]]}),
            json!({"Netns": "a", "PodName": "a", "PodNamespace": "b", "IPs": [{"Address": "10.0.0.1"}]}),
        ] {
            assert!(read(&body).is_err(), "{body}");
        }
        let bad = json!({"Netns": "a", "PodName": "a", "PodNamespace": "b",
            "IPs": [{"Address": {"IP": "10.0.0.1/24"}}]});
        assert!(read(&bad).unwrap_err().contains("10.0.0.1/24"));
    }
}
