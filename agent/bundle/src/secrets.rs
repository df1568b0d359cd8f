//! Removes tokens, passwords and private keys.
//!
//! Two methods complement each other. *Known* secrets (the tokens in this node's files, the passwords in this process'
//! environment) are removed wherever they appear. Text that *looks* like a secret is removed by its format: the value of a
//! name like `token`, the user part of a URL, a JSON web token, a private key. Both remove too much rather than too little.

use super::assignments::{self, Form};

/// The mark that replaces a secret.
pub(super) const CUT: &str = "(left out)";
/// The same as a JSON value.
const CUT_IN_JSON: &str = "\"(left out)\"";
/// Minimum length of a known secret: a shorter one would match unrelated text.
const SHORTEST: usize = 8;

/// Known secrets.
#[derive(Debug, Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// Adds a secret, unless it is too short or the path of a file.
    pub(super) fn know(&mut self, secret: &str) {
        let secret = secret.trim();
        let is_new = !self.0.iter().any(|k| k == secret);
        if is_new && secret.len() >= SHORTEST && !secret.starts_with('/') && secret != CUT {
            self.0.push(secret.to_owned());
            // Longest first: a secret may be part of another.
            self.0.sort_by_key(|k| std::cmp::Reverse(k.len()));
        }
    }

    /// Adds the secrets in a text, for example a kubeconfig.
    pub(super) fn know_those_in(&mut self, text: &str) {
        for value in assignments::values(text) {
            self.know(&value);
        }
        for (start, end) in users_of_urls(text) {
            let user = text.get(start..end).unwrap_or_default();
            self.know(user.split_once(':').map_or(user, |(_, password)| password));
        }
    }

    /// Adds the secrets of an environment, by the name of a variable or in its value.
    pub(super) fn know_environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        for (name, value) in variables {
            self.know_those_in(&value);
            if assignments::is_secret(&name) {
                self.know(&value);
            }
        }
    }

    /// Returns the text without secrets.
    pub(super) fn cut(&self, text: &str, form: Form) -> String {
        let mut text = text.to_owned();
        for known in &self.0 {
            if text.contains(known.as_str()) {
                text = text.replace(known.as_str(), CUT);
            }
        }
        for find in [private_keys, users_of_urls, web_tokens, bearers] {
            let found = find(&text);
            replace(&mut text, found, |_, _| CUT);
        }
        // A JSON object or number is replaced by a JSON string.
        let with = |text: &str, start| match assignments::is_bare_in_json(text, start) {
            true => CUT_IN_JSON,
            false => CUT,
        };
        let found = assignments::spans(&text, form);
        replace(&mut text, found, with);
        text
    }
}

/// Counts the values removed from a text, here or by the format of the part. A removed key and its value count once.
pub(super) fn left_out(text: &str) -> usize {
    let mark = CUT.trim_end_matches(')');
    let keys = text.matches(&format!("{CUT_IN_JSON}:")).count();
    text.matches(mark).count().saturating_sub(keys)
}

/// Begin and end of the text to remove, in bytes, in order.
pub(super) type Spans = Vec<(usize, usize)>;

fn replace(text: &mut String, mut spans: Spans, with: impl Fn(&str, usize) -> &'static str) {
    spans.retain(|(start, end)| text.get(*start..*end) != Some(CUT));
    for (start, end) in spans.iter().rev() {
        if text.is_char_boundary(*start) && text.is_char_boundary(*end) {
            let with = with(text, *start);
            text.replace_range(*start..*end, with);
        }
    }
}

/// Finds `-----BEGIN ... PRIVATE KEY-----` up to its end, or the end of the text.
fn private_keys(text: &str) -> Spans {
    const END: &str = "PRIVATE KEY-----";
    let (mut spans, mut at) = (Vec::new(), 0);
    while let Some(found) = text.get(at..).and_then(|rest| rest.find("-----BEGIN ")) {
        let start = at + found;
        let rest = text.get(start..).unwrap_or_default();
        // The first match is in the header of the key, the second in its footer.
        let mut ends = rest.match_indices(END).map(|(n, _)| n + END.len());
        let is_key = ends.next().is_some_and(|n| n < 64);
        at = match (is_key, ends.next()) {
            (true, Some(n)) => start + n,
            (true, None) => text.len(),
            (false, _) => start + 1,
        };
        if is_key {
            spans.push((start, at));
        }
    }
    spans
}

/// Finds `user:password` in `scheme://user:password@host`.
fn users_of_urls(text: &str) -> Spans {
    let user = |(found, mark): (usize, &str)| {
        let start = found + mark.len();
        let rest = text.get(start..)?;
        let end = rest.find(|c: char| c.is_whitespace() || "\"'`\\".contains(c));
        let address = rest.get(..end.unwrap_or(rest.len()))?;
        let (host, after) =
            address.split_at(address.find(['/', '?', '#']).unwrap_or(address.len()));
        let user = match host.rsplit_once('@') {
            Some((user, _)) => user.len(),
            // A password that contains a slash: the text after the colon is not a port.
            None => {
                let port = host.rsplit_once(':')?.1;
                let is_port = port.bytes().all(|b| b.is_ascii_digit() || b == b']');
                let in_path = after.rfind('@').filter(|_| !is_port)?;
                host.len() + in_path
            }
        };
        (user > 0).then_some((start, start + user))
    };
    text.match_indices("://").filter_map(user).collect()
}

/// Iterates over the words with their positions.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let mut at = 0;
    text.split(move |c: char| !is_of_word(c))
        .map(move |word| {
            let start = at;
            // Skip the separators, which may have more than one byte.
            at += word.len();
            at += text
                .get(at..)
                .and_then(|rest| rest.chars().next())
                .map_or(0, char::len_utf8);
            (start, word)
        })
        .filter(|(_, word)| !word.is_empty())
}

/// Finds JSON web tokens (RFC 7519) as Kubernetes issues them: `eyJ....eyJ....signature`.
fn web_tokens(text: &str) -> Spans {
    let is_token = |word: &str| word.starts_with("eyJ") && word.matches('.').count() >= 2;
    let found = words(text).filter(|(_, word)| is_token(word));
    found
        .map(|(start, word)| (start, start + word.len()))
        .collect()
}

/// Finds the word after `Bearer` or `Basic` (RFC 9110 11.6.2).
fn bearers(text: &str) -> Spans {
    let schemes = words(text).filter(|(_, word)| {
        word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic")
    });
    let credential = |(start, word): (usize, &str)| {
        let start = start + word.len() + 1;
        let rest = text.get(start - 1..)?.strip_prefix(' ')?;
        let end = rest.find(|c: char| c.is_whitespace() || "\"'\\,;".contains(c));
        let end = end.unwrap_or(rest.len());
        (end >= SHORTEST).then_some((start, start + end))
    };
    schemes.filter_map(credential).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> String {
        Secrets::default().cut(text, Form::Configuration)
    }

    #[test]
    fn what_is_known_is_cut_wherever_it_is() {
        let mut secrets = Secrets::default();
        secrets
            .know_those_in("users:\n- user:\n    token: abcdefgh-1\n    password: 'a b c d e f'\n");
        secrets.know_environment(
            [
                ("HTTPS_PROXY", "http://me:proxy-password@10.0.0.1:3128"),
                ("DB_PASSWORD", "hunter2hunter2"),
                ("TOKEN_FILE", "/var/run/secrets/token"),
                ("PASSWORD_LENGTH", "12"),
            ]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into_iter(),
        );
        let text = "said abcdefgh-1 and hunter2hunter2,a b c d e f! proxy-password /var/run/secrets/token 12";
        assert_eq!(
            secrets.cut(text, Form::Prose),
            "said (left out) and (left out),(left out)! (left out) /var/run/secrets/token 12"
        );
    }

    #[test]
    fn urls() {
        for (text, wanted) in [
            ("http://u:p@h/x", "http://(left out)@h/x"),
            ("\"http://u:p@h\",", "\"http://(left out)@h\","),
            ("http://ghp_token@h", "http://(left out)@h"),
            ("http://u:a/b@h", "http://(left out)@h"),
            ("http://u:a@b@h:1/", "http://(left out)@h:1/"),
            ("https://h:443/a@b", "https://h:443/a@b"),
            ("https://[fd00::1]:443/a@b", "https://[fd00::1]:443/a@b"),
            ("https://h", "https://h"),
            ("://", "://"),
        ] {
            assert_eq!(cut(text), wanted, "{text}");
        }
    }

    #[test]
    fn keys_and_tokens() {
        let key = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----";
        assert_eq!(cut(&format!("a {key} b")), "a (left out) b");
        assert_eq!(cut("-----BEGIN PRIVATE KEY-----\nabc"), "(left out)");
        let certificate = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n";
        assert_eq!(cut(certificate), certificate);
        assert_eq!(
            cut(&format!("{certificate}{key}")),
            format!("{certificate}(left out)")
        );
        assert_eq!(cut("é eyJhbGciOiJI.eyJpc3Mi.sig-_1 ü"), "é (left out) ü");
        assert_eq!(
            cut("Bearer abcdefghi, basic rights"),
            "Bearer (left out), basic rights"
        );
    }

    #[test]
    fn any_text_is_borne_and_twice_is_once() {
        for text in [
            "",
            "é",
            "token: é",
            "://é@",
            "Bearer é",
            "\"token\": \"",
            "\"token\": {\"é",
            "token=\u{0}\\",
        ] {
            let once = cut(text);
            assert_eq!(cut(&once), once, "{text:?}");
        }
    }
}
