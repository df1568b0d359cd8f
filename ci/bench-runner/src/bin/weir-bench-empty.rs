//! A program that does nothing, for the cost of starting and ending a static program.
#![forbid(unsafe_code)]

fn main() {}
