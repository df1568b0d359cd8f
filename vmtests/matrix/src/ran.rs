//! The output and the exit status of a case, and the verdict that follows from them.
use super::case::What;
use super::model::Verdict;
use super::place::TestKernel;
use super::skip::Skip;
use weir_vm::Stream;
use weir_vm::proto::Ending;

/// The upper bound of the recorded output of a case.
const KEPT: usize = 256 << 10;

/// The output of a program, and how it ended.
#[derive(Debug, Default)]
pub(super) struct Ran {
    out: Vec<u8>,
    err: Vec<u8>,
    /// Both streams in the order of arrival.
    both: Vec<u8>,
    /// How the program ended; `None`: it has not ended.
    pub(super) ending: Option<Ending>,
    /// The error that the kernel reported, with its log.
    pub(super) kernel_error: Option<String>,
    /// Whether the machine was restored instead of booted.
    pub(super) restored: bool,
}

impl Ran {
    pub(super) fn add(&mut self, stream: Stream, bytes: &[u8]) {
        let of_stream = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        keep(of_stream, bytes);
        keep(&mut self.both, bytes);
    }

    pub(super) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.both).into_owned()
    }

    /// All skips in the output. The streams are parsed separately, because a line of one may interrupt a line of the other.
    fn skips(&self) -> Vec<Skip> {
        let all = |bytes: &Vec<u8>| Skip::all(&String::from_utf8_lossy(bytes));
        [&self.out, &self.err].into_iter().flat_map(all).collect()
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
        let skips = self.skips();
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
