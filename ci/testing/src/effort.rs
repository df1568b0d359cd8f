//! How much a test does that could go on for ever. Under emulation everything takes twenty times as long, so the
//! kernel matrix asks for less.

/// How many random cases: `PROPTEST_CASES`, else `usual`.
pub fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(usual)
}

/// Every how manieth step of a long walk is taken: all without `PROPTEST_CASES`, else so many that about that number
/// of `steps` is left.
pub fn stride(steps: usize) -> usize {
    let all = u32::try_from(steps).unwrap_or(u32::MAX);
    let wanted = usize::try_from(cases(all)).unwrap_or(steps).max(1);
    steps.div_ceil(wanted).max(1)
}

/// The seed of random cases: that of `WEIR_SEED`, or of this moment. A test prints it, so that the same cases can be had again.
pub fn seed() -> u64 {
    match std::env::var("WEIR_SEED") {
        Ok(text) => text.parse().expect("WEIR_SEED is a number"),
        Err(_) => {
            let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
            u64::try_from(since.as_micros()).expect("not that late")
        }
    }
}
