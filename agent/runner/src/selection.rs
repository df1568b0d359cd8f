//! The annotation by which a pod selects networks, `k8s.v1.cni.cncf.io/networks`.

use serde::Deserialize;

use super::error::{Error, Result};
use weir_cni::json::{self, Object};
use weir_cni::protocol::{is_kubernetes_name, validate_interface_name};

/// One selected network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Selection {
    /// Namespace of the NetworkAttachmentDefinition; `None`: the pod's.
    pub namespace: Option<String>,
    /// Name of the NetworkAttachmentDefinition, and of the network.
    #[serde(deserialize_with = "json::nullable")]
    pub name: String,
    /// The interface in the pod; `None`: the name that Multus generates.
    pub interface: Option<String>,
}

pub(crate) const SOURCE: &str = "k8s.v1.cni.cncf.io/networks";

/// Parses either form: `NAMESPACE/NAME@INTERFACE`, separated by commas, or a JSON array of objects with `name`,
/// `namespace` and `interface`. Other keys of an object are for plugins that assign addresses and are ignored.
pub(crate) fn parse(annotation: &str) -> Result<Vec<Selection>> {
    let selections = match annotation.contains(['[', '{', '"']) {
        true => objects(annotation)?,
        false => flat(annotation),
    };
    for selection in &selections {
        selection.validate()?;
    }
    Ok(selections)
}

fn flat(text: &str) -> Vec<Selection> {
    let filled = |text: &str| Some(text.trim().to_owned()).filter(|t| !t.is_empty());
    let one = |item: &str| {
        let (namespace, rest) = match item.split_once('/') {
            Some((namespace, rest)) => (Some(namespace), rest),
            None => (None, item),
        };
        let (name, interface) = match rest.split_once('@') {
            Some((name, interface)) if !interface.contains('@') => (name, Some(interface)),
            _ => (rest, None),
        };
        Selection {
            namespace: namespace.and_then(filled),
            name: name.trim().to_owned(),
            interface: interface.and_then(filled),
        }
    };
    text.split(',').map(str::trim).map(one).collect()
}

fn objects(text: &str) -> Result<Vec<Selection>> {
    let read: serde_json::Result<Vec<Object<Selection>>> = serde_json::from_str(text);
    let items = read.map_err(|e| Error::config(SOURCE, format!("it must be a JSON array: {e}")))?;
    let filled = |text: Option<String>| text.filter(|t| !t.is_empty());
    let one = |Object(item): Object<Selection>| Selection {
        namespace: filled(item.namespace),
        interface: filled(item.interface),
        ..item
    };
    Ok(items.into_iter().map(one).collect())
}

impl Selection {
    fn validate(&self) -> Result<()> {
        for name in self.namespace.iter().chain([&self.name]) {
            if !is_kubernetes_name(name) {
                let reason = format!(
                    "{name:?} is not a name of a Kubernetes object; write NAMESPACE/NAME@INTERFACE"
                );
                return Err(Error::config(SOURCE, reason));
            }
        }
        let interface = self.interface.as_deref().map(validate_interface_name);
        let interface = interface.unwrap_or(Ok(()));
        interface.map_err(|error| Error::config(SOURCE, error.msg))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(namespace: Option<&str>, name: &str, interface: Option<&str>) -> Selection {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Selection {
            namespace: own(namespace),
            name: name.to_owned(),
            interface: own(interface),
        }
    }

    #[test]
    fn both_forms_say_the_same() {
        let wanted = [
            of(None, "lan", None),
            of(Some("default"), "istio-cni", None),
            of(Some("a"), "b", Some("net7")),
        ];
        assert_eq!(
            parse("lan, default/istio-cni,a/b@net7").unwrap(),
            wanted.to_vec()
        );
        let text = r#"[{"name": "lan"}, {"name": "istio-cni", "namespace": "default"},
                       {"name": "b", "namespace": "a", "interface": "net7", "mac": "02:00:00:00:00:01"}]"#;
        assert_eq!(parse(text).unwrap(), wanted.to_vec());
    }

    #[test]
    fn what_selects_nothing() {
        for bad in [
            "",
            "lan,",
            "a/b/c",
            "lan@a@b",
            "lan@an-interface-with-a-long-name",
            "LAN",
            "../lan",
            "[",
            "[1]",
            "[[\"lan\"]]",
            "{\"name\": \"lan\"}",
            "[{}]",
            "[{\"name\": 1}]",
            "[{\"name\": \"../x\"}]",
        ] {
            let error = parse(bad).expect_err(bad).to_string();
            assert!(error.contains(SOURCE), "{bad}: {error}");
        }
    }
}
