//! Parses a pod from the text of a manifest.

use super::Pod;
use crate::config::{InputError, said};
use serde_json::Value;

const ACCEPTED: &str = "one Pod as YAML or JSON, as from: kubectl get pod NAME -o yaml";

impl Pod {
    /// Parses a manifest in YAML or JSON: a `Pod`, or a `List` of one. `source_name` names the source in
    /// errors.
    ///
    /// # Errors
    /// The text is neither YAML nor JSON, holds several documents or pods, is of another kind, or a field
    /// has the wrong type.
    pub fn from_manifest(text: &str, source_name: &str) -> Result<Self, InputError> {
        let error = |reason: String| InputError::whole(source_name, reason, ACCEPTED);
        let document = document(text).map_err(error)?;
        if !matches!(
            document.get("apiVersion"),
            None | Some(Value::Null | Value::String(_))
        ) {
            return Err(error("has an apiVersion that is no text".to_owned()));
        }
        match document.get("kind") {
            Some(Value::String(kind)) if kind == "Pod" => Self::from_value(&document, source_name),
            Some(Value::String(kind)) if kind == "List" || kind == "PodList" => {
                let pod = only_item(&document).map_err(error)?;
                Self::from_value(pod, source_name)
            }
            Some(kind) => Err(error(format!("is of kind {}", said(kind)))),
            None => Err(error("names no kind".to_owned())),
        }
    }
}

/// Parses the only document of the text; ignores empty documents.
fn document(text: &str) -> Result<Value, String> {
    let mut documents: Vec<Value> = if text.trim_start().starts_with('{') {
        vec![serde_json::from_str(text).map_err(|e| format!("is not JSON: {}", said(&e)))?]
    } else {
        serde_saphyr::from_multiple(text).map_err(|e| format!("is not YAML: {}", said(&e)))?
    };
    documents.retain(|document| !document.is_null());
    match documents.pop() {
        None => Err("is empty".to_owned()),
        Some(document) if documents.is_empty() => Ok(document),
        Some(_) => Err(format!("holds {} documents", documents.len() + 1)),
    }
}

fn only_item(list: &Value) -> Result<&Value, String> {
    let items = list
        .get("items")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let [item] = items else {
        return Err(format!("is a list of {} items", items.len()));
    };
    match item.get("kind") {
        // The items of a typed list do not repeat their kind.
        None => Ok(item),
        Some(kind) if kind == "Pod" => Ok(item),
        Some(kind) => Err(format!("is a list of one item of kind {}", said(kind))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{Container, SecurityContext};

    const POD: &str = "\
kind: Pod
metadata:
  name: web
  namespace: shop
  annotations: {sidecar.istio.io/status: ''}
spec:
  hostNetwork: false
  containers:
  - name: istio-proxy
    args: [proxy, sidecar]
    env:
    - {name: A, value: '1'}
    - {name: B, valueFrom: {fieldRef: {fieldPath: x}}}
    securityContext: {runAsUser: 1337}
status:
  podIP: 10.0.0.2
  podIPs: [{ip: 10.0.0.2}, {ip: 'fd00::2'}]
";

    #[test]
    fn yaml_json_and_lists_give_the_same_pod() {
        let pod = Pod::from_manifest(POD, "pod.yaml").unwrap();
        assert_eq!(pod.metadata.name, "web");
        let proxy = &pod.spec.containers[0];
        assert_eq!(proxy.env[0].value.as_deref(), Some("1"));
        assert_eq!(proxy.env[1].value, None);
        assert_eq!(proxy.security_context.unwrap().run_as_user, Some(1337));
        assert_eq!(pod.status.pod_ips.len(), 2);

        let mut json = serde_json::to_value(&pod).unwrap();
        assert_eq!(serde_json::from_value::<Pod>(json.clone()).unwrap(), pod);
        json["kind"] = "Pod".into();
        assert_eq!(
            Pod::from_manifest(&json.to_string(), "pod.json").unwrap(),
            pod
        );
        let list = serde_json::json!({"kind": "List", "items": [json]});
        assert_eq!(
            Pod::from_manifest(&list.to_string(), "list.json").unwrap(),
            pod
        );

        let framed = format!("---\n{POD}---\n");
        assert_eq!(Pod::from_manifest(&framed, "pod.yaml").unwrap(), pod);
    }

    #[test]
    fn other_manifests_are_refused_by_name() {
        let two = format!("{POD}---\n{POD}");
        for (text, words) in [
            (two.as_str(), "holds 2 documents"),
            ("kind: Deployment\n", "is of kind \"Deployment\""),
            ("metadata: {}\n", "names no kind"),
            ("apiVersion: [v1]\nkind: Pod\n", "apiVersion"),
            ("", "is empty"),
            ("just text\n", "names no kind"),
            ("kind: List\nitems: []\n", "a list of 0 items"),
            (
                "kind: List\nitems: [{kind: Service}]\n",
                "one item of kind \"Service\"",
            ),
            ("kind: [", "is not YAML"),
            ("{\"kind\": ", "is not JSON"),
        ] {
            let error = Pod::from_manifest(text, "pod.yaml")
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("pod.yaml: ") && error.contains(words),
                "{error}"
            );
        }
    }

    #[test]
    fn a_wrong_type_is_named_by_its_path() {
        let manifest = |rest: &str| format!("kind: Pod\n{rest}\n");
        for (rest, path, words) in [
            (
                "metadata: {annotations: {sidecar.istio.io/inject: true}}",
                "metadata.annotations[\"sidecar.istio.io/inject\"]",
                "boolean `true`, expected a string",
            ),
            (
                "metadata: {labels: {a: 1}}",
                "metadata.labels.a",
                "integer `1`, expected a string",
            ),
            ("metadata: []", "metadata", "expected an object"),
            (
                "spec: {containers: {}}",
                "spec.containers",
                "map, expected a sequence",
            ),
            (
                "spec: {initContainers: [{}, {env: [{name: A, value: 5}]}]}",
                "spec.initContainers[1].env[0].value",
                "integer `5`",
            ),
            (
                "spec: {containers: [{securityContext: {runAsUser: 'x'}}]}",
                "spec.containers[0].securityContext.runAsUser",
                "string \"x\", expected i64",
            ),
            (
                "spec: {hostNetwork: 'no'}",
                "spec.hostNetwork",
                "expected a boolean",
            ),
            ("status: {podIP: x}", "status.podIP", "not an IP address"),
        ] {
            let error = Pod::from_manifest(&manifest(rest), "p.yaml")
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(&format!("p.yaml: {path}: ")), "{error}");
            assert!(error.contains(words), "{error}");
            assert!(error.contains("has to be put in quotes"), "{error}");
        }
    }

    #[test]
    fn null_is_absence() {
        let text = "kind: Pod\nmetadata: {labels: null}\nspec: {containers: null}\nstatus: null\n";
        assert_eq!(Pod::from_manifest(text, "p.yaml").unwrap(), Pod::default());
        let text = "kind: Pod\nmetadata: {name: null, annotations: {a: , b: c}, ownerReferences: null}\n\
            spec: {hostNetwork: null, containers: [{name: null, args: null, env: [{name: A, value: null}], \
            securityContext: {runAsUser: null}}, {securityContext: null}]}\n\
            status: {podIP: '', podIPs: [{ip: null}, {}]}\n";
        let pod = Pod::from_manifest(text, "p.yaml").unwrap();
        let annotations: Vec<_> = pod.metadata.annotations.iter().collect();
        assert_eq!(
            annotations,
            [(&"a".into(), &String::new()), (&"b".into(), &"c".into())]
        );
        let mut bare = pod.clone();
        bare.metadata.annotations.clear();
        bare.spec.containers.clear();
        assert_eq!(bare, Pod::default());
        let [first, second] = pod.spec.containers.as_slice() else {
            panic!("{pod:?}")
        };
        assert_eq!(first.env[0].value, None);
        assert_eq!(first.security_context, Some(SecurityContext::default()));
        assert_eq!(*second, Container::default());
    }
}
