//! Tasks: threads, each with its own Tokio runtime, that run for the lifetime of the process.
//!
//! A task that ends by itself is a fault, which [`Tasks::ended`] reports, and the process exits. In
//! release builds, any panic ends the process immediately (`panic = "abort"`, SIGABRT), and the kubelet restarts the
//! container; in other builds, a panic is handled here like any other end.

use super::{not_started, rights, runtime};
use crate::journal::Journal;
use futures::future::{Either, select};
use std::future::Future;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::Builder;
use std::time::Duration;
use tokio::sync::watch;

/// The tasks of the process. Clones share their state.
#[derive(Clone)]
pub struct Tasks(Arc<Inner>);

struct Inner {
    journal: Journal,
    stop: watch::Sender<bool>,
    /// Readable after the first unexpected end.
    wake: (PipeReader, PipeWriter),
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: Vec<&'static str>,
    ended: Vec<&'static str>,
}

impl Tasks {
    /// Creates an empty set of tasks.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn new(journal: Journal) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            journal,
            stop: watch::Sender::new(false),
            wake: io::pipe()?,
            state: Mutex::default(),
            changed: Condvar::new(),
        })))
    }

    /// Starts a task with the capabilities of its row in [`rights::THREADS`]. `begins` runs first, outside of the runtime, and
    /// `start` waits for it: a thread that unshares the descriptor table (`CLONE_FILES` of `unshare(2)`) keeps a copy of every
    /// open descriptor, including a file that the caller may open next for writing. A program that is open for writing
    /// anywhere cannot be executed (`ETXTBSY`). The work is dropped when the tasks are stopped.
    ///
    /// # Errors
    /// The thread or the runtime cannot be created: the text names the thread and the remedy.
    pub fn start(
        &self,
        name: &'static str,
        begins: impl FnOnce() + Send + 'static,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        // Created before the thread may unshare the descriptor table: all runtimes share a descriptor of the process for signals.
        let runtime = runtime::of_one_thread(name).map_err(|e| not_started(name, &e))?;
        let (tasks, mut stop) = (self.clone(), self.0.stop.subscribe());
        let journal = self.0.journal.clone();
        let (begun, wait) = mpsc::channel::<()>();
        self.state().running.push(name);
        let run = move || {
            let _ends = Ends(tasks, name);
            begins();
            drop(begun);
            journal.rights(rights::enter(name));
            runtime.block_on(async move {
                let stopped = pin!(stop.wait_for(|stop| *stop));
                if let Either::Left(_) = select(stopped, pin!(work)).await {}
            });
        };
        let started = Builder::new().name(name.into()).spawn(run);
        started.map_err(|e| {
            self.state().running.retain(|other| *other != name);
            not_started(name, &e)
        })?;
        // Nothing is sent: the sender is dropped after `begins`, also by a panic.
        let _ = wait.recv();
        Ok(())
    }

    /// Returns the names of the tasks that ended unexpectedly.
    pub fn ended(&self) -> Vec<&'static str> {
        self.state().ended.clone()
    }

    /// Stops all tasks and waits until they have ended. Returns the names of those that have not ended within the limit.
    pub fn stop(&self, limit: Duration) -> Vec<&'static str> {
        self.0.stop.send_replace(true);
        let state = self.state();
        let waits = |state: &mut State| !state.running.is_empty();
        let waited = self.0.changed.wait_timeout_while(state, limit, waits);
        waited
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .running
            .clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No holder of the lock panics in the middle of a change.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Readable once a task has ended unexpectedly.
impl AsFd for Tasks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.0.as_fd()
    }
}

/// Records the end of a task, whatever the cause.
struct Ends(Tasks, &'static str);

impl Drop for Ends {
    fn drop(&mut self) {
        let Self(tasks, name) = self;
        let mut state = tasks.state();
        state.running.retain(|other| other != name);
        if !*tasks.0.stop.borrow() {
            state.ended.push(name);
            // One byte makes the pipe readable; later ones change nothing.
            let _ = (&tasks.0.wake.1).write(&[1]);
        }
        drop(state);
        tasks.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sched::{CloneFlags, unshare};
    use std::future::{pending, ready};
    use std::time::Instant;
    use weir_testing::TempDir;

    const LONG: Duration = Duration::from_secs(30);

    fn wakes(tasks: &Tasks, limit: PollTimeout) -> bool {
        let mut fds = [PollFd::new(tasks.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, limit).unwrap() > 0
    }

    #[test]
    fn all_stop_when_they_are_told_to() {
        let tasks = Tasks::new(Journal::default()).unwrap();
        for name in ["a", "b"] {
            tasks.start(name, || {}, pending()).unwrap();
        }
        assert!(!wakes(&tasks, PollTimeout::ZERO));
        assert_eq!(tasks.stop(LONG), Vec::<&str>::new());
        assert!(tasks.ended().is_empty() && !wakes(&tasks, PollTimeout::ZERO));
    }

    #[test]
    fn one_that_ends_or_panics_is_noticed() {
        let tasks = Tasks::new(Journal::default()).unwrap();
        tasks.start("stays", || {}, pending()).unwrap();
        tasks.start("ends", || {}, ready(())).unwrap();
        assert!(wakes(&tasks, PollTimeout::from(30_000_u16)));
        assert_eq!(tasks.ended(), ["ends"]);
        let panics = || std::panic::resume_unwind(Box::new(()));
        tasks.start("panics", panics, pending()).unwrap();
        let state = tasks.state();
        let one = |state: &mut State| state.ended.len() < 2;
        let waited = tasks.0.changed.wait_timeout_while(state, LONG, one);
        assert_eq!(waited.unwrap().0.ended, ["ends", "panics"]);
        assert_eq!(tasks.stop(LONG), Vec::<&str>::new());
    }

    #[test]
    fn one_that_cannot_start_names_itself_and_the_remedy() {
        let tasks = Tasks::new(Journal::default()).unwrap();
        let start = move || {
            weir_testing::descriptors::leave(0);
            tasks
                .start("late", || {}, pending())
                .unwrap_err()
                .to_string()
        };
        let full = std::thread::spawn(start).join().unwrap();
        assert!(full.starts_with("cannot start the thread late: "), "{full}");
        assert!(full.ends_with("; raise the limit of open files"), "{full}");
        let no_thread = io::Error::from_raw_os_error(nix::libc::EAGAIN);
        let no_thread = not_started("late", &no_thread).to_string();
        assert!(
            no_thread.ends_with("; raise the pids limit of the container"),
            "{no_thread}"
        );
    }

    /// A thread that is late would copy what its starter has opened since, and a program among it could not be executed.
    #[test]
    fn what_is_opened_after_the_start_is_in_no_table_but_the_starters() {
        let tasks = Tasks::new(Journal::default()).unwrap();
        let (copied, wait) = mpsc::channel();
        let late = move || {
            std::thread::sleep(Duration::from_millis(100));
            unshare(CloneFlags::CLONE_FILES).unwrap();
            copied.send(()).unwrap();
        };
        tasks.start("late", late, pending()).unwrap();
        let dir = TempDir::new();
        let program = dir.file("program");
        let file = std::fs::File::create_new(&program).unwrap();
        wait.recv().unwrap();
        let held = || {
            let all = std::fs::read_dir("/proc/self/task").unwrap();
            let tables =
                all.filter_map(|task| std::fs::read_dir(task.ok()?.path().join("fd")).ok());
            let files = tables
                .flatten()
                .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
            files.filter(|file| *file == program).count()
        };
        assert!(held() > 0);
        drop(file);
        // Threads of other tests may have copied the table in between, and end soon. This task keeps its own until it is stopped.
        let end = Instant::now() + LONG;
        while held() > 0 {
            assert!(Instant::now() < end, "a table has the file");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(tasks.stop(LONG), Vec::<&str>::new());
    }

    #[test]
    fn one_that_does_not_stop_is_named() {
        let (go, wait) = mpsc::channel::<()>();
        let tasks = Tasks::new(Journal::default()).unwrap();
        let (works, is_at_work) = mpsc::channel();
        let stuck = async move {
            works.send(()).unwrap();
            assert!(wait.recv().is_err());
        };
        tasks.start("stuck", || {}, stuck).unwrap();
        is_at_work.recv().unwrap();
        assert_eq!(tasks.stop(Duration::from_millis(10)), ["stuck"]);
        drop(go);
        assert_eq!(tasks.stop(LONG), Vec::<&str>::new());
    }
}
