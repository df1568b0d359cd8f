//! Runs one process under `ptrace(2)`, observes the system calls of all its threads, and injects faults.
//!
//! This program starts the traced program by executing itself with [`TRACED`]: the new process requests to be traced and
//! then executes the program. So no code has to run between `fork` and `exec`, and nothing here is unsafe.
//!
//! The registers are those of x86_64 (`user_regs_struct`).

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::user_regs_struct;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::check::calls::{self, Call};
use crate::check::fault::{Fault, Other, Strike};
use crate::check::watchdog::Watchdog;

/// The first argument that makes this program request tracing and execute another program.
pub(crate) const TRACED: &str = "--traced";

/// The faults to inject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Injection {
    pub(crate) first: Strike,
    /// The calls of the second fault are counted from the first one on.
    pub(crate) second: Option<Strike>,
    /// Whether calls are still recorded after the last fault; otherwise the process then runs at full speed.
    pub(crate) record_all: bool,
}

/// What the tracer does with a process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// Records its calls.
    Record,
    /// Injects faults into its calls.
    Inject(Injection),
    /// Only waits for it.
    Free,
}

/// A call that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) thread: Pid,
    pub(crate) call: Call,
    /// The result that the process got; `None` if the call never returned.
    pub(crate) result: Option<i64>,
    pub(crate) injected: Option<Fault>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exited(i32),
    Signaled(Signal),
    /// It exceeded the deadline and was killed.
    Hung,
}

/// A recorded run.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) made: Vec<Made>,
    pub(crate) end: End,
    pub(crate) elapsed: Duration,
}

impl Trace {
    /// The calls that faults were injected into.
    pub(crate) fn hits(&self) -> Vec<(Call, Fault)> {
        let hits = self.made.iter().filter_map(|m| Some((m.call, m.injected?)));
        hits.collect()
    }

    /// The calls in strace's format, without their arguments.
    pub(crate) fn text(&self) -> String {
        let line = |made: &Made| {
            let result = made.result.map_or("?".to_owned(), |r| match r {
                -4095..0 => format!("-1 {:?}", Errno::from_raw(i32::try_from(-r).unwrap_or(0))),
                _ => format!("{r:#x}"),
            });
            let mark = if made.injected.is_some() { " <--" } else { "" };
            let [a, b, c, d] = made.call.arguments;
            let name = calls::name(made.call.number);
            let thread = made.thread;
            format!("{thread} {name}({a:#x}, {b:#x}, {c:#x}, {d:#x}) = {result}{mark}\n")
        };
        self.made.iter().map(line).collect()
    }
}

/// Requests tracing by the parent and executes `words`. Returns only on an error.
pub(crate) fn become_traced(words: &[OsString]) -> String {
    let Some((program, arguments)) = words.split_first() else {
        return format!("{TRACED} needs a program");
    };
    match ptrace::traceme() {
        Ok(()) => Command::new(program).args(arguments).exec().to_string(),
        Err(e) => format!("ptrace: {e}"),
    }
}

/// A thread of the traced process.
#[derive(Default)]
struct Thread {
    /// The index of the call in progress.
    inside: Option<usize>,
}

/// Performs the action of another writer while the process waits before its call.
pub(crate) type Act<'a> = &'a mut dyn FnMut(Other) -> Result<(), String>;

struct Tracer<'a> {
    injection: Option<Injection>,
    act: Act<'a>,
    threads: HashMap<Pid, Thread>,
    counts: HashMap<u64, usize>,
    /// The counts of calls since the first fault.
    later: Option<HashMap<u64, usize>>,
    /// Whether no further fault will be injected.
    spent: bool,
    made: Vec<Made>,
    /// Whether recording has ended.
    done: bool,
}

/// Runs a command of [`traced_command`] to its end and injects the faults.
///
/// # Errors
/// It cannot be started or traced.
pub(crate) fn run(
    command: &mut Command,
    how: How,
    act: Act<'_>,
    watchdog: &Watchdog,
    limit: Duration,
) -> Result<Trace, String> {
    let begun = Instant::now();
    let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let leader = i32::try_from(child.id()).map_err(|e| e.to_string())?;
    let leader = Pid::from_raw(leader);
    let guard = watchdog.watch(leader, begun + limit);
    let mut tracer = Tracer {
        injection: match how {
            How::Inject(injection) => Some(injection),
            How::Record | How::Free => None,
        },
        act,
        threads: HashMap::new(),
        counts: HashMap::new(),
        later: None,
        spent: false,
        made: Vec::new(),
        done: matches!(how, How::Free),
    };
    let end = tracer.follow(leader).inspect_err(|_| {
        // PTRACE_O_EXITKILL would end the process only when this thread ends.
        let _ = kill(leader, Signal::SIGKILL);
        let _ = waitpid(leader, Some(WaitPidFlag::__WALL));
    });
    let end = match guard.fired() {
        true => End::Hung,
        false => end?,
    };
    Ok(Trace {
        made: tracer.made,
        end,
        elapsed: begun.elapsed(),
    })
}

/// Creates a command; the thread that runs it becomes the tracer.
pub(crate) fn traced_command(program: &std::path::Path) -> Result<Command, String> {
    let own = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
    let mut command = Command::new(own);
    command.arg(TRACED).arg(program).env_clear();
    Ok(command)
}

impl Tracer<'_> {
    fn follow(&mut self, leader: Pid) -> Result<End, String> {
        let mut started = false;
        loop {
            // __WNOTHREAD: only children of this thread, because other threads are tracers, too.
            let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
            let status = match waitpid(None, Some(flags)) {
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(e) => return Err(format!("waitpid: {e}")),
            };
            match status {
                WaitStatus::Exited(pid, code) if pid == leader => return Ok(End::Exited(code)),
                WaitStatus::Signaled(pid, signal, _) if pid == leader => {
                    return Ok(End::Signaled(signal));
                }
                WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => {
                    self.threads.remove(&pid);
                }
                WaitStatus::PtraceSyscall(pid) => self.at_call(leader, pid)?,
                WaitStatus::Stopped(pid, Signal::SIGTRAP) if pid == leader && !started => {
                    started = true;
                    let options = Options::PTRACE_O_TRACESYSGOOD
                        | Options::PTRACE_O_TRACECLONE
                        | Options::PTRACE_O_TRACEFORK
                        | Options::PTRACE_O_TRACEVFORK
                        | Options::PTRACE_O_EXITKILL;
                    ptrace::setoptions(pid, options).map_err(|e| format!("ptrace: {e}"))?;
                    self.go_on(pid, None)?;
                }
                // A new thread starts with a SIGSTOP.
                WaitStatus::Stopped(pid, Signal::SIGSTOP) if !self.threads.contains_key(&pid) => {
                    self.threads.entry(pid).or_default();
                    self.go_on(pid, None)?;
                }
                WaitStatus::Stopped(pid, signal) => self.go_on(pid, Some(signal))?,
                WaitStatus::PtraceEvent(pid, ..) => self.go_on(pid, None)?,
                _ => {}
            }
        }
    }

    fn go_on(&self, pid: Pid, signal: Option<Signal>) -> Result<(), String> {
        let gone_on = match self.done {
            true => ptrace::cont(pid, signal),
            false => ptrace::syscall(pid, signal),
        };
        match gone_on {
            // ESRCH: the process was killed; waitpid reports that.
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(e) => Err(format!("ptrace: {e}")),
        }
    }

    /// Handles a system call stop: entry and return alternate.
    fn at_call(&mut self, leader: Pid, pid: Pid) -> Result<(), String> {
        let registers = match ptrace::getregs(pid) {
            Ok(registers) => registers,
            Err(Errno::ESRCH) => return Ok(()),
            Err(e) => return Err(format!("ptrace: {e}")),
        };
        let thread = self.threads.entry(pid).or_default();
        match thread.inside.take() {
            None => {
                thread.inside = Some(self.made.len());
                self.enter(leader, pid, registers)?;
            }
            Some(place) => self.leave(leader, pid, place, registers)?,
        }
        self.go_on(pid, None)
    }

    fn enter(
        &mut self,
        leader: Pid,
        pid: Pid,
        mut registers: user_regs_struct,
    ) -> Result<(), String> {
        let call = Call {
            number: registers.orig_rax,
            arguments: [registers.rdi, registers.rsi, registers.rdx, registers.r10],
        };
        let injected = self.strike(call);
        self.made.push(Made {
            thread: pid,
            call,
            result: None,
            injected,
        });
        match injected {
            Some(Fault::KillBefore) => kill_all(leader),
            Some(Fault::Other(other)) => (self.act)(other),
            Some(Fault::Fail(_)) if !call.is_done_anyway() => {
                // A number without a call: the kernel executes nothing and returns.
                registers.orig_rax = u64::MAX;
                set(pid, registers)
            }
            _ => Ok(()),
        }
    }

    /// Returns the fault for the call that is being entered.
    fn strike(&mut self, call: Call) -> Option<Fault> {
        let mut count = |counts: &mut HashMap<u64, usize>| {
            let occurrence = counts.entry(call.number).or_default();
            *occurrence += 1;
            *occurrence
        };
        let injection = self.injection?;
        let nth = count(&mut self.counts);
        let later = self.later.as_mut().map(&mut count);
        let Injection { first, second, .. } = injection;
        let is_last = |strike: &Strike| !first.lasting && !strike.lasting && !injection.record_all;
        if first.meets(call, nth) {
            self.later.get_or_insert_default();
            self.spent = second.is_none() && is_last(&first);
            return Some(first.fault);
        }
        let second = second.filter(|s| later.is_some_and(|nth| s.meets(call, nth)))?;
        self.spent = is_last(&second);
        Some(second.fault)
    }

    fn leave(
        &mut self,
        leader: Pid,
        pid: Pid,
        place: usize,
        mut registers: user_regs_struct,
    ) -> Result<(), String> {
        let Some(made) = self.made.get_mut(place) else {
            return Ok(());
        };
        if let Some(fault) = made.injected {
            self.done = self.spent;
            let errno = match fault {
                Fault::KillBefore => return Ok(()),
                Fault::Other(_) => None,
                Fault::KillAfter => return kill_all(leader),
                Fault::Fail(errno) => Some(errno),
                Fault::LoseAnswer => Some(Errno::ENOBUFS),
            };
            if let Some(errno) = errno {
                // The kernel returns an error as a negative number.
                registers.rax = i64::from(-(errno as i32)).cast_unsigned();
                set(pid, registers)?;
            }
        }
        made.result = Some(registers.rax.cast_signed());
        Ok(())
    }
}

fn kill_all(leader: Pid) -> Result<(), String> {
    kill(leader, Signal::SIGKILL).map_err(|e| format!("kill: {e}"))
}

fn set(pid: Pid, registers: user_regs_struct) -> Result<(), String> {
    match ptrace::setregs(pid, registers) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(e) => Err(format!("ptrace: {e}")),
    }
}
