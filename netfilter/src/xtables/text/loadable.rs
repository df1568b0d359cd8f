//! The matches and targets that can be parsed.

use crate::xtables::ext::{Kind, Part, Row, matches, of, targets};
use crate::xtables::target::VERDICTS;
use crate::xtables::{Match, Target, XtFamily};

/// A match or target whose options can be parsed.
#[derive(Clone, Copy)]
pub(super) enum Loadable {
    Match(&'static Kind<Match>),
    Target(&'static Kind<Target>),
    Row(&'static Row),
}

impl Loadable {
    pub(super) fn find(part: Part, name: &str, family: XtFamily) -> Option<Self> {
        let row = || Row::find(part, name, family).map(Self::Row);
        match part {
            Part::Match => of(matches::KINDS, family)
                .find(|k| k.name == name)
                .map(Self::Match)
                .or_else(row),
            Part::Target => of(targets::KINDS, family)
                .find(|k| k.name == name)
                .map(Self::Target)
                .or_else(row),
        }
    }

    pub(super) fn options(self) -> Vec<(&'static str, usize)> {
        match self {
            Self::Match(kind) => kind.options.to_vec(),
            Self::Target(kind) => kind.options.to_vec(),
            Self::Row(row) => row.names(),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Match(kind) => kind.name,
            Self::Target(kind) => kind.name,
            Self::Row(row) => row.name,
        }
    }

    pub(super) fn is_target(self) -> bool {
        match self {
            Self::Match(_) => false,
            Self::Target(_) => true,
            Self::Row(row) => row.part == Part::Target,
        }
    }

    pub(super) fn may_repeat(self) -> bool {
        matches!(self, Self::Row(row) if row.may_repeat())
    }

    pub(super) fn arity(self, option: &str) -> Option<usize> {
        let options = self.options();
        options
            .iter()
            .find(|(name, _)| *name == option)
            .map(|(_, n)| *n)
    }
}

/// Whether the name after `-j` is a verdict or a target, not a chain.
pub(super) fn is_target(name: &str, family: XtFamily) -> bool {
    VERDICTS.iter().any(|(verdict, _)| verdict.name() == name)
        || Loadable::find(Part::Target, name, family).is_some()
}

/// The names of the matches or targets of a family, in one line.
pub(in crate::xtables) fn known(part: Part, family: XtFamily) -> String {
    let mut names: Vec<&str> = match part {
        Part::Match => of(matches::KINDS, family).map(|k| k.name).collect(),
        Part::Target => of(targets::KINDS, family).map(|k| k.name).collect(),
    };
    names.extend(Row::all(part, family).map(|row| row.name));
    // The revisions of a match stand one after another.
    names.dedup();
    names.join(", ")
}
