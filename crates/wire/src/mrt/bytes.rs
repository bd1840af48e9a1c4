//! A cursor over a record that knows where it is.

use super::{Expected, Fault};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes that are still to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(rest: &'a [u8], at: usize) -> Self {
        Self { rest, at }
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn at(self) -> usize {
        self.at
    }

    pub(super) fn len(self) -> usize {
        self.rest.len()
    }

    pub(super) fn is_empty(self) -> bool {
        self.rest.is_empty()
    }

    #[cold]
    fn missing(self, what: &'static str, wanted: usize) -> Fault {
        Fault { at: self.at, expected: Expected::Bytes { what, wanted, left: self.rest.len() } }
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Fault> {
        let Some((first, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.missing(what, N));
        };
        self.rest = rest;
        self.at += N;
        Ok(*first)
    }

    #[inline]
    pub(super) fn take(&mut self, bytes: usize, what: &'static str) -> Result<Bytes<'a>, Fault> {
        let Some((first, rest)) = self.rest.split_at_checked(bytes) else {
            return Err(self.missing(what, bytes));
        };
        let taken = Bytes { rest: first, at: self.at };
        self.rest = rest;
        self.at += bytes;
        Ok(taken)
    }

    #[inline]
    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, Fault> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    #[inline]
    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, Fault> {
        self.array(what).map(u16::from_be_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, Fault> {
        self.array(what).map(u32::from_be_bytes)
    }

    #[inline]
    pub(super) fn asn(&mut self, four: bool, what: &'static str) -> Result<u32, Fault> {
        if four { self.u32(what) } else { self.u16(what).map(u32::from) }
    }

    #[inline]
    pub(super) fn address(&mut self, six: bool, what: &'static str) -> Result<IpAddr, Fault> {
        if six {
            self.array::<16>(what).map(|bytes| Ipv6Addr::from(bytes).into())
        } else {
            self.array::<4>(what).map(|bytes| Ipv4Addr::from(bytes).into())
        }
    }
}
