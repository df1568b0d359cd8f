//! The objects that the watch decodes: pods, and the metadata of namespaces.

use super::{NamespaceView, PodView, Pods, Writer};
use crate::journal::cut;
use crate::journal::watch::Objects;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use weir_cni::json;

/// A watched kind of object, and its updates of the store.
pub(super) trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + for<'de> Deserialize<'de> + Send + 'static
{
    /// Accepted kinds of an object in an event, and of a list.
    const KINDS: &'static [&'static str];
    const LISTS: &'static [&'static str];

    /// Returns the kind as it appears in the journal.
    fn objects(node: &str, is_ambient: bool) -> Objects;
    /// Returns the number of known objects.
    fn known(pods: &Pods) -> usize;
    /// Begins a list.
    fn begin(writer: &mut Writer);
    /// Adds or updates the object.
    ///
    /// # Errors
    /// The object cannot be decoded; names the object and the reason. The state known before is kept.
    fn apply(self, writer: &mut Writer) -> Result<(), String>;
    /// Removes the object.
    fn delete(&self, writer: &mut Writer);
    /// Completes the list.
    fn complete(writer: &mut Writer);
    /// Returns `kind` of the object; empty in a list, where the list has the kind.
    fn found(&self) -> &str;
    /// Checks that the object is of the requested kind.
    ///
    /// # Errors
    /// It is of another kind; names that kind.
    fn check(&self) -> Result<(), String> {
        let found = self.found();
        match found.is_empty() || Self::KINDS.contains(&found) {
            true => Ok(()),
            false => Err(format!(
                "an object of kind {} instead of {}",
                cut(found),
                Self::KINDS.join(" or ")
            )),
        }
    }
    /// Returns the reason why some objects are not known, if any.
    fn left_out(writer: &Writer) -> Option<String>;
}

/// A pod. A pod that cannot be decoded is a value too: it must not block the decoding of other pods.
#[derive(Clone, Debug)]
pub(super) struct SeenPod {
    kind: String,
    meta: ObjectMeta,
    view: Result<PodView, String>,
}

/// The metadata of a namespace.
#[derive(Clone, Debug)]
pub(super) struct SeenNamespace {
    kind: String,
    meta: ObjectMeta,
}

/// Reads name, namespace, UID and version; the rest is most of the metadata.
fn meta(value: &Value) -> ObjectMeta {
    let text = |name: &str| {
        let found = value.get("metadata").and_then(|m| m.get(name));
        found.and_then(Value::as_str).map(str::to_owned)
    };
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..ObjectMeta::default()
    }
}

impl<'de> Deserialize<'de> for SeenPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let meta = meta(&value);
        let kind = value.get("kind").and_then(Value::as_str);
        let kind = kind.unwrap_or_default().to_owned();
        let named = |text: &Option<String>| text.as_ref().is_some_and(|t| !t.is_empty());
        let is_named = named(&meta.name) && named(&meta.namespace);
        let view = PodView::from_value(&value);
        let seen = Self { kind, meta, view };
        match is_named || seen.check().is_err() {
            true => Ok(seen),
            false => Err(serde::de::Error::custom(
                "an object without name is not a pod",
            )),
        }
    }
}

impl<'de> Deserialize<'de> for SeenNamespace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Object {
            #[serde(default)]
            kind: String,
            #[serde(deserialize_with = "json::object")]
            metadata: Kept,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kept {
            name: String,
            resource_version: Option<String>,
            labels: Option<BTreeMap<String, String>>,
            annotations: Option<BTreeMap<String, String>>,
        }
        let Object { kind, metadata } = json::object(deserializer)?;
        let meta = ObjectMeta {
            name: Some(metadata.name),
            resource_version: metadata.resource_version,
            labels: metadata.labels,
            annotations: metadata.annotations,
            ..ObjectMeta::default()
        };
        Ok(Self { kind, meta })
    }
}

impl Watched for SeenPod {
    const KINDS: &'static [&'static str] = &["Pod"];
    const LISTS: &'static [&'static str] = &["PodList"];

    fn found(&self) -> &str {
        &self.kind
    }

    fn objects(node: &str, _: bool) -> Objects {
        Objects::Pods(node.into())
    }

    fn known(pods: &Pods) -> usize {
        pods.len()
    }

    fn begin(writer: &mut Writer) {
        writer.begin();
    }

    fn apply(self, writer: &mut Writer) -> Result<(), String> {
        match self.view {
            Ok(view) => writer.apply(view),
            Err(why) => {
                let (namespace, name) = names(&self.meta);
                writer.keep(namespace, name, self.meta.uid.as_deref());
                Err(format!(
                    "pod {namespace}/{name} cannot be read: {why}; what was known of it before, if anything, is kept"
                ))
            }
        }
    }

    fn delete(&self, writer: &mut Writer) {
        let (namespace, name) = names(&self.meta);
        writer.delete(namespace, name, self.meta.uid.as_deref());
    }

    fn complete(writer: &mut Writer) {
        writer.complete();
    }

    fn left_out(writer: &Writer) -> Option<String> {
        writer.left_out().map(str::to_owned)
    }
}

fn names(meta: &ObjectMeta) -> (&str, &str) {
    (
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

/// A server without support for `PartialObjectMetadata` answers with whole objects.
impl Watched for SeenNamespace {
    const KINDS: &'static [&'static str] = &["PartialObjectMetadata", "Namespace"];
    const LISTS: &'static [&'static str] = &["PartialObjectMetadataList", "NamespaceList"];

    fn found(&self) -> &str {
        &self.kind
    }

    fn objects(_: &str, needed: bool) -> Objects {
        Objects::Namespaces { needed }
    }

    fn known(pods: &Pods) -> usize {
        pods.namespaces()
    }

    fn begin(writer: &mut Writer) {
        writer.begin_namespaces();
    }

    fn apply(self, writer: &mut Writer) -> Result<(), String> {
        writer.apply_namespace(NamespaceView {
            name: self.meta.name.unwrap_or_default(),
            labels: self.meta.labels.unwrap_or_default(),
            annotations: self.meta.annotations.unwrap_or_default(),
        })
    }

    fn delete(&self, writer: &mut Writer) {
        writer.delete_namespace(names(&self.meta).1);
    }

    fn complete(writer: &mut Writer) {
        writer.complete_namespaces();
    }

    fn left_out(writer: &Writer) -> Option<String> {
        writer.namespaces_left_out().map(str::to_owned)
    }
}

impl Resource for SeenPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

impl Resource for SeenNamespace {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Namespace".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "namespaces".into()
    }

    /// Requests `PartialObjectMetadata`.
    fn metadata_api() -> bool {
        true
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_a_pod_that_cannot_be_read_the_last_state_is_kept() {
        let (pods, mut writer) = Pods::new();
        let good = json!({"metadata":
            {"name": "a", "namespace": "b", "uid": "1", "resourceVersion": "7"}});
        let mut bad = good.clone();
        bad["spec"] = json!({"containers": 3});
        let mut apply = |value: &Value| {
            let seen: SeenPod = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(seen.meta().resource_version.as_deref(), Some("7"));
            let applied = seen.apply(&mut writer);
            (applied, pods.get("b", "a").is_some())
        };
        // Of one that was never read nothing is known.
        let (applied, is_known) = apply(&bad);
        assert!(applied.is_err() && !is_known);
        assert_eq!(apply(&good), (Ok(()), true));
        let (applied, is_known) = apply(&bad);
        let error = applied.unwrap_err();
        assert!(
            error.contains("b/a") && error.contains("spec.containers"),
            "{error}"
        );
        assert!(is_known);
        // Another pod of that name: the one that was known is gone.
        bad["metadata"]["uid"] = "2".into();
        assert!(!apply(&bad).1);
        assert_eq!(apply(&good), (Ok(()), true));
        // A list that has it.
        bad["metadata"]["uid"] = "1".into();
        for (listed, is_there) in [(Some(&bad), true), (None, false)] {
            SeenPod::begin(&mut writer);
            if let Some(value) = listed {
                let seen: SeenPod = serde_json::from_value(value.clone()).unwrap();
                assert!(seen.apply(&mut writer).is_err());
            }
            SeenPod::complete(&mut writer);
            assert_eq!(pods.get("b", "a").is_some(), is_there, "{listed:?}");
        }
        for no_pod in [json!({}), json!({"metadata": {"name": "a"}}), json!(1)] {
            assert!(serde_json::from_value::<SeenPod>(no_pod).is_err());
        }
    }

    #[test]
    fn the_end_of_a_pod_is_not_that_of_a_later_one_of_its_name() {
        let (pods, mut writer) = Pods::new();
        let seen = |uid: &str| -> SeenPod {
            let metadata =
                json!({"name": "a", "namespace": "b", "uid": uid, "resourceVersion": "7"});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let is_there = || pods.get("b", "a").is_some();
        seen("2").apply(&mut writer).unwrap();
        seen("1").delete(&mut writer);
        assert!(is_there());
        seen("2").delete(&mut writer);
        assert!(!is_there());
        SeenPod::begin(&mut writer);
        seen("2").apply(&mut writer).unwrap();
        seen("1").delete(&mut writer);
        SeenPod::complete(&mut writer);
        assert!(is_there());
    }

    #[test]
    fn an_object_of_another_kind_is_none_of_these() {
        let of = |kind: Option<&str>| {
            let mut value = json!({"metadata": {"name": "a", "namespace": "b"}});
            if let Some(kind) = kind {
                value["kind"] = kind.into();
            }
            let pod: SeenPod = serde_json::from_value(value.clone()).unwrap();
            let namespace: SeenNamespace = serde_json::from_value(value).unwrap();
            (pod.check(), namespace.check())
        };
        // In a list.
        assert_eq!(of(None), (Ok(()), Ok(())));
        assert!(matches!(of(Some("Pod")), (Ok(()), Err(_))));
        for kind in ["Namespace", "PartialObjectMetadata"] {
            assert!(matches!(of(Some(kind)), (Err(_), Ok(()))), "{kind}");
        }
        let (pod, namespace) = of(Some("ConfigMap"));
        for (error, expected) in [(pod, "of Pod"), (namespace, "Namespace")] {
            let error = error.unwrap_err();
            assert!(
                error.contains("ConfigMap") && error.contains(expected),
                "{error}"
            );
        }
        // It is told as what it is, whatever it lacks.
        let node = json!({"kind": "Node", "metadata": {"name": "node1"}});
        assert!(
            serde_json::from_value::<SeenPod>(node)
                .unwrap()
                .check()
                .is_err()
        );
    }

    #[test]
    fn a_namespace_by_its_metadata() {
        let (pods, mut writer) = Pods::new();
        let value = json!({"kind": "PartialObjectMetadata", "metadata": {
            "name": "shop", "resourceVersion": "8", "labels": {"a": "b"}, "annotations": null,
            "managedFields": [{}]}});
        let seen: SeenNamespace = serde_json::from_value(value).unwrap();
        seen.clone().apply(&mut writer).unwrap();
        assert_eq!(pods.namespace("shop").unwrap().labels["a"], "b");
        seen.delete(&mut writer);
        assert!(pods.namespace("shop").is_none());
    }
}
