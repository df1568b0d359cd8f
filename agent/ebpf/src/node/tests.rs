use super::maps::Maps;
use super::*;

/// Acceptance check 1 of eBPF mode, for the programs of the node.
#[test]
fn check_1_every_program_loads() {
    for [dual, dns] in [[false, false], [false, true], [true, false], [true, true]] {
        let maps = match Maps::create(dns) {
            Err(e) if e.is_permission() => {
                println!("skipped: {e}");
                return;
            }
            made => made.unwrap(),
        };
        for role in NodeRole::ALL {
            let code = assemble(role, NodeTraits { dual, dns }).unwrap();
            let loaded = code.load("weir_test", &maps.list());
            loaded.unwrap_or_else(|e| panic!("{role:?} {dual} {dns}: {e}\n{}", e.log));
        }
    }
}
