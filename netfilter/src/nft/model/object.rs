//! Stateful objects and flowtables of a table, with their attributes as they were read.

use crate::nft::expr::Quota;
use crate::nft::raw;
use crate::nft::wire::FlowtableAttrs;
use weir_netlink::attr::{AttrSet, Writer};

/// A stateful object or a flowtable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "NFT_MSG_NEWOBJ")]
pub struct Object {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name, unique among those of its kind in the table.
    pub name: String,
    /// `comment`, at most 253 bytes. Since 5.10; kept in the userdata.
    pub comment: Option<String>,
    /// Its own attributes as they were listed: `NFTA_OBJ_DATA`, or all of a flowtable.
    pub data: Vec<u8>,
}

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ObjectKind {
    /// `NFT_OBJECT_*`. Since 4.10
    Stateful(u32),
    /// `flowtable`. Since 4.16
    Flowtable,
}

impl Object {
    /// Whether the other is the object of the same kind and name.
    pub(crate) fn is_for(&self, other: &Self) -> bool {
        self.kind == other.kind && self.name == other.name
    }

    /// The data as they can be written: the kernel lists `NFT_QUOTA_F_DEPLETED` for a quota that is used up, and refuses it
    /// in a request.
    pub(crate) fn written_data(&self) -> Vec<u8> {
        let quota = Quota::decode(&self.data).unwrap_or_default();
        match self.kind {
            ObjectKind::Stateful(raw::NFT_OBJECT_QUOTA) if quota.is_depleted() => {
                without(&self.data, Quota::settle_flags)
            }
            _ => self.data.clone(),
        }
    }

    /// The object without the values that packets change.
    pub(crate) fn settled(&self) -> Self {
        let data = match self.kind {
            ObjectKind::Stateful(raw::NFT_OBJECT_COUNTER) => Vec::new(),
            ObjectKind::Stateful(raw::NFT_OBJECT_QUOTA) => {
                without(&self.data, |quota: &mut Quota| {
                    quota.consumed = None;
                    quota.settle_flags();
                })
            }
            ObjectKind::Stateful(_) => self.data.clone(),
            ObjectKind::Flowtable => without(&self.data, |f: &mut FlowtableAttrs| {
                (f.uses, f.handle) = (None, None);
            }),
        };
        Self {
            data,
            ..self.clone()
        }
    }
}

fn without<A: AttrSet + Default>(data: &[u8], clear: impl Fn(&mut A)) -> Vec<u8> {
    let mut attrs = A::decode(data).unwrap_or_default();
    clear(&mut attrs);
    let mut w = Writer::default();
    attrs.encode(&mut w);
    w.finish().unwrap_or_default()
}

impl ObjectKind {
    /// The keyword in `nft list ruleset`, such as `counter` or `ct helper`; for a kind that this version does not know, its
    /// number.
    #[must_use]
    pub fn word(self) -> String {
        let word = match self {
            Self::Flowtable => "flowtable",
            Self::Stateful(1) => "counter",
            Self::Stateful(2) => "quota",
            Self::Stateful(3) => "ct helper",
            Self::Stateful(4) => "limit",
            Self::Stateful(5) => "connlimit",
            Self::Stateful(6) => "tunnel",
            Self::Stateful(7) => "ct timeout",
            Self::Stateful(8) => "secmark",
            Self::Stateful(9) => "ct expectation",
            Self::Stateful(10) => "synproxy",
            Self::Stateful(n) => return format!("object {n}"),
        };
        word.to_owned()
    }
}
