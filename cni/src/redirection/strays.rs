//! Rules of ours where nobody asks for any.

use super::named::Named;
use super::routing::Held;
use super::{Change, Sandbox, engines, leftovers};
use crate::compile::RoutingItem;
use weir_netlink::Result;
use weir_netlink::route::Routing;

/// What [`Sandbox::strays`] found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strays {
    /// What [`Sandbox::clean`] would remove.
    pub changes: Vec<Change>,
    /// Nothing of that can be another writer's: there are no chains of legacy tables or of `iptables-nft` that bear our
    /// prefix, which upstream's ambient mode uses too, without our sign.
    pub certain: bool,
}

impl Sandbox {
    /// What bears a mark of this program in the namespace: tables of [`TABLES`](super::TABLES), legacy rules with our sign, and
    /// routing with our protocol number, which addresses have since Linux 5.18 (`IFA_PROTO`). `None`: nothing does. For pods that should have nothing; changes nothing.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn strays(&self) -> Result<Option<Strays>> {
        let (tables, signed, foreign) = self.netns().run(|| {
            let tables = engines::nft_is_there()? && engines::nft_holds_ours()?;
            let foreign = engines::nft_is_there()? && !leftovers::find(Named::NONE)?.is_empty();
            Ok::<_, weir_netlink::Error>((tables, engines::legacy_is_signed()?, foreign))
        })??;
        let changes = self.plan_clean(None)?;
        let (mut routing, mut address) = (false, false);
        for change in &changes {
            match change {
                Change::Remove(RoutingItem::Address { .. }) => address = true,
                Change::Remove(_) => routing = true,
                _ => {}
            }
        }
        // On older kernels an address bears no mark.
        let is_marked = || {
            let held = self.netns().run(|| Held::read(&Routing::open()?, &[]))??;
            Ok::<_, weir_netlink::Error>(held.owns_passthrough())
        };
        let is_ours = tables || signed || routing || (address && is_marked()?);
        if !is_ours {
            return Ok(None);
        }
        let legacy = changes.iter().any(|c| matches!(c, Change::Legacy(_)));
        let certain = !foreign && (signed || !legacy);
        Ok(Some(Strays { changes, certain }))
    }
}
