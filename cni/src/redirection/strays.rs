//! Rules of ours where nobody asks for any.

use super::named::Named;
use super::routing::Held;
use super::{Change, Sandbox, authorship, engines, leftovers};
use crate::compile::RoutingItem;
use weir_netfilter::xtables::Op;
use weir_netlink::Result;
use weir_netlink::route::Routing;

/// What [`Sandbox::strays`] found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strays {
    /// What [`Sandbox::clean`] would remove.
    pub changes: Vec<Change>,
    /// Nothing of that can be another writer's: our tables, and chains of legacy tables with our prefix, hold nothing but
    /// what this program writes for some intent, all rules that lead to those chains carry our sign, and no tables of `iptables-nft`
    /// have such chains.
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
            Ok::<_, weir_netlink::Error>((tables, engines::legacy_signed()?, foreign))
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
        let is_ours = tables || signed > 0 || routing || (address && is_marked()?);
        if !is_ours {
            return Ok(None);
        }
        let certain = !foreign
            && (!tables || authorship::wrote_tables(&Self::show(self.netns())?))
            && self.is_own_legacy(&changes, signed)?;
        Ok(Some(Strays { changes, certain }))
    }

    /// Whether what would go from legacy tables is all ours.
    fn is_own_legacy(&self, changes: &[Change], signed: usize) -> Result<bool> {
        let legacy = changes.iter().filter_map(|change| match change {
            Change::Legacy(op) => Some(&**op),
            _ => None,
        });
        let (mut is_used, mut built_in) = (false, 0);
        for op in legacy {
            is_used = true;
            built_in += usize::from(matches!(
                op,
                Op::DeleteRule(_, chain, ..) if !chain.starts_with(engines::PREFIX)
            ));
        }
        if !is_used {
            return Ok(true);
        }
        Ok(built_in == signed && authorship::wrote_chains(&Self::show_legacy(self.netns())?))
    }
}
