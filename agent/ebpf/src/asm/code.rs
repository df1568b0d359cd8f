//! Assembled instructions: loading, and mapping the verifier's log to the source.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::Location;
use weir_bpf::{BPF_PROG_TYPE_SCHED_CLS, LoadError, Map, Program, ProgramSpec};

/// The position of a map in the list passed to [`Code::load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRef(pub usize);

/// Number of the verifier's last lines that an error shows.
const SHOWN_LINES: usize = 4;

/// Assembled instructions, which need their maps to be loaded.
#[derive(Clone, Debug)]
pub struct Code {
    bytes: Vec<[u8; 8]>,
    places: Vec<&'static Location<'static>>,
    maps: Vec<(usize, MapRef)>,
}

/// The kernel refused a program.
#[derive(Debug)]
pub struct Refused {
    /// The program's name.
    pub program: String,
    /// The errno.
    pub error: io::Error,
    /// The last instruction in the verifier's log, and the source line that appended it.
    pub at: Option<(usize, String)>,
    /// The log of the verifier.
    pub log: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the kernel refuses program {}: {}",
            self.program, self.error
        )?;
        if let Some((number, place)) = &self.at {
            write!(f, " at instruction {number}, which {place} makes")?;
        }
        let is_said = |line: &&str| !line.starts_with("processed ") && !line.is_empty();
        let lines: Vec<&str> = self.log.lines().filter(is_said).collect();
        let last = lines.len().saturating_sub(SHOWN_LINES);
        for line in lines.get(last..).unwrap_or_default() {
            write!(f, "\n  verifier: {line}")?;
        }
        if self.error.raw_os_error() == Some(nix::errno::Errno::EPERM as i32) {
            f.write_str(
                "; bpf(2) needs CAP_BPF and CAP_NET_ADMIN in the first user namespace (CAP_SYS_ADMIN before 5.8), and no \
                 seccomp filter or lockdown against it",
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}

impl Code {
    pub(super) fn new(
        bytes: Vec<[u8; 8]>,
        places: Vec<&'static Location<'static>>,
        maps: Vec<(usize, MapRef)>,
    ) -> Self {
        Self {
            bytes,
            places,
            maps,
        }
    }

    /// The instructions, each a `struct bpf_insn`. Addresses of maps are zero.
    #[must_use]
    pub fn bytes(&self) -> &[[u8; 8]] {
        &self.bytes
    }

    /// The maps that the code uses, each once, in the order of their first use, which is that of [`weir_bpf::ProgramInfo::maps`].
    #[must_use]
    pub fn used_maps(&self) -> Vec<MapRef> {
        let mut used = Vec::new();
        for (_, map) in &self.maps {
            if !used.contains(map) {
                used.push(*map);
            }
        }
        used
    }

    /// A hash of the code: FNV-1a over instructions and positions of maps. It recognizes programs that an earlier version of weir
    /// loaded, and is not cryptographic.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let maps = self.maps.iter().flat_map(|(at, map)| [*at, map.0]);
        let maps = maps.flat_map(|n| (n as u64).to_be_bytes());
        let bytes = self.bytes.iter().flatten().copied().chain(maps);
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Loads the code as a program of traffic control, with these maps.
    ///
    /// # Errors
    /// The kernel refuses the program, or a map is missing.
    pub fn load(&self, name: &str, maps: &[&Map]) -> Result<Program, Box<Refused>> {
        let mut bytes = self.bytes.clone();
        for (at, map) in &self.maps {
            let fd = maps.get(map.0).map(|map| map.as_fd().as_raw_fd());
            let (Some(fd), Some(insn)) = (fd, bytes.get_mut(*at)) else {
                return Err(Box::new(Refused {
                    program: name.to_owned(),
                    error: io::Error::from_raw_os_error(nix::errno::Errno::EBADF as i32),
                    at: self.place(*at),
                    log: String::new(),
                }));
            };
            let [code, registers, o0, o1, ..] = *insn;
            let [i0, i1, i2, i3] = fd.to_ne_bytes();
            *insn = [code, registers, o0, o1, i0, i1, i2, i3];
        }
        let spec = ProgramSpec {
            kind: BPF_PROG_TYPE_SCHED_CLS,
            attach_type: 0,
            name,
            license: c"Apache-2.0",
            instructions: &bytes,
        };
        Program::load_with_log(&spec).map_err(|LoadError { error, log }| {
            Box::new(Refused {
                program: name.to_owned(),
                error,
                at: last_instruction(&log).and_then(|number| self.place(number)),
                log,
            })
        })
    }

    fn place(&self, number: usize) -> Option<(usize, String)> {
        let place = self.places.get(number)?;
        Some((number, place.to_string()))
    }
}

/// Returns the last instruction in the verifier's log: that of the last line of the form `12: (85) call ...`.
fn last_instruction(log: &str) -> Option<usize> {
    let number = |line: &str| {
        let (number, rest) = line.split_once(": ")?;
        rest.starts_with('(').then(|| number.parse().ok()).flatten()
    };
    log.lines().rev().find_map(number)
}
