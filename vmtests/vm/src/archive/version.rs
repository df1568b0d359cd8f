//! The order of Debian versions: deb-version(7), as `dpkg --compare-versions`.
use std::cmp::Ordering;

/// Compares two versions.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let ((epoch, upstream, revision), b) = (parts(a), parts(b));
    let order = epoch.cmp(&b.0).then_with(|| compare_part(upstream, b.1));
    order.then_with(|| compare_part(revision, b.2))
}

fn parts(version: &str) -> (u32, &str, &str) {
    let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
    (epoch.parse().unwrap_or(0), upstream, revision)
}

/// Compares alternating runs of non-digits and digits.
fn compare_part(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let (a_text, a_rest) = split(a, |c| !c.is_ascii_digit());
        let (b_text, b_rest) = split(b, |c| !c.is_ascii_digit());
        let (a_number, a_rest) = split(a_rest, |c| c.is_ascii_digit());
        let (b_number, b_rest) = split(b_rest, |c| c.is_ascii_digit());
        let order = compare_text(a_text, b_text);
        let order = order.then_with(|| number(a_number).cmp(&number(b_number)));
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (a_rest, b_rest);
    }
    Ordering::Equal
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !belongs(c)).unwrap_or(text.len());
    text.split_at(end)
}

/// Letters sort before other characters, and "~" sorts before everything, even the end of the string.
fn compare_text(a: &str, b: &str) -> Ordering {
    let weight = |c: Option<char>| match c {
        Some('~') => -1,
        None => 0,
        Some(c) if c.is_ascii_alphabetic() => c as i32,
        Some(c) => c as i32 + 256,
    };
    let weights = |text: &str| {
        text.chars()
            .map(Some)
            .chain([None])
            .map(weight)
            .collect::<Vec<_>>()
    };
    weights(a).cmp(&weights(b))
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pair is in the order of `dpkg --compare-versions A lt B`.
    #[test]
    fn as_dpkg() {
        for (low, high) in [
            ("6.1.99-1", "6.1.100-1"),
            ("6.1.192-1", "6.1.192-2"),
            ("7.3~rc7-1~exp1", "7.3-1"),
            ("7.2.12-1~bpo13+1", "7.2.12-1"),
            ("6.12.90-1", "6.12.90-2"),
            ("1.0", "1.0a"),
            ("1.0a", "1.0+b"),
            ("9", "1:1"),
        ] {
            assert_eq!(compare(low, high), Ordering::Less, "{low} < {high}");
            assert_eq!(compare(high, low), Ordering::Greater, "{high} > {low}");
            assert_eq!(compare(low, low), Ordering::Equal);
        }
    }
}
