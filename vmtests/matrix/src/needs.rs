//! What each case needs besides the kernel, in tables: nothing is left out of an environment without a line here.

/// Unit tests that ask the kernel: the start of their name.
const KERNEL_UNITS: &[&str] =
    &["netfilter::unit::xtables::tests::the_real_tool_prints_what_we_print"];

const HEADERS: &str = "asks a C compiler about the system's headers, and no kernel";
const SOURCES: &str = "reads the sources and the crates of Cargo's registry, and asks no kernel";
const NODE: &str =
    "about files, sockets and settings of a node: no rule is made, and no kernel is asked";
const VALUES: &str = "about values and programs: no namespace, no rule, no kernel is asked";

/// Cases that are no part of the matrix: the start of their name, and why they say nothing about a kernel. `cargo test`
/// runs them.
const NO_KERNEL: &[(&str, &str)] = &[
    ("netlink::headers::", HEADERS),
    ("netfilter::headers::", HEADERS),
    ("netfilter::ipset_headers::", HEADERS),
    ("netfilter::xtables_headers::", HEADERS),
    ("netfilter::compat::attributes_are_the_headers", HEADERS),
    ("netfilter::compat::damaged::", VALUES),
    ("netfilter::bytes::every_", VALUES),
    ("netfilter::ipset_random::a", VALUES),
    ("cni::headers::", HEADERS),
    ("cni::protocol::", VALUES),
    ("cni::logs::", VALUES),
    ("cni::runtime::", VALUES),
    ("cni::runtime_list::", VALUES),
    ("cni::plugin::", VALUES),
    ("cni::plugin_api::", VALUES),
    ("cni::plugin_ambient::", VALUES),
    ("cni::plugin_look_up::", VALUES),
    ("cni::binary::", VALUES),
    ("cni::http::", VALUES),
    ("cni::crash::", VALUES),
    ("agent::node::bundle::", NODE),
    ("agent::node::bundle_rules::", NODE),
    ("agent::node::commands::", NODE),
    ("agent::node::cri::", NODE),
    ("agent::node::faults::", NODE),
    ("agent::node::golden::", NODE),
    ("agent::node::heal::", NODE),
    ("agent::node::lifecycle::", NODE),
    ("agent::node::pods::", NODE),
    ("agent::node::privilege::", NODE),
    ("agent::node::scenarios::", NODE),
    ("agent::node::servers::", NODE),
    (
        "agent::node::status::",
        "about a page, also in a browser; the rules it tells of are made in agent::node::repair",
    ),
    ("agent::node::validity::", NODE),
    (
        "agent::real_node::",
        "runs on a Kubernetes node, which ci/node test starts",
    ),
    ("agent::image::", "makes files and asks no kernel"),
    ("agent::command::bad_input::", VALUES),
    ("agent::command::plan::", VALUES),
    ("agent::preflight::batch::", VALUES),
    ("agent::preflight::numbers::", HEADERS),
    ("agent::no_exec::source::", SOURCES),
    ("agent::no_exec::tokens::", SOURCES),
    (
        "agent::no_exec::elf::",
        "reads the program file with its symbols, and asks no kernel",
    ),
];

/// Cases that run on the host only: the start of their name, and why a guest cannot or need not run them.
const HOST_ONLY: &[(&str, &str)] = &[
    (
        "netlink::route::opening_costs_little",
        "measures microseconds, which under emulation say nothing",
    ),
    (
        "netfilter::versions::",
        "starts the nft of other distributions, with a C library of each, from target/",
    ),
    (
        "agent::preflight::run::a_slow_run_",
        "about what a person reads who waits; any kernel can be slow",
    ),
];

/// Which of the kernels that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The one of the lowest version.
    Oldest,
    /// The one of the highest.
    Newest,
}

/// Cases of the commands and of the node agent: the start of their names. They come to the kernel through what the
/// cases of the other rooms, of traffic and of preflight try on each kernel; what they add is tried on one of them.
/// So is what weir does without parts of a kernel, where nothing is left out.
const ON_ONE: &[(&str, End)] = &[
    // Tables that have an owner came with 5.12.
    ("agent::command::foreign::", End::Newest),
    ("agent::command::", End::Oldest),
    ("agent::fallback::", End::Oldest),
    ("agent::node::", End::Newest),
    ("agent::no_exec::", End::Newest),
    ("agent::preflight::run::", End::Newest),
];
/// Not these.
const ON_ALL: &[&str] = &["agent::command::demo::"];

/// Cases that need what a variable names: the start of their name, the variable, and what gives it a value.
const VARIABLES: &[(&str, &str, &str)] = &[
    (
        "cni::golden_",
        "WEIR_GOLDEN",
        "it names the directory of the golden cases",
    ),
    (
        "agent::command::restore_upstream::",
        "WEIR_GOLDEN",
        "it names the directory of the golden cases",
    ),
    (
        "agent::static_chroot::",
        "WEIR_BIN_DIR",
        "ci/build makes the release binaries and prints their folder",
    ),
    (
        super::case::ALONE,
        "WEIR_BIN_DIR",
        "ci/build makes the release binaries and prints their folder",
    ),
];

/// Tools that tests start besides [`weir_vm::TOOLS`].
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
    "cni::chain::",
];

/// How long a case may take, in seconds.
pub const DEADLINE: u64 = 120;

/// How the names start that these tables hold.
pub(super) fn starts() -> impl Iterator<Item = &'static str> {
    let plain = [KERNEL_UNITS, ON_ALL, SMOKE].into_iter().flatten();
    let on_one = ON_ONE.iter().map(|(start, _)| start);
    let host_only = NO_KERNEL.iter().chain(HOST_ONLY).map(|(start, _)| start);
    let variables = VARIABLES.iter().map(|(start, ..)| start);
    plain
        .chain(on_one)
        .chain(host_only)
        .chain(variables)
        .copied()
}

/// Does this unit test ask the kernel?
#[must_use]
pub fn is_kernel_unit(case: &str) -> bool {
    KERNEL_UNITS.iter().any(|u| case.starts_with(u))
}

/// Why the case is no part of the matrix, if it is none.
#[must_use]
pub fn no_kernel(case: &str) -> Option<&'static str> {
    reason(NO_KERNEL, case)
}

/// Why no guest runs the case, if only the host does.
#[must_use]
pub fn host_only(case: &str) -> Option<&'static str> {
    reason(HOST_ONLY, case)
}

fn reason(table: &[(&str, &'static str)], case: &str) -> Option<&'static str> {
    let found = table.iter().find(|(start, _)| case.starts_with(start));
    found.map(|(_, why)| *why)
}

/// Which kernel alone has the case, if it is not for all.
#[must_use]
pub fn end_of(case: &str) -> Option<End> {
    let is_for_all = ON_ALL.iter().any(|start| case.starts_with(start));
    let found = ON_ONE.iter().find(|(start, _)| case.starts_with(start));
    found.filter(|_| !is_for_all).map(|(_, end)| *end)
}

/// What a case needs that nobody has named, and what would help.
#[must_use]
pub fn unnamed(case: &str) -> Option<String> {
    let (_, variable, help) = VARIABLES
        .iter()
        .filter(|(start, ..)| case.starts_with(start))
        .find(|(_, variable, _)| weir_vm::variable(variable).is_none())?;
    Some(format!("{variable} is not set: {help}"))
}

/// Does a quick run have it?
#[must_use]
pub fn is_smoke(case: &str) -> bool {
    SMOKE.iter().any(|s| case.starts_with(s))
}
