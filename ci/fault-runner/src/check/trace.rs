//! One process under `ptrace(2)`: its system calls over all threads, one of them with a fault.
//!
//! The traced program is started by this program itself, called again as [`TRACED`]: it asks to be traced and then
//! becomes the program. So nothing has to run between `fork` and `exec`, and nothing here is unsafe.
//!
//! Registers are those of x86_64 (`user_regs_struct`).

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

/// The first argument by which this program asks to be traced and becomes another one.
pub(crate) const TRACED: &str = "--traced";

/// What is done to which calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Injection {
    pub(crate) first: Strike,
    /// Its calls are counted after the first.
    pub(crate) second: Option<Strike>,
    /// Goes on recording calls after it; otherwise the process then runs at full speed.
    pub(crate) record_all: bool,
}

/// What is done with a process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// Its calls are recorded.
    Record,
    /// Some of its calls have a fault.
    Inject(Injection),
    /// Nothing: it is only waited for.
    Free,
}

/// A call as it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) thread: Pid,
    pub(crate) call: Call,
    /// What the process saw; `None` when it never returned.
    pub(crate) result: Option<i64>,
    pub(crate) injected: Option<Fault>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exited(i32),
    Signaled(Signal),
    /// It did not end in time and was killed.
    Hung,
}

/// What a run was.
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

    /// The calls as strace prints them, without their arguments.
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

/// This program as one that becomes `words`, traced by its parent. Returns only an error.
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
    /// The place of the call that it is in.
    inside: Option<usize>,
}

/// What another writer does, while the process waits for its call.
pub(crate) type Act<'a> = &'a mut dyn FnMut(Other) -> Result<(), String>;

struct Tracer<'a> {
    injection: Option<Injection>,
    act: Act<'a>,
    threads: HashMap<Pid, Thread>,
    counts: HashMap<u64, usize>,
    /// Calls after the first fault.
    later: Option<HashMap<u64, usize>>,
    /// No further fault is to come.
    spent: bool,
    made: Vec<Made>,
    /// Nothing more is to be recorded.
    done: bool,
}

/// Runs a command that [`traced_command`] made until it ends, with a fault in one of its calls.
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
        // With this thread it would end anyway (PTRACE_O_EXITKILL).
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

/// A command that is traced by the thread that runs it.
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
            // Only children of this thread: others trace others.
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
                // A new thread begins with one.
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
            // It was killed meanwhile; waitpid tells.
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(e) => Err(format!("ptrace: {e}")),
        }
    }

    /// Entry to a call or return from it, in turns.
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
                // No call has this number: nothing is executed.
                registers.orig_rax = u64::MAX;
                set(pid, registers)
            }
            _ => Ok(()),
        }
    }

    /// The fault of a call that is made now.
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
                // Two's complement, as the kernel returns it.
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
