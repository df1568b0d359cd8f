//! Runs tools of the system in a network namespace, as oracles and as other writers.

use std::io::Write;
use std::process::{Command, Stdio};
use weir_netlink::Netns;

/// The command `nsenter --net=NETNS`; the caller appends the program.
#[must_use]
pub fn inside(netns: &Netns) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", netns.path().display()));
    command
}

/// Runs a tool in a namespace with this input; returns its output or its error message.
pub fn tool(netns: &Netns, program: &str, args: &[&str], input: &str) -> Result<String, String> {
    let mut child = inside(netns)
        .arg(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("nsenter is missing: install util-linux, nftables and iproute2");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let out = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    match out.status.success() {
        true => Ok(text(out.stdout)),
        false => Err(text(out.stderr)),
    }
}

/// The output of a command line of words separated by spaces, which must not fail.
#[must_use]
pub fn output(netns: &Netns, command: &str) -> String {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default();
    let args: Vec<&str> = words.collect();
    tool(netns, program, &args, "").unwrap_or_else(|e| panic!("{command}: {e}"))
}
