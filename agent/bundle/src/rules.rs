//! The rules of a network namespace, per engine.

use super::running::Running;
use super::{Part, ruleset};
use weir_core::report::Asking;
use weir_core::sandboxes::place::{Processes, Scan};
use weir_netlink::Netns;
use weir_rules::show;

/// Maximum number of pods whose rules are included; a node has up to 250.
const PODS: usize = 300;

/// Returns the rules of the node's network namespace (that of its first process), of the pods that the agent knows, and of `further`.
/// Without permission to read the first process, the rules of the command's own namespace are returned instead, which may be the same.
pub(super) fn parts(running: &Running, further: Option<Result<Netns, String>>) -> Vec<Part> {
    let path = Processes::of_node().root_of_node();
    let path = path.with_file_name("ns/net");
    let (mut parts, host) = (Vec::new(), Netns::open(&path));
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
    match running.pods() {
        Ok(pods) => parts.extend(of_pods(&pods)),
        Err(why) => parts.push(Part::new("rules/pods.txt", Err(why))),
    }
    parts
}

/// Returns a list of the pods that request redirection, and the rules of each.
fn of_pods(pods: &[Asking]) -> Vec<Part> {
    let processes = Processes::of_node();
    let scan = match pods.is_empty() {
        true => Ok(Scan::default()),
        false => processes.scan(),
    };
    let mut list = format!("# {} pods of this node request redirection\n", pods.len());
    let mut parts = Vec::new();
    for pod in pods.iter().take(PODS) {
        let found = scan.as_ref().map_err(Clone::clone);
        let found = found.and_then(|scan| processes.find(scan, &pod.identity));
        let sandbox = found.and_then(|place| Ok(processes.open(&place, &pod.identity)?));
        let addresses = pod.identity.addresses.iter();
        let addresses: Vec<String> = addresses.map(ToString::to_string).collect();
        list += &format!("{}/{} {}: ", pod.namespace, pod.name, addresses.join(" "));
        match sandbox {
            Ok(sandbox) => {
                list += &format!("{}\n", sandbox.netns().id());
                let (namespace, name) = (plain(&pod.namespace), plain(&pod.name));
                let name = format!("rules/pods/{namespace}/{name}.txt");
                parts.push(Part::new(name, text(sandbox.netns())));
            }
            Err(why) => list += &format!("{why}\n"),
        }
    }
    if let Some(more) = pods.len().checked_sub(PODS).filter(|n| *n > 0) {
        list += &format!("{more} more are not examined\n");
    }
    parts.push(Part::new("rules/pods.txt", Ok(list)));
    parts
}

/// Makes a name usable as part of a path. Kubernetes names are unchanged.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let plain = |c: char| if is_plain(c) { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    match name.trim_start_matches('.') {
        "" => "_".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the known content of the rules per engine, each after a heading. An engine that cannot be read does not affect the others.
fn text(netns: &Netns) -> Result<String, String> {
    let nft = show::nft(netns).map(|rules| ruleset::nft(&rules));
    let legacy = show::legacy(netns).map(|rules| ruleset::legacy(&rules));
    let sets = show::set_headers(netns).map(|sets| ruleset::sets(&sets));
    let engines = [
        ("nf_tables, as nft list ruleset", nft),
        ("legacy tables, as iptables-save and ip6tables-save", legacy),
        ("sets of ipset", sets),
    ];
    if let [(_, Err(why)), (_, Err(_)), (_, Err(_))] = &engines {
        return Err(why.to_string());
    }
    let mut text = format!("# {} at {}\n", netns.id(), netns.origin().display());
    for (title, rules) in engines {
        match rules {
            Ok(rules) => text += &format!("\n# {title}\n{rules}"),
            Err(why) => text += &format!("\n# {title}\n# not available: {why}\n"),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn names_stay_below_their_directory() {
        for (name, wanted) in [
            ("web-1.a_b", "web-1.a_b"),
            ("../../etc/passwd", "_.._etc_passwd"),
            ("..", "_"),
            ("", "_"),
            ("a\n\u{0}é", "a___"),
        ] {
            assert_eq!(plain(name), wanted);
        }
    }
}
