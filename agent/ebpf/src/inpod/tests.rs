use super::*;
use crate::maps::Maps;

fn traits(dual: bool, dns: bool, events: bool) -> Traits {
    Traits {
        dual,
        dns,
        probe4: std::net::Ipv4Addr::new(169, 254, 7, 127),
        probe6: "fd16:9254:7127:1337:ffff:ffff:ffff:ffff".parse().unwrap(),
        events,
    }
}

const ROLES: [Role; 4] = [Role::Egress, Role::Ingress, Role::Guest, Role::Loopback];

/// Acceptance check 1 of eBPF mode: all programs load, with a license that is not GPL.
#[test]
fn check_1_every_program_loads() {
    let has_events = crate::events::is_supported().unwrap_or(false);
    for bits in 0..if has_events { 8 } else { 4 } {
        let [dual, dns, events] = [1, 2, 4].map(|bit| bits & bit != 0);
        let maps = match Maps::create(dns, events) {
            Err(e) if e.is_permission() => {
                println!("skipped: {e}");
                return;
            }
            made => made.unwrap(),
        };
        for role in ROLES {
            let code = assemble(role, &traits(dual, dns, events)).unwrap();
            let loaded = code.load("weir_test", &maps.list());
            let program =
                loaded.unwrap_or_else(|e| panic!("{role:?} {dual} {dns} {events}: {e}\n{}", e.log));
            println!(
                "{role:?} {dual} {dns} {events}: {} instructions, {:?}",
                code.bytes().len(),
                program.info().unwrap().length
            );
        }
    }
}
