//! Sets and maps.

use super::{Data, DataType, Verdict};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// A named set or map of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "NFT_MSG_NEWSET")]
pub struct Set {
    /// Its name, unique in the table, 1 to 255 bytes.
    pub name: String,
    /// Type of the key.
    pub key_type: DataType,
    /// Length of the key in bytes.
    pub key_len: u32,
    /// The type of a map's values; a plain set has none.
    pub data: SetData,
    /// `flags interval`: elements may be ranges and prefixes.
    pub interval: bool,
    /// `flags constant`: elements do not change once the set is bound to a rule.
    pub constant: bool,
    /// `flags dynamic`: rules may add elements.
    pub dynamic: bool,
    /// `flags timeout`: elements may expire.
    pub timeouts: bool,
    /// `timeout`: lifetime of elements without their own timeout, in whole milliseconds. Since 4.1.
    pub timeout: Option<Duration>,
    /// `gc-interval`: time between two removals of expired elements, in whole milliseconds up to `u32::MAX`. Since 4.1.
    pub gc_interval: Option<Duration>,
    /// `size`: maximum number of elements.
    ///
    /// For a set with a size, but without intervals, timeouts and elements added by rules, the kernel allocates a
    /// hash table that never grows (`nft_hash_estimate`, `net/netfilter/nft_set_hash.c`). Adding a hundred thousand
    /// elements then takes half the time: otherwise the table is doubled repeatedly while it is filled.
    pub size: Option<u32>,
    /// `policy memory`: prefer a small set to a fast one.
    #[doc(alias = "NFT_SET_POL_MEMORY")]
    pub memory: bool,
    /// `KEY : interval VALUE`: the values of a map are ranges; their length is that of both ends together. Only `nft` uses
    /// it; kept in the userdata.
    pub value_ranges: bool,
    /// `auto-merge`: only `nft` uses it; kept in the userdata.
    pub auto_merge: bool,
    /// `comment`, at most 253 bytes less the other entries of the userdata, in which it is kept.
    pub comment: Option<String>,
    /// `typeof`: only `nft` uses it; kept in the userdata.
    pub type_of: Option<Box<TypeOf>>,
    /// Elements, in ascending order of their keys.
    pub elements: Vec<Element>,
    /// Attributes that were read and have no field above: statements of each element, the kind of a map's objects,
    /// references to objects. They are written as they were read; a comparison ignores the values of counters in them.
    pub unread: Vec<Unread>,
}

/// The selectors of `typeof KEY : VALUE` and their byte orders, in `nft`'s internal encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TypeOf {
    /// The selector of the key.
    pub key: Option<Vec<u8>>,
    /// The selector of a map's value.
    pub data: Option<Vec<u8>>,
    /// The byte order of the key, unless its type implies it: host order (1), network order (2), several fields (0).
    pub key_order: Option<u32>,
    /// The byte order of a map's value, in the same way.
    pub data_order: Option<u32>,
}

/// An attribute of a set or of one of its elements, kept as it was listed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unread {
    /// The element that has it; `None` for the set itself.
    pub element: Option<ElementKey>,
    /// `NFTA_SET_*`, or for an element `NFTA_SET_ELEM_*`
    pub attribute: u16,
    /// Its payload.
    pub bytes: Vec<u8>,
}

/// The type of the values of a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum SetData {
    /// No values: a set.
    #[default]
    None,
    /// A verdict: `type KEY : verdict`.
    Verdict,
    /// A value: its type and its length in bytes.
    Value(DataType, u32),
}

/// One element of a set.
#[derive(Clone, Debug)]
#[doc(alias = "NFT_MSG_NEWSETELEM")]
pub struct Element {
    /// The key.
    pub key: ElementKey,
    /// Properties besides the key. Most elements have none; the box keeps large sets small.
    extra: Option<Box<Extra>>,
}

/// Properties of an [`Element`] besides its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extra {
    /// The value that a map assigns to it.
    pub value: Option<Data>,
    /// The verdict that a verdict map assigns to it.
    pub verdict: Option<Verdict>,
    /// `comment`, at most 245 bytes: the kernel keeps 254 bytes of userdata for an element.
    pub comment: Option<String>,
    /// `timeout`: its lifetime, in whole milliseconds, instead of that of the set. In a set with a timeout 0 is unlimited
    /// (`timeout never`, since 6.12).
    pub timeout: Option<Duration>,
    /// `expires`: its remaining lifetime, as read. Not part of the desired state.
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
    /// One value; an empty value is the catch-all element (`*`, since 5.13).
    Value(Data),
    /// From the first to the last value, inclusive. The kernel keeps `[first, last + 1)`; a range that ends at the highest
    /// value has no end element there.
    Range(Box<(Data, Data)>),
}

impl ElementKey {
    /// The range from the first to the last value, inclusive.
    #[must_use]
    pub fn range(first: Data, last: Data) -> Self {
        Self::Range(Box::new((first, last)))
    }

    /// The lowest value that it covers.
    #[must_use]
    pub fn first(&self) -> &Data {
        match self {
            Self::Value(d) => d,
            Self::Range(ends) => &ends.0,
        }
    }

    /// The highest value that it covers.
    #[must_use]
    pub fn last(&self) -> &Data {
        match self {
            Self::Value(d) => d,
            Self::Range(ends) => &ends.1,
        }
    }
}

/// Not derived: an element without properties has no box, or a box with defaults.
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

/// Ordered by the lowest value that they cover.
impl Ord for ElementKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.first(), self.last()).cmp(&(other.first(), other.last()))
    }
}

impl Element {
    /// An element with a key only.
    #[must_use]
    pub fn new(key: ElementKey) -> Self {
        Self { key, extra: None }
    }

    /// Its properties besides the key.
    #[must_use]
    pub fn extra(&self) -> &Extra {
        self.extra.as_deref().unwrap_or(&NOTHING)
    }

    /// Its properties, mutable.
    pub fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Sets its properties besides the key.
    #[must_use]
    pub fn with(mut self, extra: Extra) -> Self {
        self.extra = (extra != NOTHING).then(|| Box::new(extra));
        self
    }

    /// Normalizes: clears the remaining lifetime, and a timeout equal to the set's, which the kernel does not list.
    pub(crate) fn settle(&mut self, set: Option<Duration>) {
        if let Some(extra) = &mut self.extra {
            extra.expires = None;
            // In a set without a timeout, 0 is equal to none.
            let own = set.unwrap_or_default();
            extra.timeout = extra.timeout.filter(|t| *t != own);
        }
    }

    /// An element of one value.
    #[must_use]
    pub fn value(data: Data) -> Self {
        Self::new(ElementKey::Value(data))
    }

    /// The prefix `addr/len` as the range that it covers.
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
