//! Sets and maps.

use super::{Data, DataType, Verdict};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// A named set or map of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Set {
    /// Its name, at most 255 bytes.
    pub name: String,
    /// Type of the key.
    pub key_type: DataType,
    /// Bytes of the key.
    pub key_len: u32,
    /// What a map gives; a plain set has none.
    pub data: SetData,
    /// `flags interval`: elements may be ranges and prefixes.
    pub interval: bool,
    /// `flags constant`: no element changes once it is bound.
    pub constant: bool,
    /// `flags dynamic`: rules may add elements.
    pub dynamic: bool,
    /// `flags timeout`: elements may end by themselves.
    pub timeouts: bool,
    /// `timeout`: how long an element stays unless it says so itself.
    pub timeout: Option<Duration>,
    /// `gc-interval`
    pub gc_interval: Option<Duration>,
    /// `size`: how many elements it takes, and no more.
    ///
    /// Of a set that says so, and has neither intervals nor timeouts nor elements added by rules, the kernel makes a hash
    /// table that never grows (`nft_hash_estimate`, `net/netfilter/nft_set_hash.c`). A hundred thousand elements then take
    /// half the time: else the table doubles again and again while it is filled.
    pub size: Option<u32>,
    /// `auto-merge`: a note of `nft` to itself, kept in the userdata.
    pub auto_merge: bool,
    /// `comment`
    pub comment: Option<String>,
    /// `typeof`: a note of `nft` to itself, kept in the userdata.
    pub type_of: Option<Box<TypeOf>>,
    /// Elements, in ascending order of their keys.
    pub elements: Vec<Element>,
    /// What was read and has no place in the fields above. None is ever wished.
    pub unread: Vec<Unread>,
}

/// The selectors behind `typeof KEY : VALUE`, in numbers of `nft`'s own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TypeOf {
    /// Of the key.
    pub key: Option<Vec<u8>>,
    /// Of a map's value.
    pub data: Option<Vec<u8>>,
}

/// An attribute of a set or of one of its elements that is kept as it was listed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unread {
    /// The element that it is of; none when it is of the set itself.
    pub element: Option<ElementKey>,
    /// `NFTA_SET_*`, or of an element `NFTA_SET_ELEM_*`
    pub attribute: u16,
    /// Its payload.
    pub bytes: Vec<u8>,
}

/// What a set maps its keys to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum SetData {
    /// Nothing: a set.
    #[default]
    None,
    /// A verdict: `type KEY : verdict`.
    Verdict,
    /// A value: its type and its length in bytes.
    Value(DataType, u32),
}

/// One element of a set.
#[derive(Clone, Debug)]
pub struct Element {
    /// The key.
    pub key: ElementKey,
    /// What else it has. Most have nothing, and large sets are small for it.
    extra: Option<Box<Extra>>,
}

/// What an [`Element`] may have besides its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extra {
    /// What a map gives for it.
    pub value: Option<Data>,
    /// The verdict that a verdict map gives for it.
    pub verdict: Option<Verdict>,
    /// `comment`
    pub comment: Option<String>,
    /// `timeout`: how long it stays; 0 is for ever, in a set where others do not (`timeout never`). Since 6.12
    pub timeout: Option<Duration>,
    /// `expires`: how long it still stays, as read. Not part of what is wished.
    pub expires: Option<Duration>,
}

static NOTHING: Extra = Extra {
    value: None,
    verdict: None,
    comment: None,
    timeout: None,
    expires: None,
};

/// The key of an element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ElementKey {
    /// One value; one of no bytes stands for all that no other element has (`*`). Since 5.13
    Value(Data),
    /// From the first to the last, both included. The kernel keeps `[start, end + 1)`; a
    /// range that ends at the highest value has no end there.
    Range(Box<(Data, Data)>),
}

impl ElementKey {
    /// From the first to the last, both included.
    #[must_use]
    pub fn range(first: Data, last: Data) -> Self {
        Self::Range(Box::new((first, last)))
    }

    /// The lowest value that it stands for.
    #[must_use]
    pub fn first(&self) -> &Data {
        match self {
            Self::Value(d) => d,
            Self::Range(ends) => &ends.0,
        }
    }

    /// The highest value that it stands for.
    #[must_use]
    pub fn last(&self) -> &Data {
        match self {
            Self::Value(d) => d,
            Self::Range(ends) => &ends.1,
        }
    }
}

/// To have nothing besides the key can be written in two ways.
impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.extra() == other.extra()
    }
}

impl Eq for Element {}

impl Hash for Element {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
        self.extra().hash(state);
    }
}

impl PartialOrd for ElementKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// By what they stand for: a range comes where its first value does.
impl Ord for ElementKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.first(), self.last()).cmp(&(other.first(), other.last()))
    }
}

impl Element {
    /// A key without anything else.
    #[must_use]
    pub fn new(key: ElementKey) -> Self {
        Self { key, extra: None }
    }

    /// What it has besides its key.
    #[must_use]
    pub fn extra(&self) -> &Extra {
        self.extra.as_deref().unwrap_or(&NOTHING)
    }

    /// The same, to be changed.
    pub fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// The same element with this besides its key.
    #[must_use]
    pub fn with(mut self, extra: Extra) -> Self {
        self.extra = (extra != NOTHING).then(|| Box::new(extra));
        self
    }

    /// Forgets how long it still stays, and a timeout that is the set's own, which the kernel does not list.
    pub(crate) fn settle(&mut self, set: Option<Duration>) {
        if let Some(extra) = &mut self.extra {
            extra.expires = None;
            // Of a set without one, 0 is no different from none.
            let own = set.unwrap_or_default();
            extra.timeout = extra.timeout.filter(|t| *t != own);
        }
    }

    /// One value without anything else.
    #[must_use]
    pub fn value(data: Data) -> Self {
        Self::new(ElementKey::Value(data))
    }

    /// The prefix `addr/len` as the range it covers.
    #[must_use]
    pub fn prefix(net: ipnet::IpNet) -> Self {
        let (first, last) = (Data::addr(net.network()), Data::addr(net.broadcast()));
        if first == last {
            Self::value(first)
        } else {
            Self::new(ElementKey::range(first, last))
        }
    }
}
