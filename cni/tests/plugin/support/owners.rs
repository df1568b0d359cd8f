//! Rules that match the owner of a socket, in a user namespace.

use super::rights::unmapped;

/// The reason why the kernel refuses these iptables rules here.
///
/// The match `owner` accepts only IDs that the user namespace maps, also with `iptables-nft`. Native expressions of nf_tables do not check
/// this.
pub fn unmapped_owner(rules: &str) -> Option<String> {
    let words: Vec<&str> = rules.split_whitespace().collect();
    let owners = words
        .windows(2)
        .filter(|pair| matches!(pair[0], "--uid-owner" | "--gid-owner"))
        .flat_map(|pair| pair[1].split('-'))
        .map(|id| id.parse().unwrap());
    unmapped(owners)
}

/// Calls `check` with each case that is not refused, and prints the number of the others and the reason.
pub fn each_loadable<T>(cases: impl IntoIterator<Item = (T, Option<String>)>, check: impl Fn(T)) {
    let (mut all, mut refused) = (0, Vec::new());
    for (case, reason) in cases {
        all += 1;
        match reason {
            Some(reason) => refused.push(reason),
            None => check(case),
        }
    }
    if let Some(reason) = refused.first() {
        let some = refused.len();
        println!("skipped: {some} of {all} cases with legacy rules: {reason}");
    }
}
