//! Throwaway network namespaces.

use weir_netlink::{Error, Netns};

/// A fresh namespace, or `None` with the reason printed where this user may not make one.
///
/// Any other failure fails the test.
#[must_use]
pub fn namespace() -> Option<Netns> {
    granted(Netns::create())
}

/// What was made; `None`, with the reason printed, where this user may not. Any other failure fails the test.
pub fn granted<T>(made: Result<T, Error>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(e) if e.is_permission() => {
            println!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// [`namespace`], or the end of the test, which has said why.
#[macro_export]
macro_rules! namespace_or_skip {
    () => {
        match $crate::namespace() {
            Some(netns) => netns,
            None => return,
        }
    };
}
