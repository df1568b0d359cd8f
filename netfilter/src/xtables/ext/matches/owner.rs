//! `-m owner`: `struct xt_owner_match_info` (`linux/netfilter/xt_owner.h`), 20 bytes.

use super::super::prelude::*;
use std::ops::RangeInclusive;

/// Conditions on the socket that sent the packet.
///
/// A packet without a socket does not match, and therefore matches the inverted form. Only in `OUTPUT` and `POSTROUTING`. The
/// kernel refuses UIDs and GIDs (`EINVAL`) unless the writer's user namespace owns the network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_owner_match_info")]
pub struct Owner {
    /// `--socket-exists`
    pub socket: Option<Not>,
    /// `--uid-owner`, inclusive range.
    pub uid: Option<(Not, RangeInclusive<u32>)>,
    /// `--gid-owner`, inclusive range.
    pub gid: Option<(Not, RangeInclusive<u32>)>,
    /// `--suppl-groups`: supplementary groups are matched with `--gid-owner` too.
    pub suppl_groups: bool,
}

pub(crate) const KIND: Kind<Owner> = Kind {
    name: "owner",
    forms: |_| forms!["owner" 1],
    encode,
    decode,
    options: &[
        ("--uid-owner", 1),
        ("--gid-owner", 1),
        ("--socket-exists", 0),
        ("--suppl-groups", 0),
    ],
    parse,
};

fn encode(v: &Owner, _: Form, _: &Context<'_>) -> Encoded {
    let (mut flags, mut invert) = (0, 0);
    let mut note = |not: Option<Not>, bit: u8| {
        flags |= if not.is_some() { bit } else { 0 };
        invert |= if not == Some(Not(true)) { bit } else { 0 };
    };
    note(v.socket, XT_OWNER_SOCKET);
    note(v.uid.as_ref().map(|u| u.0), XT_OWNER_UID);
    note(v.gid.as_ref().map(|g| g.0), XT_OWNER_GID);
    note(v.suppl_groups.then_some(Not(false)), XT_OWNER_SUPPL_GROUPS);
    let ends = |ids: &Option<(Not, RangeInclusive<u32>)>| {
        ids.as_ref().map_or([0, 0], |(_, r)| [*r.start(), *r.end()])
    };
    Ok(Some(written(&XtOwnerMatchInfo {
        uid: ends(&v.uid),
        gid: ends(&v.gid),
        match_: flags,
        invert,
        ..zeroed()
    })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Owner> {
    let w: XtOwnerMatchInfo = read(b)?;
    let not = |bit: u8| (w.match_ & bit != 0).then_some(Not(w.invert & bit != 0));
    let ids = |bit: u8, [first, last]: [u32; 2]| not(bit).map(|n| (n, first..=last));
    Some(Owner {
        socket: not(XT_OWNER_SOCKET),
        uid: ids(XT_OWNER_UID, w.uid),
        gid: ids(XT_OWNER_GID, w.gid),
        suppl_groups: w.match_ & XT_OWNER_SUPPL_GROUPS != 0,
    })
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket
            .iter()
            .try_for_each(|not| write!(f, "{not} --socket-exists"))?;
        for (option, ids) in [("--uid-owner", &self.uid), ("--gid-owner", &self.gid)] {
            let Some((not, ids)) = ids else { continue };
            write!(f, "{not} {option} {}", ids.start())?;
            if ids.start() != ids.end() {
                write!(f, "-{}", ids.end())?;
            }
        }
        f.write_str(if self.suppl_groups {
            " --suppl-groups"
        } else {
            ""
        })
    }
}

fn ids(o: &Opt) -> Result<(Not, RangeInclusive<u32>), Complaint> {
    let number = |text: &str| {
        let why = "is no number or range of numbers; names of users and groups are not looked up";
        o.number_in::<u32>(text, why)
    };
    let word = o.word(0);
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Ok((o.not, number(first)?..=number(last)?))
}

fn parse(given: &mut Given) -> Result<Owner, Complaint> {
    let uid = given.take(&["--uid-owner"]).map(|o| ids(&o)).transpose()?;
    let gid = given.take(&["--gid-owner"]).map(|o| ids(&o)).transpose()?;
    let socket = given.take(&["--socket-exists"]).map(|o| o.not);
    let suppl_groups = given.flag("--suppl-groups")?;
    let v = Owner {
        socket,
        uid,
        gid,
        suppl_groups,
    };
    if v.suppl_groups && v.gid.is_none() {
        return Err(given.lacks("--gid-owner, of which --suppl-groups is a part"));
    }
    if v == Owner::default() {
        return Err(given.lacks("--uid-owner, --gid-owner or --socket-exists"));
    }
    Ok(v)
}
