//! A value in a manifest together with its path.

use crate::config::InputError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A value, or its absence; `null` is absence, as the API server has it.
pub(super) struct Node<'a> {
    source: &'a str,
    path: String,
    value: Option<&'a Value>,
}

impl<'a> Node<'a> {
    pub(super) fn root(source: &'a str, value: &'a Value) -> Self {
        Self {
            source,
            path: String::new(),
            value: Some(value),
        }
    }

    fn child(&self, path: String, value: Option<&'a Value>) -> Self {
        Self {
            source: self.source,
            path,
            value: value.filter(|v| !v.is_null()),
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        self.value.is_none()
    }

    /// The member of that name; absent in what is absent.
    pub(super) fn get(&self, name: &str) -> Result<Self, InputError> {
        let value = self.object()?.and_then(|members| members.get(name));
        let path = if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        };
        Ok(self.child(path, value))
    }

    fn object(&self) -> Result<Option<&'a Map<String, Value>>, InputError> {
        match self.value {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(members)),
            Some(other) => Err(self.wrong(other, "an object with named fields")),
        }
    }

    /// Text; absence is empty text.
    pub(super) fn text(&self) -> Result<String, InputError> {
        match self.value {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other @ (Value::Bool(_) | Value::Number(_))) => {
                Err(self.wrong(other, &format!("text: put it in quotes, \"{other}\"")))
            }
            Some(other) => Err(self.wrong(other, "text")),
        }
    }

    /// A boolean; absence is false.
    pub(super) fn boolean(&self) -> Result<bool, InputError> {
        match self.value {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(other) => Err(self.wrong(other, "true or false")),
        }
    }

    pub(super) fn integer(&self) -> Result<Option<i64>, InputError> {
        match self.value {
            None => Ok(None),
            Some(value) => match value.as_i64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(value, "a whole number")),
            },
        }
    }

    /// An address; absent or empty text is none.
    pub(super) fn address(&self) -> Result<Option<IpAddr>, InputError> {
        let text = self.text()?;
        if text.is_empty() {
            return Ok(None);
        }
        let error =
            |_| InputError::value(self.place(), &text, "is not an IP address", "IPv4 or IPv6");
        text.parse().map(Some).map_err(error)
    }

    /// A list; absence is the empty list.
    pub(super) fn list<T>(
        &self,
        item: impl Fn(&Self) -> Result<T, InputError>,
    ) -> Result<Vec<T>, InputError> {
        let items = match self.value {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.wrong(other, "a list")),
        };
        let numbered = items.iter().enumerate();
        numbered
            .map(|(n, v)| item(&self.child(format!("{}[{n}]", self.path), Some(v))))
            .collect()
    }

    /// Labels or annotations.
    pub(super) fn texts_by_name(&self) -> Result<BTreeMap<String, String>, InputError> {
        let members = self.object()?.into_iter().flatten();
        members
            .map(|(name, value)| {
                let node = self.child(format!("{}[{name:?}]", self.path), Some(value));
                Ok((name.clone(), node.text()?))
            })
            .collect()
    }

    fn place(&self) -> String {
        let path = if self.path.is_empty() {
            "the whole"
        } else {
            &self.path
        };
        format!("{}: {path}", self.source)
    }

    fn wrong(&self, value: &Value, accepted: &str) -> InputError {
        let what = match value {
            Value::Null => "is null".to_owned(),
            Value::Bool(value) => format!("is the boolean {value}"),
            Value::Number(value) => format!("is the number {value}"),
            Value::String(value) => format!("is the text {value:?}"),
            Value::Array(_) => "is a list".to_owned(),
            Value::Object(_) => "is an object".to_owned(),
        };
        InputError::whole(self.place(), what, accepted)
    }
}
