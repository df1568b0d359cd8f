//! Reads objects whose keys may have any case, as Go's `encoding/json` does. Programs written in Go accept any case from
//! each other, so a wrong case goes unnoticed.
//!
//! A key in the exact spelling of the field takes precedence. Of several others the last in bytewise order counts; Go
//! uses the last in the text.

use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::{Map, Value};

use super::{Misfit, Object, track};

/// A struct that is read from an object with keys in any case. Members that are structs need [`object`],
/// [`object_or_default`] or [`list`] to accept the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnyCase<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for AnyCase<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(members) = Object::deserialize(deserializer)?;
        from_map(members).map(AnyCase).map_err(D::Error::custom)
    }
}

/// Reads a struct from these members.
///
/// # Errors
/// A member does not fit; the error names it and the reason.
pub fn from_map<'de, T: Deserialize<'de>>(members: Map<String, Value>) -> Result<T, Misfit> {
    track(Folded(members))
}

/// Renames members to the spelling of `keys`.
pub fn rename(members: &mut Map<String, Value>, keys: &[&str]) {
    let named = |member: &str| {
        let is_exact = keys.contains(&member);
        let mut keys = keys.iter().filter(|key| !is_exact && folds(member, key));
        keys.next().map(|key| (member.to_owned(), *key))
    };
    let renamed: Vec<_> = members.keys().filter_map(|m| named(m)).collect();
    let exact: Vec<&str> = keys
        .iter()
        .copied()
        .filter(|k| members.contains_key(*k))
        .collect();
    for (member, key) in renamed {
        let value = members.remove(&member).unwrap_or_default();
        if !exact.contains(&key) {
            members.insert(key.to_owned(), value);
        }
    }
}

/// `strings.EqualFold` for a key of ASCII letters: two letters outside ASCII fold to ASCII letters.
#[must_use]
pub fn folds(member: &str, key: &str) -> bool {
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    member.chars().map(fold).eq(key.chars().map(fold))
}

struct Folded(Map<String, Value>);

impl<'de> Deserializer<'de> for Folded {
    type Error = serde_json::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        rename(&mut self.0, fields);
        Value::Object(self.0).deserialize_struct(name, fields, visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        Value::Object(self.0).deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

super::members!(AnyCase);

#[cfg(test)]
mod tests {
    use super::super::from_str;
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Outer {
        task_kind: u8,
        #[serde(deserialize_with = "object_or_default")]
        inner: Inner,
        #[serde(deserialize_with = "list")]
        many: Vec<Inner>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Inner {
        b: u8,
    }

    fn read(text: &str) -> Result<Outer, String> {
        from_str::<AnyCase<Outer>>(text)
            .map(|AnyCase(v)| v)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn keys_have_any_case_at_every_depth() {
        let expected = Outer {
            task_kind: 1,
            inner: Inner { b: 2 },
            many: vec![Inner { b: 3 }, Inner { b: 4 }],
        };
        for text in [
            r#"{"taskKind": 1, "inner": {"b": 2}, "many": [{"b": 3}, {"b": 4}]}"#,
            r#"{"TASKKIND": 1, "Inner": {"B": 2}, "MANY": [{"B": 3}, {"b": 4}], "other": []}"#,
            r#"{"taſkKind": 1, "inner": {"b": 2}, "many": [{"b": 3}, {"b": 4}]}"#,
            r#"{"TaskKind": 9, "taskKind": 1, "taskkind": 8, "inner": {"B": 9, "b": 2}, "many": [{"b": 3}, {"b": 4}]}"#,
        ] {
            assert_eq!(read(text).as_ref(), Ok(&expected), "{text}");
        }
        assert_eq!(
            read(r#"{"Inner": null, "Many": null}"#),
            Ok(Outer::default())
        );
        // Bytewise last.
        assert_eq!(
            read(r#"{"TASKKIND": 1, "taskkind": 2}"#).unwrap().task_kind,
            2
        );
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (text, words) in [
            ("[]", "an object"),
            (r#"{"TASKKIND": "x"}"#, "taskKind: invalid type"),
            (r#"{"Inner": []}"#, "inner: invalid type"),
            (r#"{"Many": [{}, {"B": -1}]}"#, "many[1]: b: invalid value"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
