//! The number of repetitions in tests that could run arbitrarily long. Under emulation everything takes twenty times as
//! long, so the kernel matrix requests fewer.

/// The number of random cases: `PROPTEST_CASES`, else `usual`.
pub fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(usual)
}

/// The stride through a long loop of `steps`: 1 without `PROPTEST_CASES`, else such that about that many steps are left.
pub fn stride(steps: usize) -> usize {
    let all = u32::try_from(steps).unwrap_or(u32::MAX);
    let wanted = usize::try_from(cases(all)).unwrap_or(steps).max(1);
    steps.div_ceil(wanted).max(1)
}

/// The seed of random cases: `WEIR_SEED`, else derived from the time. Tests print it so that the cases can be repeated.
pub fn seed() -> u64 {
    match std::env::var("WEIR_SEED") {
        Ok(text) => text.parse().expect("WEIR_SEED is a number"),
        Err(_) => {
            let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
            u64::try_from(since.as_micros()).expect("not that late")
        }
    }
}

/// CPU time of the calling thread (`clock_gettime(CLOCK_THREAD_CPUTIME_ID)`). Unlike elapsed time, it does not depend on the
/// load of the machine, so that a test may compare two measurements.
pub fn cpu_time() -> std::time::Duration {
    let now = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID.now();
    now.expect("the clock of this thread").into()
}
