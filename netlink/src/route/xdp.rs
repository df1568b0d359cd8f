//! XDP programs of an interface: `ip link show`, the word `xdp`.

use super::Link;
use crate::attr::{AttrSet as _, DecodeError, Ne32, U8};

crate::attributes! {
    /// `IFLA_XDP_*` (`linux/if_link.h`), nested in `IFLA_XDP`. Since 4.8; the program ids by mode since 4.19
    pub struct XdpAttrs {
        /// `XDP_ATTACHED_*`: the mode, or `XDP_ATTACHED_MULTI`
        attached: U8 = IFLA_XDP_ATTACHED 2,
        /// id of the program, if it is the only one
        program: Ne32 = IFLA_XDP_PROG_ID 4,
        /// id of the program that the driver runs
        driver: Ne32 = IFLA_XDP_DRV_PROG_ID 5,
        /// id of the program that the kernel runs
        generic: Ne32 = IFLA_XDP_SKB_PROG_ID 6,
        /// id of the program that the device runs
        hardware: Ne32 = IFLA_XDP_HW_PROG_ID 7,
    }
}

/// `linux/if_link.h`
pub(super) const IFLA_XDP: u16 = 43;

/// Where an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum XdpMode {
    /// `xdp`: in the driver, before the kernel allocates a packet buffer. `XDP_ATTACHED_DRV`
    #[doc(alias = "XDP_ATTACHED_DRV")]
    Driver,
    /// `xdpgeneric`: in the kernel, before traffic control. `XDP_ATTACHED_SKB`
    #[doc(alias = "XDP_ATTACHED_SKB")]
    Generic,
    /// `xdpoffload`: in the device. `XDP_ATTACHED_HW`
    #[doc(alias = "XDP_ATTACHED_HW")]
    Hardware,
}

impl XdpMode {
    /// The name in `ip link`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Driver => "xdp",
            Self::Generic => "xdpgeneric",
            Self::Hardware => "xdpoffload",
        }
    }
}

impl Link {
    /// The ids of the XDP programs of a link that was read (`ip -d link show`, after `prog/xdp`). An interface may have one
    /// program of each mode.
    ///
    /// # Errors
    /// The kernel's attributes do not match [`XdpAttrs`].
    #[doc(alias = "IFLA_XDP")]
    pub fn xdp(&self) -> Result<Vec<(XdpMode, u32)>, DecodeError> {
        let Some((_, bytes)) = self.other.iter().find(|(number, _)| *number == IFLA_XDP) else {
            return Ok(Vec::new());
        };
        let attrs = XdpAttrs::decode(bytes)?;
        let by_mode = [
            (XdpMode::Hardware, attrs.hardware),
            (XdpMode::Driver, attrs.driver),
            (XdpMode::Generic, attrs.generic),
        ];
        let known = by_mode
            .into_iter()
            .filter_map(|(mode, id)| Some((mode, id?)));
        Ok(known.collect())
    }
}
