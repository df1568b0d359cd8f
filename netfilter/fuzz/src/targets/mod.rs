//! Every decoder of input from outside.

mod cni;
mod conntrack;
mod ipset;
mod netlink;
mod nft;
mod xtables;

/// One decoder.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// Decodes one input. An error is an answer; a panic is a finding.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// All of them.
pub const TARGETS: [Target; 15] = [
    target("netlink", netlink::answers),
    target("attributes", netlink::attributes),
    target("nft", nft::read),
    target("compat", nft::compat),
    target("conntrack", conntrack::list),
    target("xtables", xtables::read),
    target("iptables-restore", xtables::restore),
    target("ipset", ipset::list),
    target("ipset-restore", ipset::restore),
    target("cni-call", cni::call),
    target("cni-config", cni::config),
    target("conflist", cni::conflist),
    target("manifest", cni::manifest),
    target("sidecar", cni::sidecar),
    target("kubeconfig", cni::kubeconfig),
];

/// Texts reach most parsers as UTF-8 that was checked; the bytes around a bad one should still be seen.
fn text(input: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(input)
}

/// The first byte, which chooses, and the rest.
fn choose(input: &[u8]) -> (u8, &[u8]) {
    input
        .split_first()
        .map_or((0, input), |(first, rest)| (*first, rest))
}
