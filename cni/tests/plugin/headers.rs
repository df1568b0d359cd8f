//! Compares weir's numbers with the system's headers.
// matrix: none: asks a C compiler about the system's headers, and no kernel
use weir_testing::c;

use weir_cni::redirection::RTPROT_WEIR;

const INCLUDES: &str = "#include <stdio.h>\n#include <linux/rtnetlink.h>\n";

#[test]
fn our_route_protocol_is_nobody_elses() {
    let text = std::fs::read_to_string("/usr/include/linux/rtnetlink.h").unwrap();
    let names: Vec<&str> = text
        .lines()
        .filter_map(|l| l.strip_prefix("#define ")?.split_whitespace().next())
        .filter(|name| name.starts_with("RTPROT_"))
        .collect();
    assert!(names.len() > 15, "{names:?}");
    let taken = c::values_in_c(INCLUDES, &names);
    assert!(
        taken["RTPROT_STATIC"] < i64::from(RTPROT_WEIR),
        "the kernel keeps the low ones"
    );
    let same: Vec<_> = taken
        .iter()
        .filter(|(_, n)| **n == i64::from(RTPROT_WEIR))
        .collect();
    assert!(same.is_empty(), "{RTPROT_WEIR} is {same:?}");
}
