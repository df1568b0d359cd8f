//! Validates the form of a previous result before it is used.
//!
//! Keys that no version of the specification defines are not checked; `null` counts as absent. The reference plugin
//! decodes the whole result first, and fails where this check fails.
//!
//! Reference: CNI specification 1.1.0, section 5, "ADD Success"; 0.2.0, "Result".

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value};

type Object = Map<String, Value>;
type Checked = Result<(), String>;

/// Checks all members; the error names the first invalid one and what it must be.
pub(super) fn check(result: &Object) -> Checked {
    each(result, "", "interfaces", |interface, path| {
        texts(interface, path, &["name", "mac", "sandbox"])
    })?;
    each(result, "", "ips", |ip, path| {
        network(ip, path, "address")?;
        address(ip, path, "gateway")?;
        whole_number(ip, path, "interface")
    })?;
    routes(result, "")?;
    for key in ["ip4", "ip6"] {
        if let Some(ip) = object(result, "", key)? {
            network(ip, key, "ip")?;
            address(ip, key, "gateway")?;
            routes(ip, key)?;
        }
    }
    let Some(dns) = object(result, "", "dns")? else {
        return Ok(());
    };
    texts(dns, "dns", &["domain"])?;
    for key in ["nameservers", "search", "options"] {
        let items = array(dns, "dns", key)?;
        if let Some(n) = items.iter().position(|item| !item.is_string()) {
            return Err(format!("dns.{key}[{n}] must be a string"));
        }
    }
    Ok(())
}

fn routes(of: &Object, path: &str) -> Checked {
    each(of, path, "routes", |route, path| {
        network(route, path, "dst")?;
        address(route, path, "gw")
    })
}

fn joined(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

fn member<'a>(of: &'a Object, key: &str) -> Option<&'a Value> {
    of.get(key).filter(|value| !value.is_null())
}

fn object<'a>(of: &'a Object, path: &str, key: &str) -> Result<Option<&'a Object>, String> {
    match member(of, key) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(format!("{} must be an object", joined(path, key))),
    }
}

fn array<'a>(of: &'a Object, path: &str, key: &str) -> Result<&'a [Value], String> {
    match member(of, key) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("{} must be an array", joined(path, key))),
    }
}

fn each(of: &Object, path: &str, key: &str, check: impl Fn(&Object, &str) -> Checked) -> Checked {
    for (n, item) in array(of, path, key)?.iter().enumerate() {
        let path = format!("{}[{n}]", joined(path, key));
        let item = item.as_object();
        check(
            item.ok_or_else(|| format!("{path} must be an object"))?,
            &path,
        )?;
    }
    Ok(())
}

fn texts(of: &Object, path: &str, keys: &[&str]) -> Checked {
    match keys
        .iter()
        .find(|key| member(of, key).is_some_and(|v| !v.is_string()))
    {
        Some(key) => Err(format!("{path}.{key} must be a string")),
        None => Ok(()),
    }
}

fn whole_number(of: &Object, path: &str, key: &str) -> Checked {
    match member(of, key) {
        Some(value) if value.as_i64().is_none() => {
            Err(format!("{path}.{key} must be a whole number"))
        }
        _ => Ok(()),
    }
}

/// An address with a prefix length, which is required.
fn network(of: &Object, path: &str, key: &str) -> Checked {
    let value = member(of, key).unwrap_or(&Value::Null);
    match value.as_str().map(str::parse::<IpNet>) {
        Some(Ok(_)) => Ok(()),
        _ => Err(format!(
            "{path}.{key} is {value}, which is not an address with a prefix length"
        )),
    }
}

/// An address; empty text counts as absent.
fn address(of: &Object, path: &str, key: &str) -> Checked {
    let Some(value) = member(of, key) else {
        return Ok(());
    };
    match value.as_str() {
        Some("") => Ok(()),
        Some(text) if text.parse::<IpAddr>().is_ok() => Ok(()),
        _ => Err(format!("{path}.{key} is {value}, which is not an address")),
    }
}
