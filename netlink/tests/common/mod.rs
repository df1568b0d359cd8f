//! What the namespace tests share.
// Clippy grants these to `#[test]` functions only, and no test file uses every helper.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![allow(dead_code, unreachable_pub)]

use std::process::Command;

use weir_netlink::netns::Netns;
use weir_netlink::route::Routing;

/// A fresh namespace, or `None` with the reason printed where this user may not make one.
///
/// Any other failure fails the test.
pub fn namespace() -> Option<Netns> {
    match Netns::create() {
        Ok(netns) => Some(netns),
        Err(e) if e.is_permission() => {
            println!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// A routing socket in that namespace, with `lo` up.
pub fn routing(netns: &Netns) -> Routing {
    let routing = Routing::open_in(netns).expect("a routing socket");
    let lo = routing.link("lo").expect("lo");
    routing.set_up(lo.index).expect("lo up");
    routing
}

/// The oracle: `nsenter --net=NETNS ip ...`, its output by lines, without the blanks around them.
pub fn ip(netns: &Netns, arguments: &str) -> Vec<String> {
    let output = Command::new("nsenter")
        .arg(format!("--net={}", netns.path().display()))
        .arg("ip")
        .args(arguments.split_whitespace())
        .output()
        .expect("nsenter of util-linux and ip of iproute2 are needed as oracles");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {errors}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// Unwraps a namespace or ends the test, which has said why.
#[macro_export]
macro_rules! namespace_or_skip {
    () => {
        match common::namespace() {
            Some(netns) => netns,
            None => return,
        }
    };
}
