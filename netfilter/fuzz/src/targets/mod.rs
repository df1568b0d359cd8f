//! Every decoder of untrusted input.

mod cni;
mod conntrack;
mod ipset;
mod netlink;
mod nft;
mod xtables;

/// One decoder.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of its folder in the corpus.
    pub name: &'static str,
    /// Decodes one input. Only a panic is a finding; an error is not.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// All targets.
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

/// Most parsers take valid UTF-8. Invalid bytes are replaced, so that the rest of the input is still parsed.
fn text(input: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(input)
}

/// The first byte, which selects a variant of the target, and the rest.
fn choose(input: &[u8]) -> (u8, &[u8]) {
    input
        .split_first()
        .map_or((0, input), |(first, rest)| (*first, rest))
}
