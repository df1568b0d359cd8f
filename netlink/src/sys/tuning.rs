//! Settings of the process and the machine: the heap of the C library (`mallopt(3)`), the effect of the file size limit
//! (`signal(2)`), and the seed of the kernel's random numbers (`ioctl(2)` on `/dev/urandom`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Makes glibc use one heap for all threads, and grow it in large steps: `mallopt(3)`. Call it before any thread is started.
///
/// It is for a short-lived process with one worker thread at a time. glibc would give that thread its own heap, and grow and
/// shrink it by single pages, which costs such a process more system calls than its work does. Large blocks, such as the
/// buffers into which sockets receive, are mapped one by one: most of such a buffer is never written to, and an untouched
/// page costs nothing. Small blocks are merged when they are freed and not kept in lists: glibc would merge these lists all
/// at once with every larger block that is freed, which takes a twentieth of the time of a long listing. The function has no
/// effect with another C library.
pub fn one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) is an `extern` function that takes two integers and touches no memory of ours. It is not
    // thread-safe, which is why the caller has no other thread yet; a value it refuses changes nothing.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TOP_PAD, 1 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 << 20);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10);
        libc::mallopt(libc::M_MXFAST, 0);
    }
}

/// Makes `write(2)` return `EFBIG` at the file size limit instead of killing the process: ignores `SIGXFSZ`,
/// `signal(2)`. Child processes inherit this.
pub fn limits_are_errors() {
    // SAFETY: signal(2) is an `extern` function. With SIG_IGN it installs no handler, and touches no memory of ours.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// `_IOW('R', 0x03, int[2])` (`linux/random.h`)
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
/// `_IO('R', 0x07)`. Since 4.17
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;
/// Size of the seed of [`seed_random`] in bytes: 256 bits, the size of the generator's key.
pub const SEED_BYTES: usize = 32;

/// `struct rand_pool_info` with room for one seed.
#[repr(C)]
struct RandPoolInfo {
    entropy_count: libc::c_int,
    buf_size: libc::c_int,
    buf: [u8; SEED_BYTES],
}

/// Seeds the kernel's random numbers: `ioctl(open("/dev/urandom"), RNDADDENTROPY)`, then `ioctl(fd, RNDRESEEDCRNG)`.
///
/// The kernel mixes `seed` in, counts all its bits as entropy, and makes every later number depend on it. It is for a machine
/// that resumes from a saved state: without it, each copy of the machine generates the same numbers.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN; `ENOTTY` for a kernel older than 4.17; `ENOENT` without `/dev`.
///
/// # References
/// `random(4)`, `linux/random.h`.
pub fn seed_random(seed: &[u8; SEED_BYTES]) -> io::Result<()> {
    let fd = File::open("/dev/urandom")?;
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

    #[test]
    fn the_generator_takes_a_seed_or_names_the_missing_right() {
        match seed_random(&[0x5a; SEED_BYTES]) {
            Ok(()) => {}
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EPERM), "{e}"),
        }
    }
}
