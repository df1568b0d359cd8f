//! Functions that the namespace tests share.

use std::io::Read;
use std::process::{Child, Stdio};

use weir_netlink::Netns;
use weir_netlink::route::Routing;
use weir_testing::tool::inside;

/// A routing socket in a namespace, whose `lo` is set up.
pub fn routing(netns: &Netns) -> Routing {
    let routing = Routing::open_in(netns).expect("a routing socket");
    let lo = routing.link("lo").expect("lo");
    routing.set_up(lo.index).expect("lo up");
    routing
}

/// The oracle: `nsenter --net=NETNS ip ...`. Returns the lines of its output without surrounding blanks.
pub fn ip(netns: &Netns, arguments: &str) -> Vec<String> {
    tool(netns, "ip", arguments)
}

/// Like [`ip`], for another tool.
pub fn tool(netns: &Netns, tool: &str, arguments: &str) -> Vec<String> {
    try_tool(netns, tool, arguments).unwrap_or_else(|e| panic!("{tool} {arguments}: {e}"))
}

/// Like [`tool`]; returns the error output if the tool fails.
pub fn try_tool(netns: &Netns, tool: &str, arguments: &str) -> Result<Vec<String>, String> {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let text = weir_testing::tool::tool(netns, tool, &words, "")?;
    let lines = text.lines().map(|line| line.trim().to_owned());
    Ok(lines.filter(|line| !line.is_empty()).collect())
}

/// Starts a process in a namespace and waits until it is there. The caller kills it and waits for it.
pub fn process_in(netns: &Netns) -> Child {
    let mut process = inside(netns)
        .args(["sh", "-c", "echo there; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("nsenter of util-linux and sh are needed");
    let mut word = [0; 6];
    let output = process.stdout.as_mut().expect("piped");
    output
        .read_exact(&mut word)
        .expect("it says that it is there");
    process
}
