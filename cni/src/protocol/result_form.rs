//! Validates the form of a previous result before it is used.
//!
//! Keys that no version of the specification defines are not checked; `null` counts as absent. The reference plugin
//! decodes the whole result first, and fails where this check fails.
//!
//! Reference: CNI specification 1.1.0, section 5, "ADD Success"; 0.2.0, "Result".

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value};

/// The required form of a key's value.
enum Form {
    Text,
    Texts,
    WholeNumber,
    /// An address; empty text counts as absent.
    Address,
    /// An address with a prefix length, which is required.
    Network,
    Object(&'static [Member]),
    Objects(&'static [Member]),
}
use Form::{Address, Network, Object, Objects, Text, Texts, WholeNumber};

type Member = (&'static str, Form);

const ROUTES: Member = ("routes", Objects(&[("dst", Network), ("gw", Address)]));
const IP: Form = Object(&[("ip", Network), ("gateway", Address), ROUTES]);
const RESULT: [Member; 6] = [
    (
        "interfaces",
        Objects(&[("name", Text), ("mac", Text), ("sandbox", Text)]),
    ),
    (
        "ips",
        Objects(&[
            ("address", Network),
            ("gateway", Address),
            ("interface", WholeNumber),
        ]),
    ),
    ROUTES,
    ("ip4", IP),
    ("ip6", IP),
    (
        "dns",
        Object(&[
            ("domain", Text),
            ("nameservers", Texts),
            ("search", Texts),
            ("options", Texts),
        ]),
    ),
];

/// Checks all members; the error names the first invalid one and its required form.
pub(super) fn check(result: &Map<String, Value>) -> Result<(), String> {
    members(result, "", &RESULT)
}

fn members(of: &Map<String, Value>, path: &str, forms: &[Member]) -> Result<(), String> {
    for (key, form) in forms {
        let path = match path {
            "" => (*key).to_owned(),
            path => format!("{path}.{key}"),
        };
        let value = of.get(*key).unwrap_or(&Value::Null);
        if !value.is_null() || matches!(form, Network) {
            one(value, &path, form)?;
        }
    }
    Ok(())
}

fn one(value: &Value, path: &str, form: &Form) -> Result<(), String> {
    let is = |text: fn(&str) -> bool| value.as_str().is_some_and(text);
    let must = |fits: bool, what: &str| match fits {
        true => Ok(()),
        false => Err(format!("{path} must be {what}")),
    };
    let no = |what: &str| Err(format!("{path} is {value}, which is not {what}"));
    match form {
        Text => must(value.is_string(), "a string"),
        WholeNumber => must(value.as_i64().is_some(), "a whole number"),
        Address if is(|text| text.is_empty() || text.parse::<IpAddr>().is_ok()) => Ok(()),
        Address => no("an address"),
        Network if is(is_network) => Ok(()),
        Network => no("an address with a prefix length"),
        Object(forms) => match value.as_object() {
            Some(object) => members(object, path, forms),
            None => must(false, "an object"),
        },
        Texts | Objects(_) => {
            let item = match form {
                Objects(forms) => &Object(forms),
                _ => &Text,
            };
            let Some(items) = value.as_array() else {
                return must(false, "an array");
            };
            let mut items = items.iter().enumerate();
            items.try_for_each(|(n, value)| one(value, &format!("{path}[{n}]"), item))
        }
    }
}

/// `ipnet` alone accepts leading zeros in the address, which the reference plugin refuses: some programs read them as octal.
fn is_network(text: &str) -> bool {
    let address = text.split('/').next().unwrap_or_default();
    address.parse::<IpAddr>().is_ok() && text.parse::<IpNet>().is_ok()
}
