//! `firewall [NETNS]`: a small firewall, in a network namespace given by its path, or in a new one that ends with this.
//!
//! What is established, `lo` and SSH come in; everything else is dropped. It prints what it changed, as `nft`
//! commands, and then the rules that the kernel holds. As root:
//!
//! ```sh
//! ip netns add lab && cargo run -- /run/netns/lab
//! ```

use std::error::Error;
use weir_netfilter::nft::raw::ct_state::{ESTABLISHED, RELATED};
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, NftEngine, TableFamily, Hook, L4Proto, Policy, Rule, Ruleset, Table, Verdict,
    priority,
};
use weir_netlink::Netns;

fn main() -> Result<(), Box<dyn Error>> {
    let netns = match std::env::args_os().nth(1) {
        Some(path) => Netns::open(path.as_ref())?,
        None => Netns::create()?,
    };
    let mut input =
        Chain::base("input", ChainType::Filter, Hook::Input, priority::FILTER).policy(Policy::Drop);
    input.rules = vec![
        Rule::builder()
            .ct_state(ESTABLISHED | RELATED)
            .verdict(Verdict::Accept),
        Rule::builder()
            .iifname(CmpOp::Eq, "lo")
            .verdict(Verdict::Accept),
        Rule::builder()
            .dport(L4Proto::Tcp, CmpOp::Eq, 22..=22)
            .counter()
            .verdict(Verdict::Accept),
    ];
    let mut table = Table::new(TableFamily::Inet, "firewall");
    table.chains.push(input);
    let desired = Ruleset {
        tables: vec![table],
    };

    let owned = [(TableFamily::Inet, "firewall".to_owned())];
    let applied = netns.run(|| NftEngine::open()?.apply(&desired, &owned))??;
    for op in &applied.ops {
        println!("{op}");
    }
    print!("\n{}", netns.run(|| NftEngine::open()?.read())??.ruleset);
    Ok(())
}
