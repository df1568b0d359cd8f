//! `CNI_ARGS`: the runtime's information about the pod.

use super::error::CniError;

/// The recognised keys of `CNI_ARGS`; an absent one is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CniArgs {
    /// `K8S_POD_NAME`.
    pub pod_name: String,
    /// `K8S_POD_NAMESPACE`.
    pub pod_namespace: String,
    /// `K8S_POD_INFRA_CONTAINER_ID`.
    pub infra_container_id: String,
    /// `K8S_POD_UID`.
    pub pod_uid: String,
}

impl CniArgs {
    /// Parses `K=V` pairs separated by `;`. Empty text is valid: then the container is not a Kubernetes pod.
    ///
    /// # Errors
    /// Code 999: a pair without exactly one `=`; an unknown key unless
    /// `IgnoreUnknown` is `1` or `true`, at any position in the text.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        let mut args = Self::default();
        let mut ignore_unknown = false;
        let mut unknown = Vec::new();
        if text.is_empty() {
            return Ok(args);
        }
        for pair in text.split(';') {
            let Some((key, value)) = pair.split_once('=').filter(|(_, v)| !v.contains('=')) else {
                return Err(CniError::internal(format!(
                    "CNI_ARGS: {pair:?} is not one KEY=VALUE pair; the container runtime must \
                     pass pairs separated by semicolons"
                )));
            };
            match key {
                "IgnoreUnknown" => ignore_unknown = boolean(value)?,
                "K8S_POD_NAME" => args.pod_name = value.to_owned(),
                "K8S_POD_NAMESPACE" => args.pod_namespace = value.to_owned(),
                "K8S_POD_INFRA_CONTAINER_ID" => args.infra_container_id = value.to_owned(),
                "K8S_POD_UID" => args.pod_uid = value.to_owned(),
                _ => unknown.push(key),
            }
        }
        if !unknown.is_empty() && !ignore_unknown {
            return Err(CniError::internal(format!(
                "CNI_ARGS: unknown keys {}; the container runtime must add IgnoreUnknown=1 or leave them out",
                unknown
                    .iter()
                    .map(|key| format!("{key:?}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            )));
        }
        Ok(args)
    }

    /// True if the runtime named a pod.
    pub(crate) fn is_kubernetes_pod(&self) -> bool {
        !self.pod_name.is_empty() && !self.pod_namespace.is_empty()
    }
}

fn boolean(value: &str) -> Result<bool, CniError> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(CniError::internal(format!(
            "CNI_ARGS: IgnoreUnknown is {value:?}; it must be 1, true, 0 or false"
        ))),
    }
}

/// Checks that `text` is usable in an API path as the name of a pod or a namespace: 1 to 253 letters, digits, `-`, `.` and `_`,
/// and neither `.` nor `..`. Whether an object can have the name is left to the API server, as in upstream's plugin.
///
/// # Errors
/// Code 999, naming `what` and the text: a name with a slash would request another object.
pub(crate) fn validate_path_segment(what: &str, text: &str) -> Result<(), CniError> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if matches!(text.len(), 1..=253) && text.bytes().all(is_allowed) && !matches!(text, "." | "..")
    {
        return Ok(());
    }
    Err(CniError::internal(format!(
        "CNI_ARGS: {what} {text:?} is not a Kubernetes name (letters, digits, '-' and '.', at most 253); the container \
         runtime must pass the name of an existing object"
    )))
}

/// True if a Kubernetes object can have this name: an RFC 1123 subdomain.
#[must_use]
pub fn is_kubernetes_name(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.len() <= 253
        && edge(text.chars().next())
        && edge(text.chars().next_back())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys() {
        let text = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;\
                    K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=u;FOO=bar";
        let args = CniArgs::parse(text).unwrap();
        assert_eq!(
            (args.pod_name.as_str(), args.pod_namespace.as_str()),
            ("p", "ns")
        );
        assert_eq!(
            (args.infra_container_id.as_str(), args.pod_uid.as_str()),
            ("c", "u")
        );
        assert!(args.is_kubernetes_pod());
        assert!(!CniArgs::parse("").unwrap().is_kubernetes_pod());
    }

    #[test]
    fn unknown_keys_need_leave() {
        assert!(CniArgs::parse("FOO=bar").unwrap_err().msg.contains("FOO"));
        assert!(CniArgs::parse("FOO=bar;IgnoreUnknown=true").is_ok());
        assert!(CniArgs::parse("FOO=bar;IgnoreUnknown=0").is_err());
        assert!(CniArgs::parse("IgnoreUnknown=maybe").is_err());
    }

    #[test]
    fn exactly_one_equals_sign() {
        for text in ["K8S_POD_NAME", "K8S_POD_NAME=a=b", "K8S_POD_NAME=a;", ";"] {
            assert_eq!(CniArgs::parse(text).unwrap_err().code, 999, "{text}");
        }
    }

    #[test]
    fn names_that_would_leave_the_path() {
        let long = "a".repeat(254);
        for good in [
            "a",
            "web-0",
            "a.b",
            "1",
            "testPod",
            "a_b",
            "...",
            &long[1..],
        ] {
            validate_path_segment("pod", good).unwrap();
        }
        for bad in [
            "", "a/b", ".", "..", "a?b", "a b", "a%2f", "a\r", "ä", &long,
        ] {
            assert!(validate_path_segment("pod", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_objects() {
        for good in ["a", "web-0", "a.b", "1"] {
            assert!(is_kubernetes_name(good), "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a_b", "a/b", &"a".repeat(254)] {
            assert!(!is_kubernetes_name(bad), "{bad}");
        }
    }
}
