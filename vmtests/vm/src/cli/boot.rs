//! `weir-vm boot`: an interactive guest.
use super::guest::{GuestArgs, pass_on, report};
use super::{code, say};
use crate::program::program;
use crate::{At, Cache, Error, Machine, Result};
use std::ffi::OsString;
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  weir-vm boot --kernel 6.12
  weir-vm boot --kernel 5.10 --with /usr/sbin/nft -- nft list ruleset
  echo 'uname -a' | weir-vm boot --kernel 7.2 --tools

The guest has what --with and --tools give it, and no shell. At the prompt a line is a program and its arguments; quotes keep words together.";

const HELP: &str = "\
PROGRAM [ARGUMENT...]  runs it
.dmesg                 shows what the kernel has logged
.cat FILE              shows a file of the guest
.exit                  ends the guest (so does the end of the input)";

/// Boots a kernel and runs programs in it, line by line
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    guest: GuestArgs,

    /// Run this program instead of reading lines
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

pub(super) fn run(cache: &Cache, args: &Args) -> Result<u8> {
    crate::interrupt::install();
    let mut machine = {
        let mut payload = (program().payload)()?;
        (program().boot)(cache, &mut payload)?;
        args.guest.start(cache, payload)?
    };
    if !args.program.is_empty() {
        return one(&mut machine, &args.guest, args.program.clone());
    }
    let release = machine.hello().release.clone();
    let is_person = std::io::stdin().is_terminal();
    if is_person {
        let what = "A line is a program and its arguments; .help tells more";
        say(&format!("Linux {release}. {what}"))?;
    }
    let mut last = code::SUCCESS;
    let mut lines = std::io::stdin().lock().lines();
    loop {
        if is_person {
            let mut out = std::io::stdout();
            let _ = write!(out, "{release}> ").and_then(|()| out.flush());
        }
        let Some(line) = lines.next() else { break };
        let line = line.at("standard input")?;
        match obey(&mut machine, args, &line) {
            Ok(None) => break,
            Ok(Some(status)) => last = status,
            Err(e) => {
                crate::program::note(&e.to_string());
                last = code::FAILURE;
                // A guest that has died does not answer any more.
                machine.dmesg()?;
            }
        }
    }
    Ok(last)
}

/// Executes a line of input. `None`: the user has ended the session.
fn obey(machine: &mut Machine, args: &Args, line: &str) -> Result<Option<u8>> {
    let words = words(line)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {}
        [".exit"] => return Ok(None),
        [".help"] => say(HELP)?,
        [".dmesg"] => say(machine.dmesg()?.trim_end())?,
        [".cat", path] => pass_on(crate::Stream::Out, &machine.get(Path::new(path))?),
        [first, ..] if first.starts_with('.') => {
            let reason = "no such command, or other arguments";
            return Err(Error::new(*first, reason, ".help tells"));
        }
        program => {
            let argv = program.iter().map(OsString::from).collect();
            let status = one(machine, &args.guest, argv)?;
            if status != code::SUCCESS {
                crate::program::note(&format!("exit status {status}"));
            }
            return Ok(Some(status));
        }
    }
    Ok(Some(code::SUCCESS))
}

fn one(machine: &mut Machine, guest: &GuestArgs, argv: Vec<OsString>) -> Result<u8> {
    let run = guest.run(argv, "/".into(), Vec::new())?;
    Ok(report(&machine.run(&run, &mut pass_on)?))
}

/// Splits a line into words as a shell does: quotes keep spaces, a backslash escapes the next character.
fn words(line: &str) -> Result<Vec<String>> {
    let reason = "a quote is not closed";
    shlex::split(line).ok_or_else(|| Error::new(line, reason, "Close it on the same line"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_does() {
        assert_eq!(
            words(r#"weir show  'a b' "c \" d" e\ f ''"#).unwrap(),
            ["weir", "show", "a b", "c \" d", "e f", ""]
        );
        assert_eq!(words("  ").unwrap(), Vec::<String>::new());
        assert!(words("say 'x").is_err());
    }
}
