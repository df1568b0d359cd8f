//! Rules of ours where nobody asks for any.

use super::{Change, Sandbox, engines, leftovers};
use crate::compile::RoutingItem;
use weir_netfilter::xtables::Ruleset;
use weir_netlink::Result;

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
    /// routing with our protocol number. `None`: nothing does. For pods that should have nothing; changes nothing.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn strays(&self) -> Result<Option<Strays>> {
        let (tables, signed, foreign) = self.netns().run(|| {
            let tables = engines::nft_is_there()? && engines::nft_holds_ours()?;
            let foreign =
                engines::nft_is_there()? && !leftovers::find(&Ruleset::default())?.is_empty();
            Ok::<_, weir_netlink::Error>((tables, engines::legacy_is_signed()?, foreign))
        })??;
        let changes = self.plan_clean(None)?;
        let routing = |change: &Change| {
            let Change::Remove(item) = change else {
                return false;
            };
            // On older kernels an address bears no mark.
            !matches!(item, RoutingItem::Address { .. })
        };
        if !tables && !signed && !changes.iter().any(routing) {
            return Ok(None);
        }
        let legacy = changes.iter().any(|c| matches!(c, Change::Legacy(_)));
        let certain = !foreign && (signed || !legacy);
        Ok(Some(Strays { changes, certain }))
    }
}
