//! The values that immediate expressions load before a statement.

use super::{DataAttrs, Expr, expr};
use crate::nft::model::Data;
use crate::nft::raw;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Registers and their values, from register 1.
#[derive(Debug, Default)]
pub(crate) struct Registers(Vec<(u32, Data)>);

impl Registers {
    /// Loads a value into the next register.
    pub(super) fn put(&mut self, data: Data) -> u32 {
        let register = self.0.last().map_or(raw::NFT_REG_1, |(last, _)| last + 1);
        self.0.push((register, data));
        register
    }

    /// Loads the first and, if it differs, the last value.
    pub(super) fn put_range(&mut self, range: Option<(Data, Data)>) -> (Option<u32>, Option<u32>) {
        let Some((first, last)) = range else {
            return (None, None);
        };
        let is_one = first == last;
        let min = self.put(first);
        (Some(min), (!is_one).then(|| self.put(last)))
    }

    pub(super) fn put_ports(
        &mut self,
        ports: Option<&RangeInclusive<u16>>,
    ) -> (Option<u32>, Option<u32>) {
        self.put_range(ports.map(|p| (Data::be16(*p.start()), Data::be16(*p.end()))))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The expressions that load the values.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = Expr> {
        self.0.iter().map(|(dreg, data)| {
            expr!(Immediate {
                dreg: *dreg,
                data: DataAttrs::of(&data.0),
            })
        })
    }

    /// The values that the first expressions load, and the expression after them.
    pub(crate) fn read(exprs: &[Expr]) -> Option<(Self, &Expr)> {
        let mut registers = Self::default();
        for e in exprs {
            let Expr::Immediate(i) = e else {
                return Some((registers, e));
            };
            let value = i.data.as_ref()?.value.as_deref()?;
            registers.0.push((i.dreg?, Data::from(value)));
        }
        None
    }

    fn get(&self, register: Option<u32>) -> Option<&[u8]> {
        let found = self.0.iter().find(|(r, _)| Some(*r) == register)?;
        Some(&found.1.0)
    }

    /// The ports in these registers: `Some(None)` without a register, `None` if a register holds no port.
    #[allow(clippy::option_option)]
    pub(super) fn ports(
        &self,
        min: Option<u32>,
        max: Option<u32>,
    ) -> Option<Option<RangeInclusive<u16>>> {
        if min.is_none() {
            return Some(None);
        }
        let port = |register| Some(u16::from_be_bytes(self.get(register)?.try_into().ok()?));
        Some(Some(port(min)?..=port(max.or(min))?))
    }

    pub(super) fn addr(&self, register: Option<u32>) -> Option<IpAddr> {
        let data = self.get(register)?;
        match <[u8; 4]>::try_from(data) {
            Ok(v4) => Some(v4.into()),
            Err(_) => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
        }
    }
}
