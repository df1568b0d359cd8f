use super::*;
use crate::maps::Maps;

fn traits(dual: bool, dns: bool) -> Traits {
    Traits {
        dual,
        dns,
        probe4: std::net::Ipv4Addr::new(169, 254, 7, 127),
        probe6: "fd16:9254:7127:1337:ffff:ffff:ffff:ffff".parse().unwrap(),
    }
}

const ROLES: [Role; 4] = [Role::Egress, Role::Ingress, Role::Guest, Role::Loopback];

/// Acceptance check 1 of eBPF mode: all programs load, with a license that is not GPL.
#[test]
fn check_1_every_program_loads() {
    for (dual, dns) in [(false, false), (true, false), (false, true), (true, true)] {
        let maps = match Maps::create(dns) {
            Err(e) if e.is_permission() => {
                println!("skipped: {e}");
                return;
            }
            made => made.unwrap(),
        };
        for role in ROLES {
            let code = assemble(role, &traits(dual, dns)).unwrap();
            let loaded = code.load("weir_test", &maps.list());
            let program =
                loaded.unwrap_or_else(|e| panic!("{role:?} {dual} {dns}: {e}\n{}", e.log));
            println!(
                "{role:?} {dual} {dns}: {} instructions, {:?}",
                code.bytes().len(),
                program.info().unwrap().length
            );
        }
    }
}
