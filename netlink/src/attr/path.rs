//! Paths to the attribute that an error is about.

use super::{Attrs, NLA_HDRLEN};
use crate::message::PolicyAttrs;
use std::fmt;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// An attribute.
    Attribute {
        /// Its number, without flags.
        number: u16,
        /// Its C name, if the declaration has it.
        name: Option<&'static str>,
    },
    /// An element of a list, from 0.
    Element(usize),
    /// The name of the expression that the attributes below belong to.
    Kind(String),
    /// A required attribute that is missing.
    Missing {
        /// Its number.
        number: u32,
        /// Its C name, if the declaration has it.
        name: Option<&'static str>,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute {
                name: Some(name), ..
            } => f.write_str(name),
            Self::Attribute { number, .. } => write!(f, "attribute {number}"),
            Self::Element(n) => write!(f, "[{n}]"),
            Self::Kind(word) => f.write_str(word),
            Self::Missing {
                name: Some(name), ..
            } => write!(f, "missing {name}"),
            Self::Missing { number, .. } => write!(f, "missing attribute {number}"),
        }
    }
}

/// The steps from a message to the attribute that an error is about: `NFTA_RULE_EXPRESSIONS > [1] > cmp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(alias = "NLMSGERR_ATTR_OFFS")]
pub struct Path {
    steps: Vec<Step>,
    policy: Option<Box<PolicyAttrs>>,
}

impl Path {
    /// The steps, outermost first.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether the path is empty: the error is about the message as a whole.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The values that the kernel accepts for the attribute, if it reported them (`NLMSGERR_ATTR_POLICY`, since 5.10).
    #[must_use]
    pub fn policy(&self) -> Option<&PolicyAttrs> {
        self.policy.as_deref()
    }

    pub(crate) fn with_policy(mut self, policy: Option<PolicyAttrs>) -> Self {
        self.policy = policy.map(Box::new);
        self
    }

    /// Prefixes the path with one step.
    #[must_use]
    pub fn within(mut self, step: Step) -> Self {
        self.steps.insert(0, step);
        self
    }
}

impl From<Step> for Path {
    fn from(step: Step) -> Self {
        Self {
            steps: vec![step],
            policy: None,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, step) in self.steps.iter().enumerate() {
            let sep = if n == 0 { "" } else { " > " };
            write!(f, "{sep}{step}")?;
        }
        match &self.policy {
            Some(policy) => write!(f, " (the kernel takes {policy})"),
            None => Ok(()),
        }
    }
}

/// The location of an error in the kernel's extended ack, relative to a sequence of attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Offset in the sequence in bytes: `NLMSGERR_ATTR_OFFS`, or the start of the nested attribute in which an attribute is
    /// missing (`NLMSGERR_ATTR_MISS_NEST`). `None` is the sequence itself.
    pub offset: Option<usize>,
    /// The number of the missing attribute: `NLMSGERR_ATTR_MISS_TYPE`.
    pub missing: Option<u32>,
}

impl Target {
    /// The target at an offset of the sequence.
    #[must_use]
    pub fn byte(offset: usize) -> Self {
        Self {
            offset: Some(offset),
            missing: None,
        }
    }

    /// The same target relative to the position `start` of the sequence; `None` if it lies before that.
    #[must_use]
    pub fn after(self, start: usize) -> Option<Self> {
        let offset = self.offset?.checked_sub(start)?;
        Some(Self {
            offset: Some(offset),
            ..self
        })
    }
}

/// The path to a target in a sequence of attributes. `step` returns the step for the index and number of an attribute, `inside`
/// the path inside of its payload.
pub fn path_in(
    bytes: &[u8],
    target: Target,
    step: impl Fn(usize, u16) -> Step,
    inside: impl Fn(u16, &[u8], Target) -> Option<Path>,
) -> Option<Path> {
    let Some(offset) = target.offset else {
        let number = target.missing?;
        let known = u16::try_from(number).ok().map(|n| step(0, n));
        let name = match known {
            Some(Step::Attribute { name, .. }) => name,
            _ => None,
        };
        return Some(Step::Missing { number, name }.into());
    };
    for (place, attr) in Attrs::new(bytes).enumerate() {
        let attr = attr.ok()?;
        let start = attr.offset + NLA_HDRLEN;
        if offset < attr.offset || offset >= start + attr.payload.len().max(1) {
            continue;
        }
        let within = target.after(start).unwrap_or(Target {
            offset: None,
            ..target
        });
        // An error about the attribute itself needs no path inside it, unless an attribute is missing there.
        let is_inside = within != Target::default();
        let inner = is_inside.then(|| inside(attr.number, attr.payload, within));
        let inner = inner.flatten().or_else(|| {
            let number = within.missing.filter(|_| within.offset.is_none())?;
            Some(Step::Missing { number, name: None }.into())
        });
        return Some(inner.unwrap_or_default().within(step(place, attr.number)));
    }
    None
}
