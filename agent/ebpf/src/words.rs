//! What changes of a pod's namespace and of a node's have in common, in words.

use crate::hook::{Detached, Hook};
use std::fmt::{self, Display, Formatter};
use weir_netlink::route::{PolicyRule, Route};

/// A change of either.
pub(crate) enum Words<'a> {
    AddRoute(&'a Route),
    AddRule(&'a PolicyRule),
    DeleteRoute(&'a Route),
    DeleteRule(&'a PolicyRule),
    Attach(&'a dyn Display),
    Replace(&'a dyn Display),
    /// Before this program.
    MoveFirst(&'a dyn Display, &'a str),
    /// Interface, hook, and the name of the program.
    Detach(&'a str, Detached, &'a str),
    RemoveOtherLayout,
}

impl Display for Words<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let number = |table: u32| table.to_string();
        match self {
            Self::AddRoute(r) => write!(f, "add route {r}"),
            Self::AddRule(r) => write!(f, "add rule {} {}", r.family, r.words(number)),
            Self::DeleteRoute(r) => write!(f, "delete route {r}"),
            Self::DeleteRule(r) => write!(f, "delete rule {} {}", r.family, r.words(number)),
            Self::Attach(a) => write!(f, "attach {a}"),
            Self::Replace(a) => write!(f, "replace by {a}"),
            Self::MoveFirst(a, other) => write!(f, "move before {other}: {a}"),
            Self::Detach(interface, Detached((_, direction)), program) => {
                write!(f, "detach {program} at {direction} of {interface}")
            }
            Self::RemoveOtherLayout => f.write_str("remove pins of another version of weir"),
        }
    }
}

/// A program, where it runs and what it does there.
pub(crate) fn attachment(
    f: &mut Formatter<'_>,
    (program, interface): (&str, &str),
    (_, direction): Hook,
    role: &str,
) -> fmt::Result {
    write!(f, "{program} at {direction} of {interface}: it {role}")
}
