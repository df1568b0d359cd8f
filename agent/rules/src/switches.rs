//! Switches of upstream's installer that select its mode of operation: the engine they select, and notes on modes that
//! weir does not have.

use crate::SidecarConfig;
use weir_cni::compile::Engine;

impl SidecarConfig {
    /// Returns the engine that `native_nftables` or `force_iptables_binary` selects; `None` if neither does.
    ///
    /// For upstream `nft` selects the `iptables` program that writes nf_tables. Weir writes nf_tables only as tables of its
    /// own, and selects these.
    #[must_use]
    pub fn engine(&self) -> Option<Engine> {
        match (self.native_nftables, self.force_iptables_binary.as_str()) {
            (true, _) | (false, "nft") => Some(Engine::Nft),
            (false, "legacy") => Some(Engine::Xtables),
            (false, _) => None,
        }
    }

    /// Returns one sentence per setting whose effect differs from upstream's documentation.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        match (self.native_nftables, self.force_iptables_binary.as_str()) {
            (_, "") => {}
            (true, forced) => notes.push(format!(
                "force_iptables_binary {forced:?} has no effect beside native_nftables"
            )),
            (false, "nft") => notes.push(
                "force_iptables_binary \"nft\": the rules go into nf_tables tables of their own \
                 (inet istio-proxy-*), not into those of iptables-nft"
                    .to_owned(),
            ),
            _ => {}
        }
        if self.force_apply {
            notes.push("force_apply: what is in force and in sync is not applied again".to_owned());
        }
        if self.run_validation && (self.dry_run || self.cleanup_only) {
            let why = if self.dry_run {
                "dry_run"
            } else {
                "cleanup_only"
            };
            notes.push(format!("run_validation has no effect beside {why}"));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(native: bool, forced: &str) -> SidecarConfig {
        SidecarConfig {
            native_nftables: native,
            force_iptables_binary: forced.to_owned(),
            ..SidecarConfig::default()
        }
    }

    #[test]
    fn the_engine_that_is_asked_for() {
        assert_eq!(of(false, "").engine(), None);
        assert_eq!(of(true, "").engine(), Some(Engine::Nft));
        assert_eq!(of(false, "nft").engine(), Some(Engine::Nft));
        assert_eq!(of(false, "legacy").engine(), Some(Engine::Xtables));
        assert_eq!(of(true, "legacy").engine(), Some(Engine::Nft));
    }

    #[test]
    fn what_is_done_instead_is_said() {
        assert_eq!(SidecarConfig::default().notes(), Vec::<String>::new());
        assert_eq!(of(false, "legacy").notes(), Vec::<String>::new());
        assert!(of(true, "legacy").notes()[0].contains("no effect beside native_nftables"));
        assert!(of(false, "nft").notes()[0].contains("inet istio-proxy-*"));
        let all = SidecarConfig {
            force_apply: true,
            run_validation: true,
            cleanup_only: true,
            ..SidecarConfig::default()
        };
        let notes = all.notes();
        assert!(notes[0].starts_with("force_apply: "), "{notes:?}");
        assert!(notes[1].contains("beside cleanup_only"), "{notes:?}");
    }
}
