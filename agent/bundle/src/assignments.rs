//! Names with values, in whatever text: JSON, also broken or inside of a string, YAML, `name=value`.

use super::secrets::{CUT, Spans};

/// What kind of text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Every value of a secret's name is one.
    Configuration,
    /// Sentences: "cannot read the token: permission denied" gives none away.
    Prose,
}

/// In names of secrets.
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
/// And in names of a configuration, where a value that is cut in vain does little harm.
const MAYBE: [&str; 4] = ["key", "auth", "kubeconfig", "cookie"];

/// Whether a value of this name is a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

fn may_be_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    is_secret(name) || MAYBE.iter().any(|word| lower.contains(word))
}

/// The values of secrets' names, without quotes.
pub(super) fn values(text: &str) -> Vec<String> {
    let found = spans(text, Form::Configuration);
    let values = found
        .iter()
        .filter_map(|(start, end)| text.get(*start..*end));
    values.map(str::to_owned).collect()
}

/// Where the values of secrets' names are.
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

/// Whether a value that begins here has no quotes of its own and follows a name with quotes.
pub(super) fn is_bare_in_json(text: &str, start: usize) -> bool {
    let before = text.get(..start).unwrap_or_default().trim_end();
    let name = before.strip_suffix(':').map(str::trim_end);
    name.is_some_and(|name| name.ends_with('"') && !name.ends_with("\\\""))
}

/// The next run of characters that names have.
fn next_name(text: &str, at: usize) -> Option<(usize, usize)> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let rest = text.get(at..)?;
    let start = at + rest.find(is_of_name)?;
    let rest = text.get(start..)?;
    let length = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
    Some((start, start + length))
}

/// A path where one is expected, and values that are no texts.
fn is_harmless(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let of_path = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
    let names_file = ["file", "path", "dir", "kubeconfig", "mount"];
    let is_path = value.starts_with('/')
        && value.chars().all(of_path)
        && names_file.iter().any(|word| name.ends_with(word));
    is_path || matches!(value, "" | "null" | "true" | "false" | CUT)
}

/// The value that follows a name, without its quotes.
fn value(text: &str, name_end: usize, form: Form) -> Option<(usize, usize)> {
    let rest = text.get(name_end..)?;
    // The quote that ends the name, which is escaped inside of a string.
    let after = rest
        .trim_start_matches('\\')
        .trim_start_matches(['"', '\'']);
    let after = after.trim_start_matches([' ', '\t', '\r', '\n']);
    let (spaced, after) = match (after.strip_prefix(':'), after.strip_prefix('=')) {
        (Some(after), _) if !after.starts_with("//") => (after.starts_with(' '), after),
        (_, Some(after)) if !after.starts_with('=') => (false, after),
        _ => return None,
    };
    // A value may stand on the next line only in JSON, whose names have quotes.
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

/// Up to the quote that has no more backslashes before it than the first one had.
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

/// Up to the bracket that closes the first one.
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

/// A value without quotes; after a scheme of RFC 9110 also the credential.
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
