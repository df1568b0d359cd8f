//! `weir preflight` on the real kernel: its answers against the real tools, what it leaves unchanged, and how
//! it ends.
// matrix: every

mod batch;
mod nft_scripts;
mod numbers;
mod oracle;
mod run;
mod tools;
mod unchanged;
mod works;
