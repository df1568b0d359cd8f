//! A program that does nothing: what it costs to start and end a static one.
#![forbid(unsafe_code)]

fn main() {}
