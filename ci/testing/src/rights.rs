//! Probes for what a user namespace does not permit. A test that needs it prints the reason and
//! returns; it must not return early for any other reason.

/// The reason if these user and group IDs are not mapped in this user namespace: system calls
/// refuse an unmapped ID with `EINVAL`, and `setfsuid` leaves the ID unchanged.
pub fn unmapped(ids: impl IntoIterator<Item = u32>) -> Option<String> {
    let maps = ["uid", "gid"].map(|kind| (kind, map(kind)));
    for id in ids {
        for (kind, map) in &maps {
            if !map.iter().any(|range| range.contains(&u64::from(id))) {
                return Some(format!(
                    "{kind} {id} is not in /proc/self/{kind}_map: run as root, or in a user \
                     namespace that maps it"
                ));
            }
        }
    }
    None
}

/// The reason if this is not the initial user namespace, which maps every ID to itself. The
/// kernel checks `CAP_BPF`, and `CAP_NET_ADMIN` for exceeding system-wide limits, against it.
pub fn not_first_user_namespace() -> Option<String> {
    // The last ID, -1, means "no ID" and is never mapped.
    let first = ["uid", "gid"]
        .iter()
        .all(|kind| map(kind).contains(&(0..u64::from(u32::MAX))));
    let reason = "/proc/self/uid_map says that this is not the first user namespace: run as root \
                  outside of any other";
    (!first).then(|| reason.to_owned())
}

/// The ranges of /proc/self/uid_map (`user_namespaces(7)`): first ID inside, first ID outside, length.
fn map(kind: &str) -> Vec<std::ops::Range<u64>> {
    let text = std::fs::read_to_string(format!("/proc/self/{kind}_map")).expect("procfs");
    let numbers = |line: &str| -> Vec<u64> {
        line.split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect()
    };
    text.lines()
        .map(numbers)
        .map(|n| n[0]..n[0] + n[2])
        .collect()
}
