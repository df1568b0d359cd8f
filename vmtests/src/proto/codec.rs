//! Frames to bytes and back. The two halves have the same order.
use super::wire::{Reader, put_bytes, put_u32, put_u64};
use super::{Ending, Exit, FilePiece, Frame, Garbage, Hello, Run};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

mod kind {
    pub(super) const SYNC: u8 = 1;
    pub(super) const LOAD: u8 = 2;
    pub(super) const FILE: u8 = 3;
    pub(super) const RUN: u8 = 4;
    pub(super) const GET: u8 = 5;
    pub(super) const DMESG: u8 = 6;
    pub(super) const PARK: u8 = 7;
    pub(super) const QUIT: u8 = 8;
    pub(super) const HELLO: u8 = 65;
    pub(super) const OUT: u8 = 66;
    pub(super) const ERR: u8 = 67;
    pub(super) const EXIT: u8 = 68;
    pub(super) const PIECE: u8 = 69;
    pub(super) const LOG: u8 = 70;
    pub(super) const DONE: u8 = 71;
    pub(super) const FAILED: u8 = 72;
}

impl Frame {
    /// The frame as bytes, its length in front.
    ///
    /// A frame that is too long for the other side is not cut here: what makes long ones keeps to [`super::CHUNK`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut b = vec![0; 4];
        match self {
            Self::Sync { unix_nanos, seed } => {
                b.push(kind::SYNC);
                put_u64(&mut b, *unix_nanos);
                b.extend_from_slice(seed);
            }
            Self::Load(files) => {
                b.push(kind::LOAD);
                files.iter().for_each(|f| put_path(&mut b, f));
            }
            Self::File(piece) => {
                b.push(kind::FILE);
                put_path(&mut b, &piece.path);
                put_u32(&mut b, piece.mode);
                b.extend([u8::from(piece.is_first), u8::from(piece.is_last)]);
                put_bytes(&mut b, &piece.bytes);
            }
            Self::Run(run) => {
                b.push(kind::RUN);
                put_run(&mut b, run);
            }
            Self::Get(path) => {
                b.push(kind::GET);
                put_path(&mut b, path);
            }
            Self::Dmesg => b.push(kind::DMESG),
            Self::Park => b.push(kind::PARK),
            Self::Quit => b.push(kind::QUIT),
            Self::Hello(hello) => {
                b.push(kind::HELLO);
                put_u32(&mut b, hello.version);
                put_bytes(&mut b, hello.release.as_bytes());
                put_u32(&mut b, hello.modules);
                hello
                    .notes
                    .iter()
                    .for_each(|n| put_bytes(&mut b, n.as_bytes()));
            }
            Self::Out(bytes) => {
                b.push(kind::OUT);
                put_bytes(&mut b, bytes);
            }
            Self::Err(bytes) => {
                b.push(kind::ERR);
                put_bytes(&mut b, bytes);
            }
            Self::Exit(exit) => {
                b.push(kind::EXIT);
                let (how, value) = match exit.ending {
                    Ending::Status(status) => (0, status),
                    Ending::Signal(signal) => (1, signal),
                    Ending::TimedOut => (2, 0),
                };
                b.push(how);
                put_u32(&mut b, value.cast_unsigned());
                put_u64(&mut b, exit.elapsed_ms);
                put_bytes(&mut b, exit.kernel_log.as_bytes());
            }
            Self::Piece { bytes, is_last } => {
                b.push(kind::PIECE);
                b.push((*is_last).into());
                put_bytes(&mut b, bytes);
            }
            Self::Log(text) => {
                b.push(kind::LOG);
                put_bytes(&mut b, text.as_bytes());
            }
            Self::Done => b.push(kind::DONE),
            Self::Failed(why) => {
                b.push(kind::FAILED);
                put_bytes(&mut b, why.as_bytes());
            }
        }
        let length = u32::try_from(b.len() - 4).unwrap_or(u32::MAX);
        if let Some(front) = b.first_chunk_mut() {
            *front = length.to_le_bytes();
        }
        b
    }

    /// The frame of a kind and a body, as a decoder finds them.
    ///
    /// # Errors
    ///
    /// [`Garbage`] when it is not one.
    pub(crate) fn decode(kind: u8, body: &[u8]) -> Result<Self, Garbage> {
        let known = matches!(kind, kind::SYNC..=kind::QUIT | kind::HELLO..=kind::FAILED);
        if !known {
            return Err(Garbage::Kind(kind));
        }
        let mut r = Reader::new(body);
        match Self::read(kind, &mut r) {
            Some(frame) if r.is_empty() => Ok(frame),
            _ => Err(Garbage::Body(kind)),
        }
    }

    fn read(kind: u8, r: &mut Reader<'_>) -> Option<Self> {
        Some(match kind {
            kind::SYNC => Self::Sync {
                unix_nanos: r.u64()?,
                seed: r.array()?,
            },
            kind::LOAD => {
                let mut files = Vec::new();
                while !r.is_empty() {
                    files.push(path(r)?);
                }
                Self::Load(files)
            }
            kind::FILE => Self::File(FilePiece {
                path: path(r)?,
                mode: r.u32()?,
                is_first: r.bool()?,
                is_last: r.bool()?,
                bytes: r.bytes()?.to_vec(),
            }),
            kind::RUN => Self::Run(read_run(r)?),
            kind::GET => Self::Get(path(r)?),
            kind::DMESG => Self::Dmesg,
            kind::PARK => Self::Park,
            kind::QUIT => Self::Quit,
            kind::HELLO => {
                let (version, release, modules) = (r.u32()?, r.text()?, r.u32()?);
                let mut notes = Vec::new();
                while !r.is_empty() {
                    notes.push(r.text()?);
                }
                Self::Hello(Hello {
                    version,
                    release,
                    modules,
                    notes,
                })
            }
            kind::OUT => Self::Out(r.bytes()?.to_vec()),
            kind::ERR => Self::Err(r.bytes()?.to_vec()),
            kind::EXIT => {
                let (how, value) = (r.u8()?, r.u32()?.cast_signed());
                let ending = match how {
                    0 => Ending::Status(value),
                    1 => Ending::Signal(value),
                    2 if value == 0 => Ending::TimedOut,
                    _ => return None,
                };
                Self::Exit(Exit {
                    ending,
                    elapsed_ms: r.u64()?,
                    kernel_log: r.text()?,
                })
            }
            kind::PIECE => {
                let is_last = r.bool()?;
                Self::Piece {
                    bytes: r.bytes()?.to_vec(),
                    is_last,
                }
            }
            kind::LOG => Self::Log(r.text()?),
            kind::DONE => Self::Done,
            kind::FAILED => Self::Failed(r.text()?),
            _ => return None,
        })
    }
}

fn put_path(b: &mut Vec<u8>, path: &Path) {
    put_bytes(b, path.as_os_str().as_bytes());
}

fn path(r: &mut Reader<'_>) -> Option<PathBuf> {
    os_string(r).map(PathBuf::from)
}

fn os_string(r: &mut Reader<'_>) -> Option<OsString> {
    r.bytes().map(|b| OsString::from_vec(b.to_vec()))
}

fn put_run(b: &mut Vec<u8>, run: &Run) {
    put_path(b, &run.cwd);
    b.push(run.is_isolated.into());
    put_u64(b, run.deadline_ms);
    b.push(run.stdin.is_some().into());
    if let Some(stdin) = &run.stdin {
        put_path(b, stdin);
    }
    put_u32(b, u32::try_from(run.argv.len()).unwrap_or(u32::MAX));
    run.argv.iter().for_each(|a| put_bytes(b, a.as_bytes()));
    for (name, value) in &run.env {
        put_bytes(b, name.as_bytes());
        put_bytes(b, value.as_bytes());
    }
}

fn read_run(r: &mut Reader<'_>) -> Option<Run> {
    let (cwd, is_isolated, deadline_ms) = (path(r)?, r.bool()?, r.u64()?);
    let stdin = if r.bool()? { Some(path(r)?) } else { None };
    let count = r.u32()?;
    let mut argv = Vec::new();
    for _ in 0..count {
        argv.push(os_string(r)?);
    }
    let mut env = Vec::new();
    while !r.is_empty() {
        env.push((os_string(r)?, os_string(r)?));
    }
    Some(Run {
        argv,
        cwd,
        env,
        is_isolated,
        deadline_ms,
        stdin,
    })
}
