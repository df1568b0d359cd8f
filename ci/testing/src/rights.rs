//! What a user namespace does not give, one probe for each. A test that needs it prints the reason
//! and ends; nothing else may make it end early.

/// Why these numbers are nobody here: as users and as groups, none of the kernel's calls takes a
/// number that this user namespace does not map (`EINVAL`, and `EPERM` from `setfsuid`).
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

/// Why this is not where the kernel looks for `CAP_BPF` and for `CAP_NET_ADMIN` to go beyond
/// limits of the machine: the first user namespace, which maps every number to itself.
pub fn not_first_user_namespace() -> Option<String> {
    // The last number stands for "none".
    let first = ["uid", "gid"]
        .iter()
        .all(|kind| map(kind).contains(&(0..u64::from(u32::MAX))));
    let reason = "/proc/self/uid_map says that this is not the first user namespace: run as root \
                  outside of any other";
    (!first).then(|| reason.to_owned())
}

/// `user_namespaces(7)`: first number inside, first outside, how many.
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
