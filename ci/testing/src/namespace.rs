//! Temporary network namespaces.

use weir_netlink::{Error, Netns};

/// Creates a namespace; `None`, with the reason printed, if this user may not create one.
///
/// Any other failure fails the test.
#[must_use]
pub fn namespace() -> Option<Netns> {
    granted(Netns::create())
}

/// Unwraps a result; `None`, with the reason printed, if it is a permission error. Any other failure fails the test.
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

/// Expands to [`namespace`]; without one the test returns, after the reason has been printed.
#[macro_export]
macro_rules! namespace_or_skip {
    () => {
        match $crate::namespace() {
            Some(netns) => netns,
            None => return,
        }
    };
}
