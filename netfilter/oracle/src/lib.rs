//! Encodes rules with the C library libnftnl, for comparison with weir's messages. Never part of the product.
//!
//! The crate `nftnl` wraps tables, chains, rules and about half of the expressions that weir uses. [`Expr`] gives access to all
//! expressions through the trait `nftnl::expr::Expression`.
//!
//! # Safety
//!
//! This crate uses `unsafe` because it calls C functions. It is a test tool, and nothing depends on it. Every block below relies
//! on these facts:
//!
//! - an expression comes from `nftnl_expr_alloc` and is returned to the caller of `to_expr`, which owns it
//!   (`nftnl_rule_add_expr` frees it with the rule);
//! - every setter copies its argument during the call, so no argument has to live longer;
//! - every setter is called with the width that libnftnl stores for the attribute; with a wrong width libnftnl aborts and does
//!   not write out of bounds.
#![allow(unsafe_code)]

use nftnl::expr::Expression;
use nftnl::{MsgType, NlMsg, Rule};
use nftnl_sys as sys;
use std::ffi::{CStr, CString};
use std::ptr::NonNull;

/// The value of one attribute.
enum Value {
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    Text(CString),
    Bytes(Vec<u8>),
}

/// Any expression of libnftnl, by name.
pub struct Expr {
    name: &'static CStr,
    values: Vec<(u16, Value)>,
}

impl Expr {
    /// `nftnl_expr_alloc(name)`
    #[must_use]
    pub fn new(name: &'static CStr) -> Self {
        Self {
            name,
            values: Vec::new(),
        }
    }

    fn with(mut self, attribute: u32, value: Value) -> Self {
        // The attributes of an expression are numbered from NFTNL_EXPR_BASE, which is 1.
        self.values
            .push((u16::try_from(attribute).unwrap_or(u16::MAX), value));
        self
    }

    /// `nftnl_expr_set_u8`
    #[must_use]
    pub fn u8(self, attribute: u32, v: u8) -> Self {
        self.with(attribute, Value::U8(v))
    }

    /// `nftnl_expr_set_u16`
    #[must_use]
    pub fn u16(self, attribute: u32, v: u16) -> Self {
        self.with(attribute, Value::U16(v))
    }

    /// `nftnl_expr_set_u32`
    #[must_use]
    pub fn u32(self, attribute: u32, v: u32) -> Self {
        self.with(attribute, Value::U32(v))
    }

    /// `nftnl_expr_set_u64`
    #[must_use]
    pub fn u64(self, attribute: u32, v: u64) -> Self {
        self.with(attribute, Value::U64(v))
    }

    /// `nftnl_expr_set_str`
    #[must_use]
    pub fn text(self, attribute: u32, v: &CStr) -> Self {
        self.with(attribute, Value::Text(v.to_owned()))
    }

    /// `nftnl_expr_set`
    #[must_use]
    pub fn bytes(self, attribute: u32, v: &[u8]) -> Self {
        self.with(attribute, Value::Bytes(v.to_vec()))
    }
}

impl Expression for Expr {
    /// # Panics
    /// libnftnl does not know the name, or is out of memory.
    #[allow(clippy::expect_used)]
    fn to_expr(&self, _: &Rule<'_>) -> NonNull<sys::nftnl_expr> {
        // SAFETY: the name is a C string; the result is checked.
        let made = unsafe { sys::nftnl_expr_alloc(self.name.as_ptr()) };
        let expr = NonNull::new(made).expect("libnftnl knows the expression");
        let e = expr.as_ptr();
        for (attribute, value) in &self.values {
            let n = *attribute;
            // SAFETY: `e` is a valid expression without other references; each pointer is to a value that lives during
            // the call, with the length of that value.
            unsafe {
                match value {
                    Value::U8(v) => sys::nftnl_expr_set_u8(e, n, *v),
                    Value::U16(v) => sys::nftnl_expr_set_u16(e, n, *v),
                    Value::U32(v) => sys::nftnl_expr_set_u32(e, n, *v),
                    Value::U64(v) => sys::nftnl_expr_set_u64(e, n, *v),
                    Value::Text(v) => {
                        sys::nftnl_expr_set_str(e, n, v.as_ptr());
                    }
                    Value::Bytes(v) => {
                        let length = u32::try_from(v.len()).unwrap_or(0);
                        sys::nftnl_expr_set(e, n, v.as_ptr().cast(), length);
                    }
                }
            }
        }
        expr
    }
}

/// The `NFT_MSG_NEWRULE` of libnftnl for a rule, including the header.
///
/// # Panics
/// Never for rules of less than 64 KiB.
#[must_use]
#[allow(clippy::expect_used)]
pub fn message(rule: &Rule<'_>) -> Vec<u8> {
    let mut buffer = vec![0u32; 16 * 1024];
    // SAFETY: the buffer is aligned for a header and larger than any rule of these tests.
    unsafe { rule.write(buffer.as_mut_ptr().cast(), 0, MsgType::Add) };
    let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let length = bytes.first_chunk().map_or(0, |n| u32::from_ne_bytes(*n));
    let length = usize::try_from(length).expect("usize has 32 bits or more");
    bytes.get(..length).expect("the message fits").to_vec()
}
