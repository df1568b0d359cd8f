//! Waits for changes to the installed files.

use super::listing::is_candidate;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_core::thread::task::Tasks;

/// Interval at which the targets of paths are checked: a changed link within a path causes no event.
const LOOK: Duration = Duration::from_secs(5);

/// SIGINT, SIGTERM and the end of a task, as descriptors to poll.
pub struct Signals(SignalFd, Tasks);

impl Signals {
    /// Blocks both signals in this thread and in threads that it starts later; must be called before any is started.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn block(tasks: Tasks) -> nix::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self(SignalFd::with_flags(&set, flags)?, tasks))
    }

    fn fds(&self) -> [PollFd<'_>; 2] {
        [self.0.as_fd(), self.1.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN))
    }

    /// Returns the tasks that ended by themselves, for which the process must end.
    pub fn ended_tasks(&self) -> Vec<&'static str> {
        self.1.ended()
    }

    /// Waits up to `limit`. Returns true if a signal arrived, which stays pending, so that the next call sees it too.
    pub(crate) fn wait(&self, limit: Duration) -> nix::Result<bool> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut fds = self.fds();
            // One additional millisecond: a timeout of 0 would cause a busy loop for the last fraction of a millisecond.
            let timeout = PollTimeout::try_from(left + Duration::from_millis(1));
            match poll(&mut fds, timeout.unwrap_or(PollTimeout::MAX)) {
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
                Ok(n) if n > 0 => return Ok(true),
                Ok(_) if left.is_zero() => return Ok(false),
                Ok(_) => {}
            }
        }
    }

    /// Returns true if a signal has arrived, which stays pending.
    pub(crate) fn came(&self) -> bool {
        poll(&mut self.fds(), PollTimeout::ZERO).is_ok_and(|n| n > 0)
    }
}

/// The reason for the end of a wait.
pub(crate) enum Woken {
    /// SIGINT or SIGTERM, or a task ended.
    Signal,
    /// Something changed; a text.
    Changed(String),
    /// The time limit, without a change.
    Late,
}

#[derive(Clone)]
enum Watched {
    /// A file, for all changes including its mode.
    File(PathBuf),
    /// A directory, for names that a runtime would load.
    Configurations(PathBuf),
    /// A directory, for all names: the kubelet renews it by links.
    Credentials(PathBuf),
}

/// A set of inotify watches, which end when it is dropped.
pub(crate) struct Watch {
    inotify: Inotify,
    watched: HashMap<WatchDescriptor, Watched>,
    /// The target of each path before its watch was added: device and inode.
    led: Vec<(PathBuf, Option<(u64, u64)>)>,
    /// Texts about paths that did not exist and are not watched.
    pub(crate) missing: Vec<String>,
}

impl Watch {
    pub(crate) fn new() -> nix::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Self {
            inotify,
            watched: HashMap::new(),
            led: Vec::new(),
            missing: Vec::new(),
        })
    }

    pub(crate) fn file(&mut self, path: &Path) -> nix::Result<()> {
        let mask = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        self.add(path, mask, Watched::File(path.to_owned()))
    }

    pub(crate) fn configurations(&mut self, dir: &Path) -> nix::Result<()> {
        let what = Watched::Configurations(dir.to_owned());
        self.add(dir, Self::directory(), what)
    }

    pub(crate) fn credentials(&mut self, dir: &Path) -> nix::Result<()> {
        self.add(dir, Self::directory(), Watched::Credentials(dir.to_owned()))
    }

    /// Returns the events of a directory. Attributes are left out, as they do not affect the content of a file. Files that are
    /// moved away are included: a configuration under another name is gone for the runtime.
    fn directory() -> AddWatchFlags {
        AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR
    }

    fn add(&mut self, path: &Path, mask: AddWatchFlags, what: Watched) -> nix::Result<()> {
        self.led.push((path.to_owned(), leads(path)));
        match self.inotify.add_watch(path, mask) {
            Ok(wd) => {
                self.watched.insert(wd, what);
                Ok(())
            }
            Err(e @ (Errno::ENOENT | Errno::ENOTDIR)) => {
                self.missing
                    .push(format!("{} is not watched: {e}", path.display()));
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Waits for a relevant change, at most for `limit`.
    pub(crate) fn wait(&self, signals: &Signals, limit: Option<Duration>) -> nix::Result<Woken> {
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Woken::Late);
            }
            let timeout = left.map_or(LOOK, |left| LOOK.min(left + Duration::from_millis(1)));
            let [signal, task] = signals.fds();
            let changed = PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN);
            let mut fds = [signal, task, changed];
            let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => continue,
                Ok(0) => match self.elsewhere() {
                    Some(path) => {
                        let what = format!("{} is another one now", path.display());
                        return Ok(Woken::Changed(what));
                    }
                    None => continue,
                },
                other => other?,
            };
            if fds.iter().take(2).any(|fd| fd.any().unwrap_or(false)) {
                return Ok(Woken::Signal);
            }
            let events = match self.inotify.read_events() {
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                other => other?,
            };
            if let Some(what) = events.iter().find_map(|e| self.describe(e)) {
                return Ok(Woken::Changed(what));
            }
        }
    }

    /// Returns a path that no longer leads to the watched file.
    fn elsewhere(&self) -> Option<&Path> {
        let mut led = self.led.iter();
        let moved = led.find(|(path, led)| leads(path) != *led);
        moved.map(|(path, _)| path.as_path())
    }

    /// Describes an event; `None` if it is not relevant.
    fn describe(&self, event: &InotifyEvent) -> Option<String> {
        let verb = [
            (
                AddWatchFlags::IN_Q_OVERFLOW,
                "changed too often to be followed",
            ),
            (AddWatchFlags::IN_CREATE, "was created"),
            (AddWatchFlags::IN_MOVED_TO, "was moved here"),
            (AddWatchFlags::IN_MOVED_FROM, "was moved away"),
            (AddWatchFlags::IN_MOVE_SELF, "was moved away"),
            (AddWatchFlags::IN_MODIFY, "was modified"),
            (
                AddWatchFlags::IN_ATTRIB,
                "was renamed, or changed its mode or owner",
            ),
            (AddWatchFlags::IN_DELETE, "was deleted"),
            (AddWatchFlags::IN_DELETE_SELF, "was deleted"),
            (AddWatchFlags::IN_UNMOUNT, "was unmounted"),
        ];
        let verb = verb.iter().find(|(flag, _)| event.mask.intersects(*flag));
        // IN_IGNORED follows one of the events above.
        let verb = verb.map(|(_, verb)| *verb)?;
        let Some(watched) = self.watched.get(&event.wd) else {
            return Some(format!("something {verb}"));
        };
        let (Watched::File(path) | Watched::Configurations(path) | Watched::Credentials(path)) =
            watched;
        let Some(name) = &event.name else {
            return Some(format!("{} {verb}", path.display()));
        };
        let path = path.join(name);
        let counts = match watched {
            Watched::Configurations(_) => is_candidate(&path),
            _ => true,
        };
        counts.then(|| format!("{} {verb}", path.display()))
    }
}

fn leads(path: &Path) -> Option<(u64, u64)> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_runtime_reads_wakes_and_another_one_does_not() {
        let tasks = Tasks::new(weir_core::journal::Journal::default()).unwrap();
        let signals = Signals::block(tasks).unwrap();
        let dir = std::env::temp_dir().join(format!("weir-wakes-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for (name, wakes) in [
            ("a.conf", true),
            (".conflist", true),
            ("05-x.json", true),
            ("notes.txt", false),
        ] {
            let mut watch = Watch::new().unwrap();
            watch.configurations(&dir).unwrap();
            std::fs::write(dir.join(name), "{}").unwrap();
            let woken = watch.wait(&signals, Some(Duration::from_millis(100)));
            assert_eq!(matches!(woken, Ok(Woken::Changed(_))), wakes, "{name}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_task_that_ends_by_itself_ends_every_wait() {
        let tasks = Tasks::new(weir_core::journal::Journal::default()).unwrap();
        let signals = Signals::block(tasks.clone()).unwrap();
        assert!(!signals.came() && signals.ended_tasks().is_empty());
        tasks.start("ends", || {}, std::future::ready(())).unwrap();
        assert!(signals.wait(Duration::from_secs(30)).unwrap());
        let watch = Watch::new().unwrap();
        assert!(matches!(watch.wait(&signals, None), Ok(Woken::Signal)));
        assert!(signals.came() && signals.ended_tasks() == ["ends"]);
    }
}
