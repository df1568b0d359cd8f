//! Sysctls of a network namespace.

use weir_netlink::Netns;

/// `sysctl -n net/KEY`
pub fn sysctl(netns: &Netns, key: &str) -> String {
    let read = || std::fs::read_to_string(format!("/proc/sys/net/{key}")).unwrap();
    netns.run(read).unwrap().trim().to_owned()
}

/// `sysctl -w net/KEY=VALUE`
pub fn set(netns: &Netns, key: &str, value: &str) {
    let write = || std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap();
    netns.run(write).unwrap();
}
