//! What the kernel holds in a namespace, engine by engine.

use super::Part;
use std::path::Path;
use weir_cni::redirection::Sandbox;
use weir_netlink::Netns;

/// The node's own namespace, by its first process; a container sees that in another place.
const HOST: [&str; 2] = ["/host/proc/1/ns/net", "/proc/1/ns/net"];

/// The rules of the node's own namespace, and of `further`. Who may not look at the first process gets those of the
/// namespace that this command is in, which may be the same.
pub(super) fn parts(further: Option<Result<Netns, String>>) -> Vec<Part> {
    let path = HOST
        .iter()
        .map(Path::new)
        .find(|p| p.symlink_metadata().is_ok());
    let path = path.unwrap_or(Path::new("/proc/1/ns/net"));
    let (mut parts, host) = (Vec::new(), Netns::open(path));
    if host.is_err() {
        let own = Netns::current().map_err(|e| e.to_string());
        let text = own.and_then(|netns| text(&netns));
        parts.push(Part::new("rules/own.txt", text));
    }
    let host = host.map_err(|e| e.to_string());
    let host = host.and_then(|netns| text(&netns));
    parts.push(Part::new("rules/node.txt", host));
    if let Some(netns) = further {
        let name = "rules/namespace.txt";
        parts.push(Part::new(name, netns.and_then(|netns| text(&netns))));
    }
    parts
}

/// As `weir show --engine all`, with a line before each engine. One that cannot be read leaves the others.
fn text(netns: &Netns) -> Result<String, String> {
    let engines = [
        ("nf_tables, as nft list ruleset", nft(netns)),
        (
            "legacy tables, as iptables-save and ip6tables-save",
            legacy(netns),
        ),
        ("sets, as ipset save", sets(netns)),
    ];
    if let [(_, Err(why)), (_, Err(_)), (_, Err(_))] = &engines {
        return Err(why.clone());
    }
    let mut text = format!("# {} at {}\n", netns.id(), netns.origin().display());
    for (title, rules) in engines {
        match rules {
            Ok(rules) => text += &format!("\n# {title}\n{rules}"),
            Err(why) => text += &format!("\n# {title}\n# could not be had: {why}\n"),
        }
    }
    Ok(text)
}

fn nft(netns: &Netns) -> Result<String, String> {
    let read = Sandbox::show(netns).map_err(|e| e.to_string());
    read.map(|rules| rules.to_string())
}

fn legacy(netns: &Netns) -> Result<String, String> {
    let read = Sandbox::show_legacy(netns).map_err(|e| e.to_string());
    read.map(|rules| rules.to_string())
}

fn sets(netns: &Netns) -> Result<String, String> {
    let read = Sandbox::show_sets_text(netns).map_err(|e| e.to_string());
    read.map(|text| String::from_utf8_lossy(&text).into_owned())
}
