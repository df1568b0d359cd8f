//! A message that the kernel refused, among others in a datagram.

use crate::attr::Path;
use crate::message::{FamilyHeader, NfGenMsg, Sent};
use crate::socket::Refused;
use crate::{Error, ErrorKind};

/// The refusal of one message: of a [`Batch`](super::Batch), of which nothing is then in force, or of
/// [`Requests`](super::Requests), of which the others are in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Index of the pushed message, from 0; `None` if the batch as a whole was refused.
    pub index: Option<usize>,
    /// Positive errno; the private errnos of ipset are above 4096.
    pub errno: i32,
    /// The extended ack text.
    pub extack: Option<String>,
    /// Path to the attribute that the extended ack refers to, or reports as missing.
    pub attribute: Option<Path>,
    /// The message's attributes as the kernel repeated them. ipset modifies them.
    pub echo: Vec<u8>,
}

impl Refusal {
    pub(super) fn of(index: Option<usize>, refused: Refused, sent: &Sent) -> Self {
        let Refused {
            index: in_datagram,
            ack,
            echo,
        } = refused;
        Self {
            index,
            errno: ack.errno,
            attribute: index.and_then(|_| sent.attribute(in_datagram, &ack)),
            extack: ack.attrs.msg,
            echo: echo.get(NfGenMsg::ATTRS..).unwrap_or_default().to_vec(),
        }
    }

    /// Converts the refusal to the error of an operation.
    #[must_use]
    pub fn into_error(self, operation: &str, object: impl Into<String>) -> Error {
        Error {
            kind: ErrorKind::Kernel {
                errno: self.errno,
                extack: self.extack,
                attribute: self.attribute,
            },
            ..Error::kernel(operation, object, self.errno)
        }
    }
}
