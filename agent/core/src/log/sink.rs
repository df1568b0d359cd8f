//! Formats lines and writes them to the targets.

use super::target::Queue;
use super::{Levels, Scope};
use crate::journal::{Journal, Recent, process};
use crate::thread::rights;
use nix::fcntl::OFlag;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use weir_cni::log::{Level, escaped, is_deceptive, json_quoted, timestamp};

/// Time that a line may delay its thread when a target begins to block. After that, no thread waits for the target.
const PROMPT: Duration = Duration::from_millis(50);

/// The log. Clones share their targets.
#[derive(Clone)]
pub struct Log {
    json: bool,
    levels: Levels,
    targets: Vec<Queue>,
    journal: Journal,
    recent: Arc<Mutex<Recent>>,
}

impl Log {
    /// Opens the targets (`stdout`, `stderr`, or files, which are appended to) and starts a writer thread for each.
    /// Lost lines are recorded in the journal.
    ///
    /// # Errors
    /// A target cannot be opened; names the target.
    pub fn open(
        targets: &[String],
        json: bool,
        levels: Levels,
        journal: Journal,
    ) -> Result<Self, String> {
        let mut log = Self {
            json,
            levels,
            targets: Vec::new(),
            journal,
            recent: Arc::default(),
        };
        for target in targets {
            let file = match target.as_str() {
                "stdout" => duplicate(io::stdout()),
                "stderr" => duplicate(io::stderr()),
                path => append(path),
            };
            let begun = file.and_then(|file| log.start(file));
            log.targets.push(begun.map_err(|e| {
                format!(
                    "log target {target}: {e}; give stdout, stderr or a file that can be written"
                )
            })?);
        }
        Ok(log)
    }

    fn start(&self, file: File) -> io::Result<Queue> {
        let (queue, encoder, journal) = (Queue::default(), self.clone(), self.journal.clone());
        let journal_of_thread = journal.clone();
        let begins = move || journal_of_thread.rights(rights::enter("log"));
        let note = move |lines| {
            let text = format!("{lines} lines are missing here: this target took none, or failed");
            encoder.encode(Level::Warn, &text)
        };
        let failed = move |lines| journal.record(process::Event::LinesDropped { lines });
        queue.clone().start(file, begins, note, failed)?;
        Ok(queue)
    }

    fn encode(&self, level: Level, msg: &str) -> String {
        self.line(Scope::Agent, level, &timestamp(SystemTime::now()), msg, &[])
    }

    /// Returns true if a line of this scope and level is written.
    pub fn hears(&self, scope: Scope, level: Level) -> bool {
        level >= self.levels.of(scope)
    }

    /// Encodes one line, with its newline.
    pub fn line(
        &self,
        scope: Scope,
        level: Level,
        time: &str,
        msg: &str,
        labels: &[(String, String)],
    ) -> String {
        let (level, scope) = (level.as_str(), scope.name());
        let quote = json_quoted;
        // Writing to a String does not fail.
        let mut out = String::new();
        if self.json {
            let _ = write!(
                out,
                "{{\"level\":\"{level}\",\"time\":{},\"scope\":\"{scope}\",\"msg\":{}",
                quote(time),
                quote(msg)
            );
            for (key, value) in labels {
                let _ = write!(out, ",{}:{}", quote(key), quote(value));
            }
            out.push('}');
        } else {
            // So that text from outside cannot imitate a log line or control a terminal.
            let printable = |text| escaped(text, is_deceptive);
            let _ = write!(out, "{time}\t{level}\t{scope}\t{}", printable(msg));
            for (key, value) in labels {
                let _ = write!(out, "\t{}={}", printable(key), printable(value));
            }
        }
        out.push('\n');
        out
    }

    /// Writes complete lines; a batch stays together.
    pub fn write(&self, lines: &str) {
        locked(&self.recent).push(lines);
        let lost: u64 = self.targets.iter().map(|target| target.push(lines)).sum();
        if lost > 0 {
            self.journal
                .record(process::Event::LinesDropped { lines: lost });
        }
        self.settle(PROMPT, false);
    }

    /// Waits until the current lines are written, or until the limit.
    pub fn flush(&self, limit: Duration) {
        self.settle(limit, true);
    }

    fn settle(&self, limit: Duration, insists: bool) {
        let end = Instant::now() + limit;
        for target in &self.targets {
            target.settle(end.saturating_duration_since(Instant::now()), insists);
        }
    }

    /// Returns the last lines as written.
    pub fn recent(&self) -> String {
        locked(&self.recent).text(|n| format!("({n} earlier lines are not kept)"))
    }
}

/// Duplicates the descriptor: the streams of std hold a lock during a write, and write again when the process exits.
fn duplicate(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(File::from)
}

/// Opens a regular file. `O_NONBLOCK` since opening a pipe without a reader would block, and writing to a full one too.
fn append(path: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    let file = options.custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a file",
        )),
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json() {
        let mut log = Log::open(&[], false, Levels::default(), Journal::default()).unwrap();
        let labels = [("pod".to_owned(), "a\u{1b}[m/b".to_owned())];
        let line = |log: &Log| log.line(Scope::Plugin, Level::Warn, "T", "x\ny", &labels);
        assert_eq!(line(&log), "T\twarn\tcni-plugin\tx\\ny\tpod=a\\u{1b}[m/b\n");
        log.json = true;
        assert_eq!(
            line(&log),
            "{\"level\":\"warn\",\"time\":\"T\",\"scope\":\"cni-plugin\",\"msg\":\"x\\ny\",\
             \"pod\":\"a\\u001b[m/b\"}\n"
        );
    }

    #[test]
    fn what_deceives_a_reader_is_escaped() {
        let mut log = Log::open(&[], false, Levels::default(), Journal::default()).unwrap();
        let line = |log: &Log| {
            log.line(
                Scope::Plugin,
                Level::Info,
                "T",
                "a\u{202e}b\u{2028}c\u{9b}",
                &[],
            )
        };
        assert!(line(&log).ends_with("\ta\\u{202e}b\\u{2028}c\\u{9b}\n"));
        log.json = true;
        assert!(line(&log).contains("\"msg\":\"a\\u202eb\\u2028c\\u009b\""));
    }

    #[test]
    fn a_pipe_in_the_place_of_a_log_file_is_refused() {
        let path = std::env::temp_dir().join(format!("weir-log-{}", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let opened = Log::open(
            &[path.display().to_string()],
            false,
            Levels::default(),
            Journal::default(),
        );
        std::fs::remove_file(&path).unwrap();
        assert!(opened.err().unwrap().contains(&path.display().to_string()));
    }
}
