//! `ioctl(2)` on `/dev/urandom`: give the kernel's random number generator something to start from.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IOW('R', 0x03, int[2])` (`linux/random.h`)
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
/// `_IO('R', 0x07)`. Since 4.17
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;
/// How many bytes [`random_seed`] takes: 256 bits, the size of the generator's key.
pub const SEED_BYTES: usize = 32;

/// `struct rand_pool_info` with room for one seed.
#[repr(C)]
struct RandPoolInfo {
    entropy_count: libc::c_int,
    buf_size: libc::c_int,
    buf: [u8; SEED_BYTES],
}

/// `ioctl(fd, RNDADDENTROPY)`, then `ioctl(fd, RNDRESEEDCRNG)`: mixes `seed` in, counts all its bits as
/// entropy, and makes every number from then on depend on it.
///
/// For a machine that goes on from a saved state: without it each copy of the machine draws the same numbers.
/// `fd` is `/dev/random` or `/dev/urandom`.
///
/// # Errors
///
/// `EPERM` without CAP_SYS_ADMIN; `ENOTTY` when the descriptor is something else, or for a kernel older
/// than 4.17.
///
/// # References
///
/// `random(4)`, `linux/random.h`.
pub fn random_seed(fd: BorrowedFd<'_>, seed: &[u8; SEED_BYTES]) -> io::Result<()> {
    let info = RandPoolInfo {
        entropy_count: 8 * SEED_BYTES as libc::c_int,
        buf_size: SEED_BYTES as libc::c_int,
        buf: *seed,
    };
    // SAFETY: ioctl(2) is variadic, so libc cannot offer it as a safe function. RNDADDENTROPY reads two ints and
    // then `buf_size` bytes, which is what `info` holds; it lives until the end of this function, and the
    // kernel does not write to it. `fd` is open for the length of the call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), RNDADDENTROPY, &raw const info) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above; RNDRESEEDCRNG takes no third argument.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), RNDRESEEDCRNG) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn the_generator_takes_a_seed_or_names_the_missing_right() {
        let urandom = File::open("/dev/urandom").unwrap();
        match random_seed(urandom.as_fd(), &[0x5a; SEED_BYTES]) {
            Ok(()) => {}
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EPERM), "{e}"),
        }
    }

    #[test]
    fn another_file_is_refused() {
        let file = File::open("/proc/self/exe").unwrap();
        let e = random_seed(file.as_fd(), &[0; SEED_BYTES]).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::ENOTTY));
    }
}
