//! Normalizes listings for comparison: removes numbers that change between runs.

/// Removes the random hash seed (`initval`) of sets and sorts the lines, whose order depends on it.
pub(crate) fn comparable(sets: &[u8]) -> String {
    let text = String::from_utf8_lossy(sets);
    let lines = text.lines().map(|line| match line.split_once(" initval ") {
        Some((line, _)) => format!("{line}\n"),
        None => format!("{line}\n"),
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines.concat()
}

/// Removes the built-in chains, which a listing with counters includes.
pub(crate) fn without_policies(text: &str) -> String {
    let lines = text.lines().filter(|l| !l.ends_with(" ACCEPT [0:0]"));
    lines.map(|line| format!("{line}\n")).collect()
}

pub(crate) fn without_counters_of_nft(text: &str) -> String {
    let line = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        for n in 1..words.len() {
            if matches!(words[n - 1], "packets" | "bytes") {
                words[n] = "N";
            }
        }
        words.join(" ") + "\n"
    };
    text.lines().map(line).collect()
}

/// Sets the counters of lines with `[PACKETS:BYTES]` to zero.
pub(crate) fn uncounted(text: &str) -> String {
    let line = |line: &str| match (line.find('['), line.find(']')) {
        (Some(from), Some(to)) if line[from..to].contains(':') => {
            format!("{}[0:0]{}\n", &line[..from], &line[to + 1..])
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Whether a table is in the state in which the kernel creates it on its first lookup.
pub(crate) fn is_untouched(text: &str) -> bool {
    text.lines().all(|line| match line.split_once(' ') {
        Some((_, rest)) if line.starts_with(':') => rest == "ACCEPT [0:0]",
        _ => !line.starts_with('['),
    })
}

/// Whether it is a line of [`crate::check::foreign`], or a policy that has counted packets.
pub(crate) fn is_foreign(line: &str) -> bool {
    line.contains("FOREIGN")
        || (line.starts_with(':') && !line.contains("ISTIO") && !line.ends_with("[0:0]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_was_only_looked_at_holds_nothing() {
        let untouched = "*nat\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";
        assert!(is_untouched(untouched));
        for text in [
            untouched.replace("ACCEPT [0:0]\n:O", "DROP [0:0]\n:O"),
            untouched.replace("[0:0]\n:O", "[1:20]\n:O"),
            untouched.replace("COMMIT", ":MINE - [0:0]\nCOMMIT"),
            untouched.replace("COMMIT", "[0:0] -A OUTPUT -j ACCEPT\nCOMMIT"),
        ] {
            assert!(!is_untouched(&text), "{text}");
        }
    }

    #[test]
    fn only_counters_of_legacy_rules_are_left_out() {
        let text = "# Ip\n:INPUT ACCEPT [1:2]\n[3:4] -A INPUT -j X\n\tcounter packets 5 bytes 6\n";
        let without =
            "# Ip\n:INPUT ACCEPT [0:0]\n[0:0] -A INPUT -j X\n\tcounter packets 5 bytes 6\n";
        assert_eq!(uncounted(text), without);
    }
}
