//! One option of a match or target, as a row describes it: the offset and notation of its value, and when it is printed.

use super::blob::{Blob, Place};
use super::value::Value;
use crate::xtables::text::{Complaint, Given, Opt};
use crate::xtables::{Not, XtFamily};

/// How an argument is quoted in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quote {
    Never,
    /// If [`Quoted`](super::Quoted) quotes it.
    Unsafe,
    Always,
}

/// An option as it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) not: bool,
    pub(crate) name: &'static str,
    pub(crate) words: Vec<String>,
    pub(crate) quote: Quote,
}

impl Shown {
    pub(crate) fn new(name: &'static str, words: Vec<String>) -> Self {
        Self {
            not: false,
            name,
            words,
            quote: Quote::Never,
        }
    }

    pub(crate) fn one(name: &'static str, word: impl ToString) -> Self {
        Self::new(name, vec![word.to_string()])
    }

    /// The option as the parser would have read it.
    pub(super) fn given(&self) -> Opt {
        Opt::new(Not(self.not), self.name, self.words.clone())
    }
}

/// When an option is printed, and which bits it sets when it is given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// Whenever its [`Value`] has a text.
    Always,
    /// These bits are set.
    Set(Place, u64),
    /// These bits are not set.
    Clear(Place, u64),
    /// The number has this value.
    Is(Place, u64),
    /// The bytes at the option's offset differ from these, or the option is inverted.
    Unless(&'static [u8]),
    /// Never: another option is printed instead.
    Never,
}

/// How the inversion of an option, `!`, is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Invert {
    Not,
    /// These bits are set.
    Set(Place, u64),
    /// The number has this value instead of that of [`When::Is`].
    Is(Place, u64),
    /// Inverting the option flips these bits; the option is printed without `!`.
    Flip(Place, u64),
    /// The [`Code`](super::value::Code) of the value reads `!`; this function returns whether the bytes are inverted.
    Code(fn(&Blob) -> bool),
}

/// An option.
#[derive(Debug)]
pub(crate) struct Field {
    /// The printed name, then other names that are accepted.
    pub(crate) names: &'static [&'static str],
    at: usize,
    value: Value,
    when: When,
    invert: Invert,
    need: bool,
    /// The least and the largest number.
    within: (u64, u64),
}

/// An option whose value is at this offset.
pub(crate) const fn field(names: &'static [&'static str], value: Value, at: usize) -> Field {
    Field {
        names,
        at,
        value,
        when: When::Always,
        invert: Invert::Not,
        need: false,
        within: (0, u64::MAX),
    }
}

/// An option without arguments.
pub(crate) const fn flag(
    names: &'static [&'static str],
    at: usize,
    width: usize,
    bit: u64,
) -> Field {
    let place = Place { at, width };
    field(names, Value::Nothing, at).when(When::Set(place, bit))
}

impl Field {
    pub(crate) const fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// The option is printed if these bits are set; parsing it sets them.
    pub(crate) const fn set(self, at: usize, width: usize, bits: u64) -> Self {
        self.when(When::Set(Place { at, width }, bits))
    }

    pub(crate) const fn clear(self, at: usize, width: usize, bits: u64) -> Self {
        self.when(When::Clear(Place { at, width }, bits))
    }

    pub(crate) const fn is(self, at: usize, width: usize, value: u64) -> Self {
        self.when(When::Is(Place { at, width }, value))
    }

    pub(crate) const fn unless(self, bytes: &'static [u8]) -> Self {
        self.when(When::Unless(bytes))
    }

    pub(crate) const fn invert(mut self, invert: Invert) -> Self {
        self.invert = invert;
        self
    }

    /// These bits are set if the option is inverted.
    pub(crate) const fn not(self, at: usize, width: usize, bits: u64) -> Self {
        self.invert(Invert::Set(Place { at, width }, bits))
    }

    /// The option must be given.
    pub(crate) const fn need(mut self) -> Self {
        self.need = true;
        self
    }

    /// The least and the largest number that iptables accepts.
    pub(crate) const fn within(mut self, least: u64, most: u64) -> Self {
        self.within = (least, most);
        self
    }

    pub(super) fn words(&self) -> usize {
        self.value.words()
    }

    /// The bytes that the option reads or writes, from and to: a test checks that they are in the structure.
    #[cfg(test)]
    pub(super) fn parts(&self) -> Vec<(usize, usize)> {
        let of = |p: Place| (p.at, p.at + p.width);
        let when = match self.when {
            When::Set(p, _) | When::Clear(p, _) | When::Is(p, _) => Some(of(p)),
            When::Unless(bytes) => Some((self.at, self.at + bytes.len())),
            When::Always | When::Never => None,
        };
        let invert = match self.invert {
            Invert::Set(p, _) | Invert::Is(p, _) | Invert::Flip(p, _) => Some(of(p)),
            Invert::Not | Invert::Code(_) => None,
        };
        let value = Some((self.at, self.at + self.value.len()));
        [value, when, invert].into_iter().flatten().collect()
    }

    /// Clears the bytes after the NUL of a text, which have no meaning.
    pub(super) fn normalize(&self, b: &mut Blob, family: XtFamily) {
        if let Value::Text(len, _) = self.value
            && self.show(b, family).is_some()
        {
            let tail = b
                .bytes(self.at, len)
                .iter()
                .skip_while(|byte| **byte != 0)
                .count();
            b.set(self.at + len - tail, &vec![0; tail]);
        }
    }

    pub(super) fn show(&self, b: &Blob, family: XtFamily) -> Option<Shown> {
        let not = match self.invert {
            Invert::Not | Invert::Flip(..) => false,
            Invert::Set(place, bits) => b.has(place, bits),
            Invert::Is(p, value) => b.uint(p.at, p.width) == value,
            Invert::Code(is) => is(b),
        };
        if !self.is_given(b, not) {
            return None;
        }
        let words = self.value.show(b, self.at, family)?;
        let name = self.names.first()?;
        let quote = self.value.quote();
        Some(Shown {
            not,
            name,
            words,
            quote,
        })
    }

    fn is_given(&self, b: &Blob, not: bool) -> bool {
        match self.when {
            When::Always => true,
            When::Set(place, bits) => b.has(place, bits),
            When::Clear(p, bits) => b.uint(p.at, p.width) & bits == 0,
            When::Is(p, value) => b.uint(p.at, p.width) == value || not,
            When::Unless(bytes) => b.bytes(self.at, bytes.len()) != bytes || not,
            When::Never => false,
        }
    }

    /// Refuses an option whose effect another option has undone.
    pub(super) fn stands(&self, o: &Opt, b: &Blob) -> Result<(), Complaint> {
        let by_value = matches!(self.when, When::Unless(_) | When::Never);
        let flipped = matches!(self.invert, Invert::Flip(..)) && o.not.0;
        if by_value || flipped || self.is_given(b, o.not.0) {
            return Ok(());
        }
        Err(o.wrong("excludes another option that is given; leave one out"))
    }

    /// Parses the option if it was given.
    pub(super) fn read(&self, given: &mut Given, b: &mut Blob) -> Result<Option<Opt>, Complaint> {
        let Some(o) = given.take(self.names) else {
            let first = self.names.first().copied().unwrap_or_default();
            return if self.need {
                Err(given.lacks(first))
            } else {
                Ok(None)
            };
        };
        match self.when {
            When::Set(place, bits) => b.or(place, bits),
            When::Clear(p, bits) => {
                let old = b.uint(p.at, p.width);
                b.put(p.at, p.width, old & !bits);
            }
            When::Is(p, value) => b.put(p.at, p.width, value),
            When::Always | When::Unless(_) | When::Never => {}
        }
        match (self.invert, o.not.0) {
            (Invert::Not, _) => {
                let _ = o.plain()?;
            }
            (Invert::Set(place, bits), true) => b.or(place, bits),
            (Invert::Flip(place, bits), true) => b.xor(place, bits),
            (Invert::Is(p, value), true) => b.put(p.at, p.width, value),
            (_, _) => {}
        }
        self.value.read(&o, b, self.at, given.family)?;
        let (least, most) = self.within;
        if let Value::Number(width) = self.value
            && !(least..=most).contains(&b.uint(self.at, width))
        {
            let most = most.min(u64::MAX >> (64 - 8 * width.clamp(1, 8)));
            return Err(o.wrong(&format!("is out of range; give {least} to {most}")));
        }
        Ok(Some(o))
    }
}
