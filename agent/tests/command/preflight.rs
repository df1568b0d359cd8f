//! `weir preflight` on the real kernel: the real tools confirm its answers, it changes nothing, and its exit codes are right.
// matrix: every

mod batch;
mod nft_scripts;
mod numbers;
mod oracle;
mod run;
mod tools;
mod unchanged;
mod works;
