#![forbid(unsafe_code)]

pub mod demo;
