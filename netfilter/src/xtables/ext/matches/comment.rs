//! `-m comment`: `struct xt_comment_info` (`linux/netfilter/xt_comment.h`), 256 bytes.

use super::super::prelude::*;
use weir_netlink::attr::bytes_of;

/// A comment of at most 255 bytes. It matches every packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_comment_info")]
pub struct Comment(pub String);

pub(crate) const KIND: Kind<Comment> = Kind {
    name: "comment",
    forms: |_| forms!["comment" 0],
    encode,
    decode,
    options: &[("--comment", 1)],
    parse,
};

fn encode(v: &Comment, _: Form, _: &Context<'_>) -> Encoded {
    let comment =
        name_field(&v.0).ok_or("a comment has at most 255 bytes and no zero; shorten it")?;
    Ok(Some(written(&XtCommentInfo { comment })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Comment> {
    let w: XtCommentInfo = read(b)?;
    Some(Comment(name_of(&w.comment)?))
}

impl fmt::Display for Comment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --comment {}", Quoted(&self.0))
    }
}

fn parse(given: &mut Given) -> Result<Comment, Complaint> {
    let o = given.need(&["--comment"])?;
    if bytes_of(o.plain()?.word(0)).len() >= XT_MAX_COMMENT_LEN {
        return Err(o.wrong("is longer than 255 bytes; shorten it"));
    }
    Ok(Comment(o.word(0).to_owned()))
}
