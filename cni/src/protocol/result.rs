//! The previous result: the interfaces and addresses that the primary plugin configured. The plugin reads the addresses
//! and passes the result on.

use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use serde_json::{Map, Value, json};

use super::error::CniError;
use super::result_form;
use super::version::{Family, SUPPORTED, family};

/// One address of a previous result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultAddress {
    /// Address and prefix length.
    pub address: ipnet::IpNet,
    /// The gateway as text; empty if there is none.
    pub gateway: String,
    /// Index into the result's interfaces.
    pub interface: Option<i64>,
}

/// A validated `prevResult`. All its content is passed on, including unknown keys.
#[derive(Debug, Clone, PartialEq)]
pub struct PrevResult {
    value: Map<String, Value>,
}

impl PrevResult {
    /// Reads `prevResult` from a configuration, if there is one.
    ///
    /// # Errors
    /// Code 999: it is not an object, its version is missing or of another result
    /// family than `version` (that of the configuration), or a member is invalid.
    pub fn read(config: &Map<String, Value>, version: &str) -> Result<Option<Self>, CniError> {
        let value = match config.get("prevResult") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(value)) => value.clone(),
            Some(_) => return Err(bad("it must be an object")),
        };
        let own = value.get("cniVersion").or_else(|| value.get("cniversion"));
        let Some(own) = own.and_then(Value::as_str) else {
            return Err(bad("it has no cniVersion"));
        };
        if !super::same_family(own, version) {
            return Err(bad(&format!(
                "its cniVersion {own:?} has another result format than the configuration's \
                 {version:?}"
            )));
        }
        result_form::check(&value).map_err(|reason| bad(&reason))?;
        Ok(Some(Self { value }))
    }

    /// Returns the addresses in order.
    ///
    /// # Errors
    /// Code 999: an address is not `address/prefix`.
    pub fn addresses(&self) -> Result<Vec<ResultAddress>, CniError> {
        let mut found = Vec::new();
        for ip in self
            .value
            .get("ips")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            found.push(address(ip, "address")?);
        }
        for key in ["ip4", "ip6"] {
            if let Some(ip) = self.value.get(key).filter(|ip| !ip.is_null()) {
                found.push(address(ip, "ip")?);
            }
        }
        Ok(found)
    }

    /// Returns the result to print: the previous one in the configuration's version.
    ///
    /// # Errors
    /// Code 999 if that version cannot express it, see [`convert`].
    pub fn into_result(self, version: &str) -> Result<Value, CniError> {
        convert(Value::Object(self.value), version)
    }
}

fn bad(reason: &str) -> CniError {
    CniError::internal(format!(
        "could not parse prevResult: {reason}; the container runtime must pass the result of the \
         plugin before this one in the configuration's version"
    ))
}

fn network(text: Option<&Value>) -> Result<ipnet::IpNet, CniError> {
    let text = text.and_then(Value::as_str).unwrap_or_default();
    let error = |_| bad(&format!("{text:?} is not an address with a prefix length"));
    text.parse().map_err(error)
}

fn address(ip: &Value, key: &str) -> Result<ResultAddress, CniError> {
    Ok(ResultAddress {
        address: network(ip.get(key))?,
        gateway: ip
            .get("gateway")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        interface: ip.get("interface").and_then(Value::as_i64),
    })
}

/// Returns the result of a plugin without a previous one: only the version, and for 0.3.0 to 0.4.0 the `dns` object,
/// which those versions require.
///
/// # Errors
/// Code 999 for 0.1.0 and 0.2.0, whose results need an address.
pub fn empty(version: &str) -> Result<Value, CniError> {
    convert(json!({ "cniVersion": version }), version)
}

/// Converts a result of 0.3.0 or later to the form of `version` and keeps
/// unknown keys with a value. 0.1.0 and 0.2.0 convert to each other only.
///
/// To 0.3/0.4: every address gets its `version`, `dns` is always present, and
/// an interface loses `mtu`, `socketPath` and `pciID`. To 1.0 and later: an
/// address loses `version`.
///
/// # Errors
/// Code 999: an unknown version; a result without address in 0.1.0 or 0.2.0; an
/// address that is not `address/prefix`.
pub fn convert(result: Value, version: &str) -> Result<Value, CniError> {
    let Value::Object(mut result) = result else {
        return Err(CniError::internal("a CNI result must be a JSON object"));
    };
    // `null` is an absent member.
    result.retain(|_, value| !value.is_null());
    for key in ["interfaces", "ips", "routes"] {
        objects(&mut result, key).for_each(|object| object.retain(|_, value| !value.is_null()));
    }
    // Some runtimes spell the key in lower case; two spellings would
    // contradict each other.
    let lower = result.remove("cniversion");
    let own = result
        .get("cniVersion")
        .or(lower.as_ref())
        .and_then(Value::as_str);
    let from = own.and_then(family);
    let to = family(version);
    match (from, to) {
        (Some(Family::V020), Some(Family::V020)) if has_ip(&result) => {}
        (_, Some(Family::V020)) => {
            return Err(CniError::internal(format!(
                "cannot convert the result to {version}: no valid IP addresses; use a network \
                 configuration of cniVersion 0.3.0 or later"
            )));
        }
        (Some(Family::V040 | Family::V100), Some(Family::V040)) => down_to_040(&mut result)?,
        (Some(Family::V040), Some(Family::V100)) => up_to_100(&mut result),
        (Some(Family::V100), Some(Family::V100)) => {}
        _ => {
            return Err(CniError::internal(format!(
                "cannot convert a result of version {own:?} to {version:?}; supported are {}",
                SUPPORTED.join(", ")
            )));
        }
    }
    result.insert("cniVersion".into(), version.into());
    Ok(Value::Object(result))
}

fn has_ip(result: &Map<String, Value>) -> bool {
    ["ip4", "ip6"]
        .iter()
        .any(|key| result.get(*key).is_some_and(Value::is_object))
}

fn objects<'a>(
    result: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let list = result.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn down_to_040(result: &mut Map<String, Value>) -> Result<(), CniError> {
    for ip in objects(result, "ips") {
        let net = network(ip.get("address"))?;
        let version = if net.addr().is_ipv4() { "4" } else { "6" };
        ip.insert("version".into(), version.into());
        if ip.get("gateway").and_then(Value::as_str) == Some("") {
            ip.remove("gateway");
        }
    }
    for interface in objects(result, "interfaces") {
        for newer in ["mtu", "socketPath", "pciID"] {
            interface.remove(newer);
        }
    }
    result.entry("dns").or_insert_with(|| json!({}));
    Ok(())
}

fn up_to_100(result: &mut Map<String, Value>) {
    for ip in objects(result, "ips") {
        ip.remove("version");
    }
    if result
        .get("dns")
        .and_then(Value::as_object)
        .is_some_and(Map::is_empty)
    {
        result.remove("dns");
    }
}

/// Formats JSON as the reference library does: four spaces, no newline at the end.
#[must_use]
pub fn print(value: &Value) -> String {
    let mut bytes = Vec::new();
    let formatter = PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Writing a value to memory does not fail; the compact form is equivalent.
    match value
        .serialize(&mut serializer)
        .map(|()| String::from_utf8(bytes))
    {
        Ok(Ok(text)) => text,
        _ => value.to_string(),
    }
}

#[cfg(test)]
#[path = "result_tests.rs"]
mod tests;
