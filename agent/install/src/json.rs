//! JSON of files that other programs write and read: numbers are kept as written.
//!
//! `serde_json::Value` would convert large and fractional numbers to doubles.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Nesting down to which values are decoded; deeper ones stay as they are written. What this installer looks at is not that deep.
const DEPTH: usize = 128;
/// Maximum nesting, as in Go's `encoding/json`, by which runtimes decode; deeper files are rejected.
const MAX_DEPTH: usize = 10_000;

/// A JSON value; objects keep the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`, `true`, `false`, a number, a string with an unpaired surrogate, or a value nested deeper than is decoded, as written.
    Literal(String),
    /// A string, decoded.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object with unique keys.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses one value. If a key occurs twice, the last value counts, as in Go.
    ///
    /// # Errors
    /// The error in the text and its position.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Does not recurse.
        let raw: &RawValue = serde_json::from_str(text).map_err(|e| e.to_string())?;
        match nesting(text) > MAX_DEPTH {
            true => Err(format!("is nested more than {MAX_DEPTH} deep")),
            false => Self::from_raw(raw, DEPTH),
        }
    }

    fn from_raw(raw: &RawValue, depth: usize) -> Result<Self, String> {
        fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
            serde_json::from_str(text).map_err(|e| e.to_string())
        }
        let text = raw.get();
        let inner = |raw: &RawValue| match depth {
            0 => Ok(Self::Literal(raw.get().to_owned())),
            depth => Self::from_raw(raw, depth - 1),
        };
        Ok(match text.as_bytes().first() {
            Some(b'{') => {
                let Pairs(pairs) = read(text)?;
                let pairs = pairs.into_iter().map(|(k, v)| Ok((k, inner(v)?)));
                Self::Object(pairs.collect::<Result<_, String>>()?)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = read(text)?;
                Self::Array(items.into_iter().map(inner).collect::<Result<_, _>>()?)
            }
            // Go replaces an unpaired surrogate by another character; the intended one is unknown.
            Some(b'"') => read(text).map_or_else(|_| Self::Literal(text.to_owned()), Self::String),
            _ => Self::Literal(text.to_owned()),
        })
    }

    /// Builds a string.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::String(text.to_owned())
    }

    /// Builds `true` or `false`.
    #[must_use]
    pub fn bool(value: bool) -> Self {
        Self::Literal(value.to_string())
    }

    /// Returns the value of a key, if this is an object that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(pairs) = self else {
            return None;
        };
        pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// Returns the text, if this is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the items, if this is an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Sorts the keys of every object bytewise.
    #[must_use]
    pub fn sorted(self) -> Self {
        match self {
            Self::Array(items) => Self::Array(items.into_iter().map(Self::sorted).collect()),
            Self::Object(pairs) => {
                let sorted: BTreeMap<_, _> =
                    pairs.into_iter().map(|(k, v)| (k, v.sorted())).collect();
                Self::Object(sorted.into_iter().collect())
            }
            other => other,
        }
    }

    /// Formats the value with two spaces per level and a final newline, as `jq` and Go do.
    #[must_use]
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.print(&mut out, 1);
        out.push('\n');
        out
    }

    fn print(&self, out: &mut String, level: usize) {
        let quote = |text: &str| serde_json::Value::from(text).to_string();
        let indent = |out: &mut String, level: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", level));
        };
        match self {
            Self::Literal(text) => out.push_str(text),
            Self::String(text) => out.push_str(&quote(text)),
            Self::Array(items) if items.is_empty() => out.push_str("[]"),
            Self::Object(pairs) if pairs.is_empty() => out.push_str("{}"),
            Self::Array(items) => {
                out.push('[');
                for (n, item) in items.iter().enumerate() {
                    out.push_str(if n == 0 { "" } else { "," });
                    indent(out, level);
                    item.print(out, level + 1);
                }
                indent(out, level - 1);
                out.push(']');
            }
            Self::Object(pairs) => {
                out.push('{');
                for (n, (key, value)) in pairs.iter().enumerate() {
                    out.push_str(if n == 0 { "" } else { "," });
                    indent(out, level);
                    // Writing to a String does not fail.
                    let _ = write!(out, "{}: ", quote(key));
                    value.print(out, level + 1);
                }
                indent(out, level - 1);
                out.push('}');
            }
        }
    }
}

/// Returns the greatest nesting of arrays and objects in a valid text.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The members of an object, in the order of the text.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Self::Value, A::Error> {
                let mut pairs: Vec<(String, &RawValue)> = Vec::new();
                let mut places = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    let place = places
                        .get(&key)
                        .and_then(|place: &usize| pairs.get_mut(*place));
                    if let Some((_, old)) = place {
                        *old = value;
                    } else {
                        places.insert(key.clone(), pairs.len());
                        pairs.push((key, value));
                    }
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_order_are_kept() {
        let text = "{\n  \"z\": 12345678901234567890123,\n  \"a\": [\n    1.10,\n    -0,\n    1E+2\n  ],\n  \"e\": {},\n  \"l\": [],\n  \"s\": \"<&>\\n\\\"\",\n  \"n\": null\n}\n";
        let json = Json::parse(text).unwrap();
        assert_eq!(json.pretty(), text);
        let Json::Object(pairs) = json.sorted() else {
            panic!()
        };
        let keys: Vec<_> = pairs.iter().map(|(k, _)| k.as_str()).collect();
        assert_eq!(keys, ["a", "e", "l", "n", "s", "z"]);
    }

    #[test]
    fn half_of_a_surrogate_pair_stays_as_it_is_written() {
        let text = "{\n  \"a\": \"caf\\ud83d\",\n  \"b\": \"caf\u{e9}\"\n}\n";
        let json = Json::parse(text).unwrap();
        assert_eq!(json.pretty(), text);
        assert!(json.get("a").unwrap().as_str().is_none());
    }

    #[test]
    fn the_last_of_a_key_counts() {
        let json = Json::parse(r#" {"a": 1, "b": 2, "a": 3} "#).unwrap();
        assert_eq!(json, Json::parse(r#"{"a": 3, "b": 2}"#).unwrap());
    }

    /// Runtimes load it. Brackets in a string do not count.
    #[test]
    fn deep_values_stay_as_they_are_written() {
        for depth in [127, 128, 129, 1000, 9_999] {
            let deep = format!("{}\"[{{\\\"[\"{}", "[ ".repeat(depth), "]".repeat(depth));
            let text = format!("{{\"name\": \"n\", \"x\": {deep}}}");
            let json = Json::parse(&text).unwrap();
            assert_eq!(json.get("name").unwrap().as_str(), Some("n"));
            let printed = json.clone().sorted().pretty();
            assert_eq!(Json::parse(&printed).unwrap().pretty(), printed, "{depth}");
            let packed = |text: &str| text.replace([' ', '\n'], "");
            assert_eq!(packed(&printed), packed(&text), "{depth}");
        }
    }

    #[test]
    fn nonsense() {
        let deep = "[".repeat(200_000);
        let deep_but_whole = format!("{}{}", "[".repeat(10_001), "]".repeat(10_001));
        for text in [
            "",
            "{",
            "{a: 1}",
            "01",
            "[1,]",
            "\"a",
            "1 2",
            "\u{feff}{}",
            "\"\u{1}\"",
            r#""\uqqqq""#,
            &deep,
            &deep_but_whole,
        ] {
            let shown: String = text.chars().take(20).collect();
            assert!(Json::parse(text).is_err(), "{shown}");
        }
    }
}
