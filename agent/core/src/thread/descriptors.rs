//! The limit of open descriptors of this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit (`setrlimit(RLIMIT_NOFILE)`): an agent holds about ten descriptors per pod, and
/// the soft limit is often 1024, for programs that call `select(2)`. If that fails, the limit stays unchanged.
pub fn allow_all() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        // More than the tests of this program need.
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(512), hard).unwrap();
        allow_all();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    }
}
