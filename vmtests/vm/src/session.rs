//! The host's end of the port: requests, answers, and a deadline for each.
use crate::process::Stream;
use crate::proto::{Exit, Frame, Hello, Run, VERSION};
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The guest could not fulfil the request.
    Refused(String),
    /// The guest ended, hangs, or sent an unexpected answer.
    Silent(String),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) | Self::Silent(why) => f.write_str(why),
        }
    }
}

type Answer<T> = std::result::Result<T, Lost>;

/// An open port, and the deadline of the present request.
#[derive(Debug)]
pub(crate) struct Session {
    stream: UnixStream,
    deadline: Duration,
    until: Instant,
}

impl Read for Session {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        // SO_RCVTIMEO treats zero as no timeout.
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

impl Session {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            deadline: Duration::ZERO,
            until: Instant::now(),
        }
    }

    /// Sends the time and random bytes and waits for the greeting; must be the first request after every start.
    pub(crate) fn sync(&mut self, deadline: Duration) -> Answer<Hello> {
        let mut seed = [0; 32];
        let filled = File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut seed));
        filled.map_err(|e| Lost::Refused(format!("/dev/urandom: {e}")))?;
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let unix_nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        match self.ask(&Frame::Sync { unix_nanos, seed }, deadline)? {
            Frame::Hello(hello) if hello.version == VERSION => Ok(hello),
            Frame::Hello(Hello { version, .. }) => Err(Lost::Refused(format!(
                "its agent speaks version {version} of the protocol, we {VERSION}"
            ))),
            other => Err(unexpected(&other)),
        }
    }

    /// Runs a program. `deadline` is that of the guest's answer and must exceed the deadline in `run`.
    pub(crate) fn run(
        &mut self,
        run: &Run,
        deadline: Duration,
        output: &mut dyn FnMut(Stream, &[u8]),
    ) -> Answer<Exit> {
        self.send(&Frame::Run(run.clone()), deadline)?;
        loop {
            match self.receive()? {
                Frame::Output(stream, bytes) => output(stream, &bytes),
                Frame::Exit(exit) => return Ok(exit),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Reads a file of the guest.
    pub(crate) fn get(&mut self, path: &Path, deadline: Duration) -> Answer<Vec<u8>> {
        self.send(&Frame::Get(path.into()), deadline)?;
        let mut all = Vec::new();
        loop {
            match self.receive()? {
                Frame::Piece { bytes, is_last } => {
                    all.extend(bytes);
                    if is_last {
                        return Ok(all);
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    pub(crate) fn dmesg(&mut self, deadline: Duration) -> Answer<String> {
        match self.ask(&Frame::Dmesg, deadline)? {
            Frame::Log(text) => Ok(text),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn park(&mut self, deadline: Duration) -> Answer<()> {
        match self.ask(&Frame::Park, deadline)? {
            Frame::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, frame: &Frame, deadline: Duration) -> Answer<Frame> {
        self.send(frame, deadline)?;
        self.receive()
    }

    /// Sends a request; [`Session::receive`] must get the answer within `deadline`.
    fn send(&mut self, frame: &Frame, deadline: Duration) -> Answer<()> {
        (self.deadline, self.until) = (deadline, Instant::now() + deadline);
        let long =
            |e: io::Error| format!("{e} is too long for the guest: fewer arguments or variables");
        let bytes = frame.encode().map_err(|e| Lost::Refused(long(e)))?;
        self.stream.write_all(&bytes).map_err(|e| self.lost(&e))
    }

    fn receive(&mut self) -> Answer<Frame> {
        match Frame::read(self) {
            Ok(Frame::Failed(why)) => Err(Lost::Refused(why)),
            Ok(frame) => Ok(frame),
            Err(e) => Err(self.lost(&e)),
        }
    }

    fn lost(&self, e: &io::Error) -> Lost {
        Lost::Silent(match e.kind() {
            ErrorKind::InvalidData => format!("the guest sent {e}"),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let seconds = self.deadline.as_secs_f64();
                format!("no answer within {seconds:.0} s: it hangs")
            }
            _ => "the guest ended without a verdict".to_owned(),
        })
    }
}

fn unexpected(frame: &Frame) -> Lost {
    Lost::Silent(format!("the guest answered {}", frame.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The deadline for answers that do arrive, even on a busy machine.
    const LONG: Duration = Duration::from_secs(30);

    /// A session with a fake guest that sends these bytes after the first request.
    fn guest(answer: Vec<u8>) -> (Session, std::thread::JoinHandle<()>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            let mut question = [0; 4096];
            let _ = theirs.read(&mut question).unwrap();
            theirs.write_all(&answer).unwrap();
        });
        (Session::new(ours), thread)
    }

    fn fails(answer: Vec<u8>) -> String {
        let (mut session, thread) = guest(answer);
        let lost = session.sync(LONG).unwrap_err();
        thread.join().unwrap();
        lost.to_string()
    }

    #[test]
    fn no_verdict_is_never_a_good_one() {
        assert!(fails(Vec::new()).contains("ended without a verdict"));
        assert!(fails(vec![0; 8]).contains("a frame of 0 bytes"));
        assert!(fails(Frame::Done.encode().unwrap()).contains("answered Done"));
        assert!(fails(Frame::Failed("no".into()).encode().unwrap()) == "no");
        let old = Hello {
            version: VERSION + 1,
            ..Hello::default()
        };
        assert!(fails(Frame::Hello(old).encode().unwrap()).contains("version"));
    }

    #[test]
    fn a_guest_that_says_nothing_is_not_waited_for_longer_than_the_deadline() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let short = Duration::from_millis(300);
        let lost = Session::new(ours).sync(short).unwrap_err();
        assert!(lost.to_string().contains("it hangs"), "{lost}");
    }

    #[test]
    fn output_comes_before_the_verdict() {
        let exit = Exit {
            ending: crate::proto::Ending::Status(3),
            kernel_log: String::new(),
        };
        let frames = [
            Frame::Output(Stream::Out, b"one".to_vec()),
            Frame::Output(Stream::Err, b"two".to_vec()),
            Frame::Exit(exit.clone()),
        ];
        let (mut session, thread) =
            guest(frames.iter().flat_map(|f| f.encode().unwrap()).collect());
        let run = Run {
            argv: vec!["x".into()],
            cwd: "/".into(),
            env: Vec::new(),
            deadline_ms: 1,
        };
        let mut seen = Vec::new();
        let got = session.run(&run, LONG, &mut |stream, bytes| {
            seen.push((stream, bytes.to_vec()))
        });
        assert_eq!(got.unwrap(), exit);
        assert_eq!(
            seen,
            [
                (Stream::Out, b"one".to_vec()),
                (Stream::Err, b"two".to_vec())
            ]
        );
        thread.join().unwrap();
    }
}
