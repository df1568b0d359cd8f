//! What each case needs besides the kernel, in tables: nothing is left out of an environment without a line here.

/// Unit tests that ask the kernel: the start of their name.
const KERNEL_UNITS: &[&str] = &[
    "netlink::unit::nfnetlink::tests::the_kernel_has_a_generation",
    "netfilter::unit::xtables::tests::the_real_tool_prints_what_we_print",
];

/// Cases that run on the host only: the start of their name, and why a guest cannot or need not run them.
const HOST_ONLY: &[(&str, &str)] = &[
    (
        "netfilter::headers::",
        "asks a C compiler about the system's headers; no kernel is asked",
    ),
    (
        "netfilter::ipset_headers::",
        "asks a C compiler about the system's headers; no kernel is asked",
    ),
    (
        "netfilter::xtables_headers::",
        "asks a C compiler about the system's headers; no kernel is asked",
    ),
    (
        "agent::preflight::numbers::",
        "asks a C compiler about the system's headers; no kernel is asked",
    ),
    (
        "netfilter::compat::attributes_are_the_headers",
        "asks a C compiler about the system's headers; no kernel is asked",
    ),
    (
        "netfilter::versions::",
        "starts the nft of other distributions, with a C library of each, from target/",
    ),
    (
        "agent::no_exec::source::",
        "reads the sources and the crates of Cargo's registry; no kernel is asked",
    ),
    (
        "agent::no_exec::tokens::",
        "reads the sources and the crates of Cargo's registry; no kernel is asked",
    ),
    (
        "agent::no_exec::elf::",
        "reads the program file with its symbols; no kernel is asked",
    ),
];

/// Tools that tests start besides [`crate::TOOLS`].
pub const MORE_TOOLS: &[&str] = &["chroot", "conntrack", "mkdir", "setpriv", "sysctl"];

/// Cases that a plain `cargo test` of this package runs: one of each kind, so that it stays quick.
const SMOKE: &[&str] = &[
    super::case::PREFLIGHT,
    super::case::ALONE,
    "agent::command::demo::",
    "agent::preflight::oracle::",
    "agent::fallback::",
    "agent::traffic::outbound::",
    "netfilter::oracle::",
    "netfilter::sets::",
    "netlink::route::",
    "cni::plugin::",
];

/// How long a case may take in a guest, in seconds, and those that get more.
const DEADLINE: u64 = 120;
const LONGER: &[(&str, u64)] = &[];

/// Does this unit test ask the kernel?
#[must_use]
pub fn is_kernel_unit(case: &str) -> bool {
    KERNEL_UNITS.iter().any(|u| case.starts_with(u))
}

/// Why no guest runs the case, if none does.
#[must_use]
pub fn host_only(case: &str) -> Option<&'static str> {
    let found = HOST_ONLY.iter().find(|(start, _)| case.starts_with(start));
    found.map(|(_, why)| *why)
}

/// Does a quick run have it?
#[must_use]
pub fn is_smoke(case: &str) -> bool {
    SMOKE.iter().any(|s| case.starts_with(s))
}

/// How long the case may take, in seconds.
#[must_use]
pub fn deadline(case: &str) -> u64 {
    let found = LONGER.iter().find(|(start, _)| case.starts_with(start));
    found.map_or(DEADLINE, |(_, seconds)| *seconds)
}
