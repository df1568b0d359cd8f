//! The part of Rust's grammar that the check needs: words and punctuation, without comments, literals and test code.
// matrix: none: reads the sources and the crates of Cargo's registry, and asks no kernel

/// A word or one character of punctuation (`::` counts as one), with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// The tokens of a source file. A string or character literal becomes the token `"`.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let mut out = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let start = at;
        let rest = &chars[at..];
        let text = if rest.starts_with(&['/', '/']) {
            at += rest.iter().take_while(|c| **c != '\n').count();
            None
        } else if rest.starts_with(&['/', '*']) {
            at += block_comment(rest);
            None
        } else if let Some(length) = literal(rest) {
            at += length;
            Some("\"".to_owned())
        } else if is_word(rest[0]) {
            let word: String = rest.iter().take_while(|c| is_word(**c)).collect();
            at += word.chars().count();
            Some(word)
        } else if rest.starts_with(&[':', ':']) {
            at += 2;
            Some("::".to_owned())
        } else {
            at += 1;
            (!rest[0].is_whitespace()).then(|| rest[0].to_string())
        };
        out.extend(text.map(|text| Token { text, line }));
        line += chars[start..at].iter().filter(|c| **c == '\n').count();
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Length of a comment, which may contain other comments.
fn block_comment(chars: &[char]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < chars.len() {
        match chars[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Length of a string or character literal at the start, including raw and byte literals.
fn literal(chars: &[char]) -> Option<usize> {
    let prefix = chars
        .iter()
        .take_while(|c| matches!(**c, 'b' | 'c' | 'r'))
        .count();
    let raw = chars[..prefix].contains(&'r');
    let hashes = chars[prefix..].iter().take_while(|c| **c == '#').count();
    let body = prefix + hashes;
    match chars.get(body)? {
        '"' if raw => {
            let end: Vec<char> = std::iter::once('"').chain(vec!['#'; hashes]).collect();
            let found = chars[body + 1..]
                .windows(end.len())
                .position(|w| *w == end[..]);
            Some(found.map_or(chars.len(), |n| body + 1 + n + end.len()))
        }
        '"' if hashes == 0 => Some(quoted(chars, body, '"')),
        // 'a' and '\n' are characters; 'a without an end is a lifetime.
        '\'' if hashes == 0 && prefix <= 1 && !raw => match chars.get(body + 1..)? {
            ['\\', ..] => Some(quoted(chars, body, '\'')),
            [_, '\'', ..] => Some(body + 3),
            _ => None,
        },
        _ => None,
    }
}

fn quoted(chars: &[char], open: usize, quote: char) -> usize {
    let mut at = open + 1;
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// Product code only: without the items under `#[cfg(test)]`.
///
/// The second value names the modules among those items that are files of their own.
pub(crate) fn without_tests(tokens: &[Token]) -> (Vec<Token>, Vec<String>) {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let marked = tokens[at..]
            .iter()
            .map(|t| t.text.as_str())
            .take(MARK.len())
            .eq(MARK);
        if !marked {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let item = &tokens[at + MARK.len()..];
        let length = item_length(item);
        let words: Vec<&str> = item[..length].iter().map(|t| t.text.as_str()).collect();
        if let [.., "mod", name, ";"] = words[..] {
            modules.push(name.to_owned());
        }
        at += MARK.len() + length;
    }
    (kept, modules)
}

/// The tokens up to the `;` or `}` that ends an item, including its other attributes.
fn item_length(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    for (n, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth -= 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return n + 1;
                }
            }
            ";" if depth == 0 => return n + 1,
            _ => {}
        }
    }
    tokens.len()
}

#[test]
fn comments_texts_and_tests_are_not_code() {
    let source = r##"
        // fork
        /* a /* b */ fork */
        fn f<'a>(x: &'a str) { g("fork \" fork", r#"fork " fork"#, b'x', '\'', 'f') }
        #[cfg(test)]
        #[allow(dead_code)]
        mod tests { fn h() { fork() } }
        #[cfg(test)]
        mod elsewhere;
        fn last() { a::b() }
    "##;
    let (kept, modules) = without_tests(&tokens(source));
    let text: Vec<&str> = kept.iter().map(|t| t.text.as_str()).collect();
    assert!(!text.contains(&"fork"), "{text:?}");
    assert_eq!(modules, ["elsewhere"]);
    assert_eq!(text[text.len() - 6..], ["a", "::", "b", "(", ")", "}"]);
    assert_eq!(kept.last().map(|t| t.line), Some(10));
}
