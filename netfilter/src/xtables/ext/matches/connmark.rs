//! `-m connmark`: `struct xt_connmark_mtinfo1` (`linux/netfilter/xt_connmark.h`), 12 bytes, with the layout and the
//! options of `-m mark`.

use super::super::prelude::*;
use super::mark::{self, Mark};

pub(crate) const KIND: Kind<Mark> = Kind {
    name: "connmark",
    forms: |_| forms!["connmark" 1],
    ..mark::KIND
};
