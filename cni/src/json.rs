//! Reads structs from objects only.
//!
//! A struct that derives `Deserialize` also accepts an array, whose items are its fields in the order of the
//! source. If every field has a default, `[]` would be a complete configuration. This module accepts only objects, in
//! JSON and in YAML; an array is an error with its position.

pub mod any_case;

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use serde_path_to_error::{Path, Segment};

/// A struct that is read only from an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members(PhantomData))
    }
}

struct Members<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, members: M) -> Result<Self::Value, M::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}

/// Reads a JSON text that is one object.
///
/// # Errors
/// The text is not JSON or not an object, or a member does not fit; the error names it by path and line.
pub fn from_str<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    from_slice(text.as_bytes())
}

/// Like [`from_str`], from bytes.
///
/// # Errors
/// As [`from_str`].
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = read(&mut deserializer).map_err(|e| match e.path.is_empty() {
        true => e.reason,
        false => serde_json::Error::custom(e),
    })?;
    deserializer.end()?;
    Ok(value)
}

/// Like [`from_str`], from a parsed value.
///
/// # Errors
/// The value is not an object, or a member does not fit.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Misfit> {
    read(value)
}

/// A member that does not fit its type.
#[derive(Debug)]
pub struct Misfit {
    /// Path of the member, such as `spec.containers[0].args`; empty for the whole value.
    pub path: String,
    /// The actual and the expected type. The text may quote the member.
    pub reason: serde_json::Error,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => self.reason.fmt(f),
            path => write!(f, "{path}: {}", self.reason),
        }
    }
}

fn read<'de, T, D>(deserializer: D) -> Result<T, Misfit>
where
    T: Deserialize<'de>,
    D: Deserializer<'de, Error = serde_json::Error>,
{
    track(deserializer).map(|Object(value)| value)
}

/// Deserializes and records the path of a member that does not fit.
fn track<'de, T, D>(deserializer: D) -> Result<T, Misfit>
where
    T: Deserialize<'de>,
    D: Deserializer<'de, Error = serde_json::Error>,
{
    serde_path_to_error::deserialize(deserializer).map_err(|e| Misfit {
        path: text_of(e.path()),
        reason: e.into_inner(),
    })
}

fn text_of(path: &Path) -> String {
    let mut text = String::new();
    let is_plain = |key: &str| key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    for segment in path {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("[{index}]")),
            Segment::Map { key } if !is_plain(key) => text.push_str(&format!("[{key:?}]")),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                let dot = if text.is_empty() { "" } else { "." };
                text.push_str(dot);
                text.push_str(key);
            }
            // A key that is not text. The last segment is the one being read when the text ended.
            Segment::Unknown => {}
        }
    }
    text
}

/// Functions for members that are structs, read with this wrapper: `#[serde(deserialize_with = "json::object")]`.
macro_rules! members {
    ($wrapper:ident) => {
        /// Reads a member that is a struct.
        ///
        /// # Errors
        /// It is not an object, or a member does not fit.
        pub fn object<'de, T, D>(deserializer: D) -> Result<T, D::Error>
        where
            T: Deserialize<'de>,
            D: Deserializer<'de>,
        {
            $wrapper::deserialize(deserializer).map(|$wrapper(value)| value)
        }

        /// Like `object`, with `null` as the default.
        ///
        /// # Errors
        /// It is neither `null` nor an object, or a member does not fit.
        pub fn object_or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
        where
            T: Default + Deserialize<'de>,
            D: Deserializer<'de>,
        {
            let object = Option::<$wrapper<T>>::deserialize(deserializer)?;
            Ok(object.map(|$wrapper(value)| value).unwrap_or_default())
        }

        /// Reads a member that is a list of structs; `null` is the empty list.
        ///
        /// # Errors
        /// It is not a list, an item is not an object, or a member does not fit.
        pub fn list<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
        where
            T: Deserialize<'de>,
            D: Deserializer<'de>,
        {
            let items = Option::<Vec<$wrapper<T>>>::deserialize(deserializer)?;
            let items = items.unwrap_or_default().into_iter();
            Ok(items.map(|$wrapper(value)| value).collect())
        }
    };
}
use members;

members!(Object);

/// Like [`object`]; `null` counts as absent.
///
/// # Errors
/// It is neither `null` nor an object.
pub fn optional<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let object = Option::<Object<T>>::deserialize(deserializer)?;
    Ok(object.map(|Object(value)| value))
}

/// Reads a member for which `null` means the default, as the API server writes it.
///
/// # Errors
/// It is neither `null` nor a `T`.
pub fn nullable<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Returns the first of these members that exists and is not an object; `null` counts as absent.
pub fn no_object<'k>(members: &Map<String, Value>, keys: &[&'k str]) -> Option<&'k str> {
    let is_other = |key: &&&str| {
        let value = members.get(**key);
        !matches!(value, None | Some(Value::Null | Value::Object(_)))
    };
    keys.iter().find(is_other).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::{PodAnswer, PodQuestion};
    use crate::pod::{Namespace, Pod};
    use crate::protocol::CniError;
    use proptest::prelude::*;
    use weir_runner::NetworkList;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Outer {
        a: u8,
        #[serde(deserialize_with = "object")]
        inner: Inner,
        #[serde(deserialize_with = "optional")]
        maybe: Option<Inner>,
        #[serde(deserialize_with = "list")]
        many: Vec<Inner>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Inner {
        b: u8,
    }

    #[test]
    fn objects_are_read_and_arrays_are_not() {
        let read: Outer =
            from_str(r#"{"a": 1, "inner": {"b": 2}, "maybe": {"b": 3}, "many": [{"b": 4}, {}]}"#)
                .unwrap();
        let inner = |b| Inner { b };
        let (maybe, many) = (Some(inner(3)), vec![inner(4), inner(0)]);
        assert_eq!(
            (read.a, read.inner, read.maybe, read.many),
            (1, inner(2), maybe, many)
        );
        assert_eq!(
            from_str::<Outer>(r#"{"maybe": null, "many": null}"#).unwrap(),
            Outer::default()
        );
        for text in [
            "[]",
            "[1]",
            r#"{"inner": []}"#,
            r#"{"maybe": [7]}"#,
            r#"{"many": [[7]]}"#,
            r#"{"many": {"b": 1}}"#,
        ] {
            let error = from_str::<Outer>(text).unwrap_err().to_string();
            assert!(error.contains("line 1 column"), "{text}: {error}");
        }
        for (text, path) in [
            (r#"{"many": [{}, {"b": "x"}]}"#, "many[1].b: "),
            (r#"{"maybe": {"b": 256}}"#, "maybe.b: "),
            (r#"{"inner": [7]}"#, "inner: "),
        ] {
            let error = from_str::<Outer>(text).unwrap_err().to_string();
            assert!(error.starts_with(path), "{text}: {error}");
            let value: Value = serde_json::from_str(text).unwrap();
            let error = from_value::<Outer>(&value).unwrap_err().to_string();
            assert!(error.starts_with(path), "{text}: {error}");
        }
        let error = from_slice::<Outer>(b"{} x").unwrap_err().to_string();
        assert!(error.contains("trailing characters"), "{error}");
        let yaml: Object<Outer> = serde_saphyr::from_str("inner: {b: 5}\nmany:\n- b: 6\n").unwrap();
        assert_eq!((yaml.0.inner, yaml.0.many), (inner(5), vec![inner(6)]));
        assert!(serde_saphyr::from_str::<Object<Outer>>("[]\n").is_err());
        assert!(serde_saphyr::from_str::<Object<Outer>>("inner: []\n").is_err());
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u32>().prop_map(Value::from),
            "[a-z0-9.:/*]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec(("[a-z]{1,8}", inner), 0..4)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn an_array_is_no_configuration(items in prop::collection::vec(json(), 0..40)) {
            let text = Value::from(items).to_string();
            prop_assert!(NetworkList::from_list(&text, "-").is_err());
            prop_assert!(NetworkList::from_single(&text, "-").is_err());
            prop_assert!(Pod::from_manifest(&text, "-").is_err());
            prop_assert!(from_str::<Pod>(&text).is_err());
            prop_assert!(from_str::<Namespace>(&text).is_err());
            prop_assert!(from_str::<PodQuestion>(&text).is_err());
            prop_assert!(from_str::<PodAnswer>(&text).is_err());
            prop_assert!(from_str::<CniError>(&text).is_err());
        }
    }
}
