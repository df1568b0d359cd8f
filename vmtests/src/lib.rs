//! The kernel matrix: this test binary on that kernel.
//!
//! A stub so far: it boots nothing. The tests of the other rooms run on the kernel of the machine.
#![forbid(unsafe_code)]
