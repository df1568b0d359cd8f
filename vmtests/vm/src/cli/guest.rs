//! What `boot` and `run` have in common: the arguments that make a guest, and how a program's end becomes ours.
use super::code;
use super::kernel::KernelArgs;
use crate::proto::{Ending, Run};
use crate::{Cache, Error, Machine, Options, Origin, Outcome, Payload, Result, Stream};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal, raise};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where programs are looked for in a guest.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How many of a guest's notes are shown.
const SHOWN: usize = 3;
/// As timeout(1) has it.
const TIMED_OUT: u8 = 124;

/// Arguments that make a guest.
#[derive(clap::Args)]
pub(super) struct GuestArgs {
    #[command(flatten)]
    kernel: KernelArgs,

    /// One more file for the guest, a program with its libraries, or a directory; at the same path unless
    /// another is given
    #[arg(long, value_name = "HOST[=GUEST]")]
    with: Vec<String>,

    /// Tools of the network and the shell (ip, nft, iptables, ...), as far as this machine has them
    #[arg(long)]
    tools: bool,

    /// A variable of the environment
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Memory in MiB [default: by the size of the files]
    #[arg(long, value_name = "MIB")]
    memory: Option<u32>,

    /// Processors
    #[arg(long, value_name = "N", default_value_t = 1)]
    cpus: u32,

    /// QEMU [default: $VMTESTS_QEMU, else the one of ci/fetch-qemu, else of PATH]
    #[arg(long, value_name = "FILE")]
    qemu: Option<PathBuf>,

    /// Seconds until a program is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

impl GuestArgs {
    /// Starts the machine, with the files of `--with` besides the payload's. [`crate::interrupt::install`] was called before the
    /// payload was made: that starts processes, too.
    pub(super) fn start(&self, cache: &Cache, mut payload: Payload) -> Result<Machine> {
        let kernel = self.kernel.get(cache)?;
        for with in &self.with {
            let (host, guest) = with.split_once('=').unwrap_or((with, with));
            add(
                &mut payload,
                Path::new(host),
                &std::path::absolute(guest).unwrap_or_default(),
            )?;
        }
        if self.tools {
            let missing = payload.tools(crate::TOOLS)?;
            if !missing.is_empty() {
                crate::progress::note(&format!("not on this machine: {}", missing.join(", ")));
            }
        }
        let options = Options {
            memory_mib: self.memory,
            cpus: self.cpus.max(1),
            qemu: self.qemu.clone(),
            ..Options::new()?
        };
        let machine = Machine::start(cache, &kernel, &payload, &options)?;
        let notes = kernel.notes.iter().chain(&machine.hello().notes);
        for note in notes.clone().take(SHOWN) {
            crate::progress::note(&format!("kernel {}: {note}", kernel.name));
        }
        let more = notes.skip(SHOWN).count();
        if more > 0 {
            let text = format!("kernel {}: and {more} more like these", kernel.name);
            crate::progress::note(&text);
        }
        if let Origin::Cold(why) = machine.origin() {
            crate::progress::note(&format!("kernel {} was booted: {why}", kernel.name));
        }
        Ok(machine)
    }

    /// The program as the guest is to run it; `more` may be overridden by `--env`.
    pub(super) fn run(
        &self,
        argv: Vec<OsString>,
        cwd: PathBuf,
        more: Vec<(OsString, OsString)>,
    ) -> Result<Run> {
        let env = [
            ("PATH", PATH),
            ("HOME", "/root"),
            ("LANG", "C.UTF-8"),
            ("TERM", "dumb"),
        ];
        let env = env.map(|(name, value)| (name.into(), value.into()));
        let mut env: Vec<(OsString, OsString)> = env.into_iter().chain(more).collect();
        for variable in &self.env {
            let (name, value) = variable.split_once('=').ok_or_else(|| {
                Error::new(
                    format!("--env {variable}"),
                    "not NAME=VALUE",
                    "As in --env RUST_LOG=debug",
                )
            })?;
            env.push((name.into(), value.into()));
        }
        Ok(Run {
            argv,
            cwd: cwd.into(),
            env,
            deadline_ms: self.timeout.saturating_mul(1000),
        })
    }
}

/// A directory, a program with what it needs, or a plain file. A program is found by its name, too.
fn add(payload: &mut Payload, host: &Path, guest: &Path) -> Result<()> {
    if host.is_dir() {
        payload.tree(host, guest, &["target", ".git"])?;
        return Ok(());
    }
    payload.program_at(host, guest)?;
    let is_found = PATH
        .split(':')
        .any(|folder| guest.parent() == Some(Path::new(folder)));
    if let (false, Some(name), Some(target)) = (is_found, guest.file_name(), guest.to_str()) {
        payload.link(&Path::new("/bin").join(name), target)?;
    }
    Ok(())
}

/// Passes a program's output on as it comes. Who closed our output does not want the rest.
pub(super) fn pass_on(stream: Stream, bytes: &[u8]) {
    let _ = match stream {
        Stream::Out => std::io::stdout()
            .write_all(bytes)
            .and_then(|()| std::io::stdout().flush()),
        Stream::Err => std::io::stderr().write_all(bytes),
    };
}

/// Tells about trouble; a kernel in trouble turns success into failure.
pub(super) fn report(outcome: &Outcome) -> u8 {
    let status = match outcome.exit.ending {
        // A status of a process has eight bits.
        Ending::Status(status) => u8::try_from(status & 0xff).unwrap_or(code::FAILURE),
        Ending::Signal(signal) => u8::try_from(128 + signal).unwrap_or(code::FAILURE),
        Ending::TimedOut => {
            crate::progress::note("the program did not end in time and was killed (--timeout)");
            TIMED_OUT
        }
    };
    match &outcome.trouble {
        None => status,
        Some(trouble) => {
            crate::progress::note(&format!(
                "the kernel is in trouble ({}): {}\n{}",
                trouble.kind, trouble.line, outcome.exit.kernel_log
            ));
            status.max(code::CASES)
        }
    }
}

/// Ends this process by the signal that ended the program, so that who started us sees the same. Returns when that
/// signal does not end a process.
pub(super) fn end_as(outcome: &Outcome) {
    if let Ending::Signal(number) = outcome.exit.ending
        && let Ok(signal) = Signal::try_from(number)
    {
        // The core of interest was the guest's.
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
        let mut set = SigSet::empty();
        set.add(signal);
        let _ = set.thread_unblock();
        // Rust's own handler of SIGSEGV and SIGBUS (it looks for overflows of the stack) takes the first, and
        // removes itself.
        let _ = raise(signal);
        let _ = raise(signal);
    }
}
