//! Converts OpenMetrics to the Prometheus text format 0.0.4.
//!
//! OpenMetrics declares a counter without its suffix `_total` and ends the text with `# EOF`.
//!
//! The text is that of the crate prometheus-client, which encodes no other format and does not give access to the registered
//! metrics, so it is converted line by line.

use std::collections::BTreeSet;

/// Returns the text for clients that do not accept OpenMetrics.
pub(super) fn classic(openmetrics: &str) -> String {
    let announced = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        (kind == "counter").then(|| name.to_owned())
    };
    let counters: BTreeSet<String> = openmetrics.lines().filter_map(announced).collect();
    let mut out = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines().filter(|l| *l != "# EOF") {
        match renamed(line, &counters) {
            Some(line) => out += &line,
            None => out += line,
        }
        out.push('\n');
    }
    out
}

/// Returns the declaration of a counter under the name of its samples.
fn renamed(line: &str, counters: &BTreeSet<String>) -> Option<String> {
    let mut words = line.splitn(4, ' ');
    let (hash, keyword, name) = (words.next()?, words.next()?, words.next()?);
    if hash != "#" || !counters.contains(name) {
        return None;
    }
    let rest = words.next().unwrap_or_default();
    Some(format!("# {keyword} {name}_total {rest}"))
}

#[cfg(test)]
mod tests {
    use super::classic;

    #[test]
    fn counters_have_one_name() {
        let openmetrics = "# HELP a Things. And # TYPE b counter\n# TYPE a counter\na_total{x=\"a\"} 1\n\
                           # HELP b Others.\n# TYPE b gauge\nb 2\n# EOF\n";
        let wanted = "# HELP a_total Things. And # TYPE b counter\n# TYPE a_total counter\na_total{x=\"a\"} 1\n\
                      # HELP b Others.\n# TYPE b gauge\nb 2\n";
        assert_eq!(classic(openmetrics), wanted);
        assert_eq!(classic("# EOF\n"), "");
    }
}
