//! The text of changes that occur in both a pod's and a node's namespace.

use crate::hook::{Detached, Hook};
use std::fmt::{self, Display, Formatter};
use weir_netlink::route::{PolicyRule, Route};

/// A change of either namespace.
pub(crate) enum Words<'a> {
    AddRoute(&'a Route),
    AddRule(&'a PolicyRule),
    DeleteRoute(&'a Route),
    DeleteRule(&'a PolicyRule),
    Attach(&'a dyn Display),
    Replace(&'a dyn Display),
    /// The program, and the one that it is moved before.
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

/// Writes a program, its hook, and what it does there.
pub(crate) fn attachment(
    f: &mut Formatter<'_>,
    (program, interface): (&str, &str),
    (_, direction): Hook,
    role: &str,
) -> fmt::Result {
    write!(f, "{program} at {direction} of {interface}: it {role}")
}
