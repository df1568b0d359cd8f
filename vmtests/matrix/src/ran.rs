//! The output and the exit status of a case, and the verdict that follows from them.
use super::case::What;
use super::model::Verdict;
use super::place::TestKernel;
use super::skip::Skip;
use weir_vm::Stream;
use weir_vm::proto::Ending;

/// The upper bound of the recorded output of a case.
const KEPT: usize = 256 << 10;
/// The upper bounds of the recorded skips of a stream, and of the length of their lines.
const SKIPS: usize = 256;
const LINE: usize = 4096;

/// The output of a program, and how it ended.
#[derive(Debug, Default)]
pub(super) struct Ran {
    out: Vec<u8>,
    /// Both streams in the order of arrival.
    both: Vec<u8>,
    /// The skips in each stream, because a line of one may interrupt a line of the other.
    skips: [Skips; 2],
    /// How the program ended; `None`: it has not ended.
    pub(super) ending: Option<Ending>,
    /// The error that the kernel reported, with its log.
    pub(super) kernel_error: Option<String>,
    /// Whether the machine was restored instead of booted.
    pub(super) restored: bool,
}

impl Ran {
    pub(super) fn add(&mut self, stream: Stream, bytes: &[u8]) {
        let [out, err] = &mut self.skips;
        match stream {
            Stream::Out => {
                out.add(bytes);
                keep(&mut self.out, bytes);
            }
            Stream::Err => err.add(bytes),
        }
        keep(&mut self.both, bytes);
    }

    pub(super) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.both).into_owned()
    }

    /// The verdict on a case; whatever is not clearly a success is a failure.
    pub(super) fn verdict(&self, what: &What, place: &TestKernel) -> Verdict {
        let failed = |why: &str| Verdict::Failed {
            text: format!("{why}\n{}", self.text()).trim_end().to_owned(),
        };
        if let Some(error) = &self.kernel_error {
            return failed(error);
        }
        match self.ending {
            Some(Ending::Status(0)) => {}
            Some(ending) => return failed(&ending.to_string()),
            None => return failed("it has no verdict"),
        }
        if matches!(what, What::Test { .. }) && !self.stdout().contains("test result: ok. 1 passed")
        {
            return failed("the test program did not run exactly this test");
        }
        let skips: Vec<Skip> = self.skips.iter().flat_map(Skips::all).collect();
        let Some(first) = skips.first() else {
            return Verdict::Passed;
        };
        // On this machine there may be other reasons: the user's permissions, or the configuration of its kernel.
        if !place.is_host() {
            let version = place.version.unwrap_or(super::skip::Version(u32::MAX, 0));
            for skip in &skips {
                if let Some(why) = skip.objection(version, place.taken()) {
                    return failed(&format!("it skipped itself, and {why}"));
                }
            }
        }
        Verdict::Skipped(first.clone())
    }
}

/// The skips in a stream, however long it is.
#[derive(Debug, Default)]
struct Skips {
    found: Vec<Skip>,
    /// The start of the line that has not ended yet.
    line: Vec<u8>,
}

impl Skips {
    fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let room = LINE.saturating_sub(self.line.len());
            let start = piece.get(..piece.len().min(room)).unwrap_or_default();
            self.line.extend_from_slice(start);
            if piece.ends_with(b"\n") {
                if self.found.len() < SKIPS {
                    self.found.extend(self.last());
                }
                self.line.clear();
            }
        }
    }

    fn last(&self) -> Option<Skip> {
        Skip::all(&String::from_utf8_lossy(&self.line)).pop()
    }

    fn all(&self) -> impl Iterator<Item = Skip> {
        self.found.iter().cloned().chain(self.last())
    }
}

fn keep(to: &mut Vec<u8>, bytes: &[u8]) {
    let room = KEPT.saturating_sub(to.len());
    to.extend_from_slice(bytes.get(..bytes.len().min(room)).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::Version;

    fn place(version: Version) -> TestKernel {
        let mut place = TestKernel::host();
        place.about.name = "6.1".into();
        place.version = Some(version);
        place
    }

    fn verdict(out: &str, err: &str, ending: Option<Ending>) -> Verdict {
        let mut ran = Ran {
            ending,
            ..Ran::default()
        };
        ran.add(Stream::Out, out.as_bytes());
        ran.add(Stream::Err, err.as_bytes());
        let what = What::Test {
            program: 0,
            test: "t".into(),
        };
        ran.verdict(&what, &place(Version(6, 1)))
    }

    const OK: &str = "\nrunning 1 test\ntest t ... ok\n\ntest result: ok. 1 passed; 0 failed;\n";
    const END: Option<Ending> = Some(Ending::Status(0));

    #[test]
    fn only_a_test_that_ran_and_said_so_passed() {
        assert_eq!(verdict(OK, "", END), Verdict::Passed);
        for (out, ending) in [
            (OK, None),
            (OK, Some(Ending::Status(101))),
            (OK, Some(Ending::Signal(11))),
            (OK, Some(Ending::TimedOut)),
            ("test result: ok. 0 passed;", END),
            ("", END),
        ] {
            assert!(
                matches!(verdict(out, "", ending), Verdict::Failed { .. }),
                "{out} {ending:?}"
            );
        }
    }

    #[test]
    fn a_skip_must_be_one_that_this_kernel_may_have() {
        let newer = "skipped: expression inner (since 6.2): EOPNOTSUPP";
        let older = "skipped: expression last (since 5.14): EOPNOTSUPP";
        assert!(matches!(verdict(OK, newer, END), Verdict::Skipped(_)));
        assert!(matches!(verdict(OK, older, END), Verdict::Failed { .. }));
        // Every skip is checked, not only the first.
        let both = format!("{newer}\n{older}");
        assert!(matches!(verdict(OK, &both, END), Verdict::Failed { .. }));
        assert!(matches!(
            verdict(OK, "skipped: no root", END),
            Verdict::Failed { .. }
        ));
    }

    #[test]
    fn a_skip_is_found_after_a_long_output() {
        let long = "a line of output\n".repeat(KEPT / 10);
        let is_skip = |verdict| match verdict {
            Verdict::Failed { text } => text.starts_with("it skipped itself"),
            _ => false,
        };
        assert!(is_skip(verdict(
            OK,
            &format!("{long}skipped: no root"),
            END
        )));
        assert!(is_skip(verdict(
            OK,
            &format!("{long}skip: no root\nmore\n"),
            END
        )));
    }

    #[test]
    fn a_skip_is_found_in_pieces_and_skips_are_bounded() {
        let text = "test t ... skipped: no root\nskipped: no tool\nok\nskip: the end";
        for at in 0..text.len() {
            let mut skips = Skips::default();
            let (front, rest) = text.split_at(at);
            skips.add(front.as_bytes());
            skips.add(rest.as_bytes());
            assert_eq!(skips.all().collect::<Vec<_>>(), Skip::all(text), "{at}");
        }
        let many: String = (0..2 * SKIPS).map(|n| format!("skipped: {n}\n")).collect();
        let mut skips = Skips::default();
        skips.add(many.as_bytes());
        skips.add("endless".repeat(LINE).as_bytes());
        assert_eq!((skips.all().count(), skips.line.len()), (SKIPS, LINE));
    }

    #[test]
    fn a_kernel_error_is_a_failure_whatever_the_test_says() {
        let mut ran = Ran {
            ending: END,
            kernel_error: Some("warning: WARNING: CPU: 0".into()),
            ..Ran::default()
        };
        ran.add(Stream::Out, OK.as_bytes());
        let what = What::Preflight;
        let Verdict::Failed { text } = ran.verdict(&what, &place(Version(6, 1))) else {
            panic!("not a failure");
        };
        assert!(text.starts_with("warning: WARNING"), "{text}");
    }
}
