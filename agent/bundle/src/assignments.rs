//! Finds names with values in any text: JSON (also truncated, or inside a string), YAML, `name=value`.

use super::secrets::{CUT, Spans};

/// The kind of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Configuration: every value with the name of a secret is a secret.
    Configuration,
    /// Sentences: "cannot read the token: permission denied" contains no secret.
    Prose,
}

/// Parts of the names of secrets.
const SECRET: [&str; 13] = [
    "token",
    "passw",
    "passphrase",
    "secret",
    "credential",
    "apikey",
    "api_key",
    "api-key",
    "private",
    "bearer",
    "jwt",
    "authorization",
    "client-key",
];
/// Further parts of names in configurations, where removing a harmless value does little damage.
const MAYBE: [&str; 4] = ["key", "auth", "kubeconfig", "cookie"];

/// True if a value with this name is a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

fn may_be_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    is_secret(name) || MAYBE.iter().any(|word| lower.contains(word))
}

/// Returns the values with names of secrets, without quotes.
pub(super) fn values(text: &str) -> Vec<String> {
    let found = spans(text, Form::Configuration);
    let values = found
        .iter()
        .filter_map(|(start, end)| text.get(*start..*end));
    values.map(str::to_owned).collect()
}

/// Returns the positions of the values with names of secrets.
pub(super) fn spans(text: &str, form: Form) -> Spans {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some((start, end)) = next_name(text, at) {
        let name = text.get(start..end).unwrap_or_default();
        at = end;
        let quoted = text.get(..start).is_some_and(|t| t.ends_with(['"', '\'']));
        let is_meant = match form == Form::Configuration && quoted {
            true => may_be_secret(name),
            false => is_secret(name),
        };
        if !is_meant {
            continue;
        }
        if let Some((start, end)) = value(text, end, form) {
            let value = text.get(start..end).unwrap_or_default();
            if !is_harmless(name, value) {
                found.push((start, end));
            }
            at = end.max(at);
        }
    }
    found
}

/// True if the value at `start` is unquoted and follows a quoted name.
pub(super) fn is_bare_in_json(text: &str, start: usize) -> bool {
    let before = text.get(..start).unwrap_or_default().trim_end();
    let name = before.strip_suffix(':').map(str::trim_end);
    name.is_some_and(|name| name.ends_with('"') && !name.ends_with("\\\""))
}

/// Returns the next sequence of characters that are valid in names.
fn next_name(text: &str, at: usize) -> Option<(usize, usize)> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let rest = text.get(at..)?;
    let start = at + rest.find(is_of_name)?;
    let rest = text.get(start..)?;
    let length = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
    Some((start, start + length))
}

/// True for a path where one is expected, and for values that are not text.
fn is_harmless(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let of_path = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
    let names_file = ["file", "path", "dir", "kubeconfig", "mount"];
    let is_path = value.starts_with('/')
        && value.chars().all(of_path)
        && names_file.iter().any(|word| name.ends_with(word));
    is_path || matches!(value, "" | "null" | "true" | "false" | CUT)
}

/// Returns the position of the value after a name, without quotes.
fn value(text: &str, name_end: usize, form: Form) -> Option<(usize, usize)> {
    let rest = text.get(name_end..)?;
    // The quote that ends the name; it is escaped inside a string.
    let after = rest
        .trim_start_matches('\\')
        .trim_start_matches(['"', '\'']);
    let after = after.trim_start_matches([' ', '\t', '\r', '\n']);
    let (spaced, after) = match (after.strip_prefix(':'), after.strip_prefix('=')) {
        (Some(after), _) if !after.starts_with("//") => (after.starts_with(' '), after),
        (_, Some(after)) if !after.starts_with('=') => (false, after),
        _ => return None,
    };
    // Only in JSON, whose names are quoted, may the value be on the next line.
    let in_json = rest.starts_with(['"', '\\']);
    let blanks: &[char] = if in_json {
        &[' ', '\t', '\r', '\n']
    } else {
        &[' ', '\t']
    };
    let after = after.trim_start_matches(blanks);
    let start = text.len() - after.len();
    let opener = after.len() - after.trim_start_matches('\\').len();
    match after.get(opener..)?.chars().next()? {
        quote @ ('"' | '\'') => {
            let start = start + opener + 1;
            let length = quoted(text.get(start..)?, quote, opener);
            Some((start, start + length))
        }
        '{' | '[' if opener == 0 => Some((start, start + nested(after))),
        _ => {
            let length = bare(after);
            let value = after.get(..length)?;
            let is_word = value
                .chars()
                .all(|c| c.is_alphabetic() || "-'.()".contains(c));
            let is_prose = form == Form::Prose && spaced && is_word;
            (!is_prose).then_some((start, start + length))
        }
    }
}

/// Returns the length up to the closing quote, which has as many backslashes before it as the opening one.
fn quoted(text: &str, quote: char, depth: usize) -> usize {
    let mut slashes = 0;
    for (at, c) in text.char_indices() {
        match c {
            '\\' => slashes += 1,
            c if c == quote && slashes <= depth => return at - slashes,
            _ => slashes = 0,
        }
    }
    text.len()
}

/// Returns the length up to the bracket that matches the first one.
fn nested(text: &str) -> usize {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => in_string = !in_string,
            '{' | '[' if !in_string => depth += 1,
            '}' | ']' if !in_string => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of an unquoted value, including the credential after an authentication scheme of RFC 9110.
fn bare(text: &str) -> usize {
    let end = |text: &str| {
        if text.starts_with(CUT) {
            return CUT.len();
        }
        let found = text.find(|c: char| c.is_whitespace() || "\"',;&}]\\".contains(c));
        found.unwrap_or(text.len())
    };
    let first = end(text);
    let scheme = text.get(..first).unwrap_or_default().to_ascii_lowercase();
    match text.get(first..).and_then(|rest| rest.strip_prefix(' ')) {
        Some(rest) if ["bearer", "basic"].contains(&scheme.as_str()) => first + 1 + end(rest),
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, form: Form) -> Vec<&str> {
        let spans = spans(text, form);
        spans.iter().map(|(a, b)| &text[*a..*b]).collect()
    }

    #[test]
    fn configurations() {
        for (text, wanted) in [
            (r#"{"k8s_auth_token": "abc"}"#, "abc"),
            (r#"{"token" : "a\"b c", "x": 1}"#, r#"a\"b c"#),
            ("{\"Password\":\n  \"abc\"", "abc"),
            (
                r#"{"secret": {"a": "}", "b": [1]}, "x": 1}"#,
                r#"{"a": "}", "b": [1]}"#,
            ),
            (r#"{"secret": ["a", "b"]"#, r#"["a", "b"]"#),
            (r#"{"token": "abc"#, "abc"),
            (r#"{"pin_secret": 12345}"#, "12345"),
            (r#"{"etcd_key": "abc"}"#, "abc"),
            (r#"{"kubeconfig": "apiVersion: v1\n"}"#, r"apiVersion: v1\n"),
            (r#""{\"token\": \"abc\"}""#, "abc"),
            (r#""{\\\"token\\\":\\\"abc\\\"}""#, "abc"),
            ("    token: abc\n    x: y", "abc"),
            ("password: 'a b'", "a b"),
            ("--token=abc --x", "abc"),
            ("?access_token=abc&x=y", "abc"),
            ("Authorization: Bearer abc\n", "Bearer abc"),
        ] {
            assert_eq!(found(text, Form::Configuration), [wanted], "{text}");
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            r#"{"kubeconfig": "/etc/cni/net.d/istio-kubeconfig"}"#,
            r#"{"etcd_key_file": "/etc/key.pem", "token": null, "auth": false}"#,
            "directory of token and ca.crt",
            "/var/run/secrets/kubernetes.io: x",
            "token\nx: y",
            "token:\nx: y",
            "secret://x",
            "token == x",
        ] {
            assert!(
                found(text, Form::Configuration).is_empty(),
                "{text}: {:?}",
                found(text, Form::Configuration)
            );
        }
    }

    #[test]
    fn sentences() {
        for text in [
            "cannot read the token: permission denied",
            "the secret: none",
            "key=abc \"auth\": \"x\"",
        ] {
            assert!(found(text, Form::Prose).is_empty(), "{text}");
        }
        for (text, wanted) in [
            ("token=abc", "abc"),
            ("token: abc123", "abc123"),
            ("said {\"token\": \"abc\"}", "abc"),
        ] {
            assert_eq!(found(text, Form::Prose), [wanted], "{text}");
        }
    }
}
