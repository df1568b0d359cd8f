//! The common part of `boot` and `run`: the arguments of a guest, and the mapping of a program's end to our exit status.
use super::code;
use crate::own::Own;
use crate::program::note;
use crate::proto::{Ending, Run};
use crate::{Cache, Error, Kernel, Kernels, Machine, Options, Origin, Outcome, Payload};
use crate::{KernelError, Result, Stream};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal, raise};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The search path for programs in a guest.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How many of a guest's notes are printed.
const SHOWN: usize = 3;
/// The exit status of timeout(1).
const TIMED_OUT: u8 = 124;

/// The arguments that select the kernel.
#[derive(clap::Args)]
struct KernelArgs {
    /// The kernel: a name in the output of `weir-vm list`, such as 6.12, newest, or a variant
    #[arg(long, short, value_name = "NAME", required_unless_present = "vmlinuz")]
    kernel: Option<String>,

    /// Use your own kernel, a bzImage or vmlinux, instead; --kernel may then name it (own-no-ipv6: a variant
    /// of it)
    #[arg(long, value_name = "FILE")]
    vmlinuz: Option<PathBuf>,

    /// The modules of --vmlinuz: lib/modules/RELEASE; omitted if everything is built in
    #[arg(long, value_name = "DIR", requires = "vmlinuz")]
    modules: Option<PathBuf>,
}

impl KernelArgs {
    /// Makes the kernel ready to boot.
    fn get(&self, cache: &Cache) -> Result<Kernel> {
        let mut kernels = Kernels::open(cache, None)?;
        let name = self.kernel.as_deref().unwrap_or("own");
        if let Some(vmlinuz) = &self.vmlinuz {
            kernels.add(Own {
                name: kernels.catalogue().split(name).0.to_owned(),
                vmlinuz: vmlinuz.clone(),
                modules: self.modules.clone(),
            });
        }
        kernels.get(name)
    }
}

/// The arguments that describe a guest.
#[derive(clap::Args)]
pub(super) struct GuestArgs {
    #[command(flatten)]
    kernel: KernelArgs,

    /// Add a file to the guest, a program with its libraries, or a directory; at the same path unless
    /// another is given
    #[arg(long, value_name = "HOST[=GUEST]")]
    with: Vec<String>,

    /// Add the network and shell tools (ip, nft, iptables, ...) that this machine has
    #[arg(long)]
    tools: bool,

    /// Set an environment variable
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Memory in MiB [default: depends on the size of the files]
    #[arg(long, value_name = "MIB")]
    memory: Option<u32>,

    /// Number of processors
    #[arg(long, value_name = "N", default_value_t = 1)]
    cpus: u32,

    /// The QEMU program [default: $VMTESTS_QEMU, else that of ci/fetch-qemu, else that in PATH]
    #[arg(long, value_name = "FILE")]
    qemu: Option<PathBuf>,

    /// Seconds after which a program is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

impl GuestArgs {
    /// Starts the machine, with the files of `--with` added to the payload. [`crate::interrupt::install`] must be called
    /// before the payload is made, because that starts processes, too.
    pub(super) fn start(&self, cache: &Cache, mut payload: Payload) -> Result<Machine> {
        let kernel = self.kernel.get(cache)?;
        for with in &self.with {
            let (host, guest) = with.split_once('=').unwrap_or((with, with));
            let guest = std::path::absolute(guest).unwrap_or_default();
            add(&mut payload, Path::new(host), &guest)?;
        }
        if self.tools {
            let missing = payload.tools(crate::TOOLS)?;
            if !missing.is_empty() {
                note(&format!("not on this machine: {}", missing.join(", ")));
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
        for text in notes.clone().take(SHOWN) {
            note(&format!("kernel {}: {text}", kernel.name));
        }
        let (name, more) = (&kernel.name, notes.skip(SHOWN).count());
        if more > 0 {
            note(&format!("kernel {name}: and {more} more like these"));
        }
        if let Origin::Cold(why) = &machine.origin {
            note(&format!("kernel {name} was booted: {why}"));
        }
        Ok(machine)
    }

    /// The request to run a program in the guest; `--env` may override the variables in `more`.
    pub(super) fn run(
        &self,
        argv: Vec<OsString>,
        cwd: PathBuf,
        more: Vec<(OsString, OsString)>,
    ) -> Result<Run> {
        let (home, language) = (("HOME", "/root"), ("LANG", "C.UTF-8"));
        let env = [("PATH", PATH), home, language, ("TERM", "dumb")];
        let env = env.map(|(name, value)| (name.into(), value.into()));
        let mut env: Vec<(OsString, OsString)> = env.into_iter().chain(more).collect();
        for variable in &self.env {
            let Some((name, value)) = variable.split_once('=') else {
                let (input, remedy) = (format!("--env {variable}"), "As in --env RUST_LOG=debug");
                return Err(Error::new(input, "not NAME=VALUE", remedy));
            };
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

/// Adds a directory, a program with its libraries, or a plain file. A program is also linked into a directory of PATH.
fn add(payload: &mut Payload, host: &Path, guest: &Path) -> Result<()> {
    if host.is_dir() {
        return payload.tree(host, guest, &["target", ".git"]).map(drop);
    }
    payload.program_at(host, guest)?;
    let mut folders = PATH.split(':').map(Path::new);
    let is_found = folders.any(|folder| guest.parent() == Some(folder));
    if let (false, Some(name), Some(target)) = (is_found, guest.file_name(), guest.to_str()) {
        payload.link(&Path::new("/bin").join(name), target)?;
    }
    Ok(())
}

/// Passes a program's output on as it arrives. Errors are ignored: a reader that has closed our output wants no more.
pub(super) fn pass_on(stream: Stream, bytes: &[u8]) {
    let mut out = std::io::stdout();
    let _ = match stream {
        Stream::Out => out.write_all(bytes).and_then(|()| out.flush()),
        Stream::Err => std::io::stderr().write_all(bytes),
    };
}

/// Prints an error of the kernel and returns the exit status; such an error turns success into failure.
pub(super) fn report(outcome: &Outcome) -> u8 {
    let status = match outcome.exit.ending {
        // The exit status of a process has eight bits.
        Ending::Status(status) => u8::try_from(status & 0xff).unwrap_or(code::FAILURE),
        Ending::Signal(signal) => u8::try_from(128 + signal).unwrap_or(code::FAILURE),
        Ending::TimedOut => {
            note("the program did not end in time and was killed (--timeout)");
            TIMED_OUT
        }
    };
    match &outcome.kernel_error {
        None => status,
        Some(error) => {
            let (log, KernelError { kind, line }) = (&outcome.exit.kernel_log, error);
            note(&format!(
                "the kernel reports an error ({kind}): {line}\n{log}"
            ));
            status.max(code::CASES)
        }
    }
}

/// Ends this process by the signal that ended the program, so that our parent process sees the same. Returns if that
/// signal does not end a process.
pub(super) fn end_as(outcome: &Outcome) {
    if let Ending::Signal(number) = outcome.exit.ending
        && let Ok(signal) = Signal::try_from(number)
    {
        // The relevant core dump is that of the program in the guest.
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
        let mut set = SigSet::empty();
        set.add(signal);
        let _ = set.thread_unblock();
        // Rust's handler of SIGSEGV and SIGBUS (it detects stack overflows) takes the first signal and removes itself; the
        // second one ends the process.
        let _ = raise(signal);
        let _ = raise(signal);
    }
}
