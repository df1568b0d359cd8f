//! Records the results of a run in a file, so that a stopped run can continue.
//!
//! The first line identifies the run; each further line is the result of a case. A run with other test programs,
//! variables or another selection is a different one, and nothing is reused. Failed and ignored cases run again.
use crate::Case;
use crate::REQUIRE;
use crate::artifacts::Artifacts;
use crate::model::Verdict;
use crate::run::Done;
use crate::ship::{GOLDEN, RELEASE};
use serde::Serialize;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use weir_vm::{At, Error, Result, note};

/// The properties that must be equal for a run to continue.
#[derive(Serialize)]
struct Identity<'a> {
    /// The test programs and binaries: path, size, and modification time in nanoseconds since 1970.
    programs: Vec<(&'a Path, u64, u128)>,
    cases: Vec<&'a str>,
    selection: &'a str,
    /// The variables that change what cases do or what counts as a failure.
    variables: [(&'a str, Option<String>); 3],
}

/// Formats the first line of the file.
pub(crate) fn identity(artifacts: &Artifacts, cases: &[Case], selection: &str) -> Result<String> {
    let tests = artifacts.programs.iter().map(|p| &p.executable);
    let binaries = artifacts.binaries.values();
    let programs = tests.chain(binaries).map(|path| {
        let about = fs::metadata(path).at(path)?;
        let written = about.modified().at(path)?;
        let since = written.duration_since(SystemTime::UNIX_EPOCH);
        let nanos = since.unwrap_or_default().as_nanos();
        Ok((path.as_path(), about.len(), nanos))
    });
    let identity = Identity {
        programs: programs.collect::<Result<_>>()?,
        cases: cases.iter().map(|case| case.name.as_str()).collect(),
        selection,
        variables: [GOLDEN, RELEASE, REQUIRE].map(|name| {
            let value = std::env::var_os(name);
            (name, value.map(|v| v.to_string_lossy().into_owned()))
        }),
    };
    serde_json::to_string(&identity).map_err(|e| Error::new("the run", e, "Report it"))
}

/// The file, open for appending.
#[derive(Debug)]
pub(crate) struct Progress {
    path: PathBuf,
    file: Mutex<File>,
}

impl Progress {
    /// Opens the file of a run and returns the results that are still valid. Without `resume`, or if the file has another
    /// identity, it is truncated.
    pub(crate) fn open(path: &Path, identity: &str, resume: bool) -> Result<(Self, Vec<Done>)> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).at(dir)?;
        }
        let old = || fs::read_to_string(path).if_there(path);
        let text = resume.then(old).transpose()?.flatten().unwrap_or_default();
        let mut lines = text.lines();
        let mut done = Vec::new();
        match lines.next() {
            Some(first) if first == identity => {
                // The last line may be incomplete if the run was killed while writing it.
                done.extend(lines.map_while(|line| serde_json::from_str::<Done>(line).ok()));
                done.retain(|d| is_settled(&d.result.verdict));
            }
            Some(_) => note(&format!(
                "{} is of another run (other programs, cases, selection or variables): nothing is taken over",
                path.display()
            )),
            None => {}
        }
        let progress = Self {
            path: path.to_owned(),
            file: Mutex::new(File::create(path).at(path)?),
        };
        progress.line(identity)?;
        done.iter().try_for_each(|done| progress.add(done))?;
        Ok((progress, done))
    }

    /// Appends the result of a case.
    pub(crate) fn add(&self, done: &Done) -> Result<()> {
        let line = serde_json::to_string(done);
        self.line(&line.map_err(|e| Error::new("the run", e, "Report it"))?)
    }

    fn line(&self, text: &str) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(format!("{text}\n").as_bytes())
            .at(&self.path)
    }
}

/// Whether the result is final. The cause of a failed or ignored case may have been removed in the meantime.
fn is_settled(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Passed | Verdict::Skipped(_))
}

/// Removes the file; the report of the completed run contains all results.
pub(crate) fn end(path: &Path) -> Result<()> {
    fs::remove_file(path).if_there(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::{Done, Progress, end};
    use crate::model::{CaseResult, Verdict};
    use crate::skip::Skip;
    use std::fs::OpenOptions;
    use std::io::Write as _;

    fn done(case: &str) -> Done {
        ended(case, Verdict::Passed)
    }

    fn ended(case: &str, verdict: Verdict) -> Done {
        Done {
            result: CaseResult {
                environment: "6.12".to_owned(),
                case: case.to_owned(),
                verdict,
                seconds: 1.5,
                restored: true,
            },
            capabilities: Vec::new(),
            cold_boot: Some(2.0),
        }
    }

    #[test]
    fn a_run_that_was_killed_goes_on_and_another_one_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report").join("progress");
        let kept = |identity: &str, resume| {
            let (progress, kept) = Progress::open(&path, identity, resume).unwrap();
            (progress, kept.into_iter().map(|d| d.result))
        };
        let (progress, _) = kept("one", true);
        progress.add(&done("a")).unwrap();
        progress.add(&done("b")).unwrap();
        drop(progress);
        // As if the run had been killed in the middle of a line.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"result\":{\"envir").unwrap();
        let (progress, results) = kept("one", true);
        assert!(results.eq([done("a").result, done("b").result]));
        progress.add(&done("c")).unwrap();
        assert_eq!(kept("one", true).1.count(), 3);
        assert_eq!(kept("other", true).1.count(), 0);
        let (progress, _) = kept("one", true);
        progress.add(&done("a")).unwrap();
        assert_eq!(kept("one", false).1.count(), 0);
        end(&path).unwrap();
        assert!(!path.exists());
        end(&path).unwrap();
    }

    #[test]
    fn what_failed_or_could_not_be_tried_is_run_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress");
        let (text, reason) = ("line\nline".to_owned(), String::new());
        let skipped = Verdict::Skipped(Skip {
            probe: "nft".to_owned(),
            since: "5.2".to_owned(),
            reason: reason.clone(),
        });
        let (progress, _) = Progress::open(&path, "one", true).unwrap();
        let verdicts = [
            Verdict::Failed { text },
            skipped.clone(),
            Verdict::Ignored { reason },
            Verdict::Passed,
        ];
        for verdict in verdicts {
            progress.add(&ended("a", verdict)).unwrap();
        }
        drop(progress);
        let (_, kept) = Progress::open(&path, "one", true).unwrap();
        let kept = kept.into_iter().map(|d| d.result.verdict);
        assert!(kept.eq([skipped, Verdict::Passed]));
    }
}
