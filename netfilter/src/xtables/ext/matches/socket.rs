//! `-m socket`: `struct xt_socket_mtinfo1` to `3` (`linux/netfilter/xt_socket.h`), one byte of flags;
//! revision 0 has no data.

use super::super::prelude::*;

/// Matches if an open socket would receive the packet. Only in `PREROUTING` and `INPUT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_socket_mtinfo3")]
pub struct Socket {
    /// `--transparent`: only sockets with `IP_TRANSPARENT`.
    pub transparent: bool,
    /// `--nowildcard`: also sockets that are bound to the unspecified address (revision 2).
    pub nowildcard: bool,
    /// `--restore-skmark`: the packet's mark is set to the socket's (revision 3, Linux 4.4).
    pub restore_skmark: bool,
}

pub(crate) const KIND: Kind<Socket> = Kind {
    name: "socket",
    forms: |family| match family {
        XtFamily::Ip => forms!["socket" 3, "socket" 2, "socket" 1, "socket" 0],
        XtFamily::Ip6 => forms!["socket" 3, "socket" 2, "socket" 1],
    },
    encode,
    decode,
    options: &[
        ("--transparent", 0),
        ("--nowildcard", 0),
        ("--restore-skmark", 0),
    ],
    parse,
};

fn encode(v: &Socket, form: Form, _: &Context<'_>) -> Encoded {
    let needs = match v {
        Socket {
            restore_skmark: true,
            ..
        } => 3,
        Socket {
            nowildcard: true, ..
        } => 2,
        Socket {
            transparent: true, ..
        } => 1,
        _ => 0,
    };
    let flags = (u8::from(v.transparent) * XT_SOCKET_TRANSPARENT)
        | (u8::from(v.nowildcard) * XT_SOCKET_NOWILDCARD)
        | (u8::from(v.restore_skmark) * XT_SOCKET_RESTORESKMARK);
    Ok((form.revision >= needs).then(|| match form.revision {
        0 => Vec::new(),
        _ => written(&XtSocketMtinfo1 { flags }),
    }))
}

fn decode(form: Form, b: &[u8], _: &Context<'_>) -> Option<Socket> {
    let flags = match form.revision {
        0 => 0,
        _ => read(b).map(|w: XtSocketMtinfo1| w.flags)?,
    };
    Some(Socket {
        transparent: flags & XT_SOCKET_TRANSPARENT != 0,
        nowildcard: flags & XT_SOCKET_NOWILDCARD != 0,
        restore_skmark: flags & XT_SOCKET_RESTORESKMARK != 0,
    })
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (is, text) in [
            (self.transparent, " --transparent"),
            (self.nowildcard, " --nowildcard"),
            (self.restore_skmark, " --restore-skmark"),
        ] {
            f.write_str(if is { text } else { "" })?;
        }
        Ok(())
    }
}

fn parse(given: &mut Given) -> Result<Socket, Complaint> {
    Ok(Socket {
        transparent: given.flag("--transparent")?,
        nowildcard: given.flag("--nowildcard")?,
        restore_skmark: given.flag("--restore-skmark")?,
    })
}
