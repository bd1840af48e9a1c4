//! Macro for headers with fields at fixed offsets: one row per field gives the view's accessor, the repr's
//! field, and its encoding.

use crate::{EtherType, MacAddr};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A type of field. Both functions are inlined where offsets are constants, so no bounds check remains.
pub(crate) trait Field {
    fn load(header: &[u8], at: usize) -> Self;
    fn store(self, header: &mut [u8], at: usize);
}

macro_rules! field {
    ($type:ty, $bytes:literal, $load:expr, $value:ident => $store:expr) => {
        impl Field for $type {
            #[inline(always)]
            fn load(header: &[u8], at: usize) -> Self {
                $load(std::array::from_fn::<u8, $bytes, _>(|i| header[at + i]))
            }

            #[inline(always)]
            fn store(self, header: &mut [u8], at: usize) {
                let $value = self;
                header[at..at + $bytes].copy_from_slice(&$store);
            }
        }
    };
}

field!(u8, 1, u8::from_be_bytes, number => number.to_be_bytes());
field!(u16, 2, u16::from_be_bytes, number => number.to_be_bytes());
field!(u32, 4, u32::from_be_bytes, number => number.to_be_bytes());
field!([u8; 4], 4, std::convert::identity, bytes => bytes);
field!(EtherType, 2, EtherType::from_be_bytes, ether_type => ether_type.to_be_bytes());
field!(MacAddr, 6, MacAddr, address => address.0);
field!(Ipv4Addr, 4, Ipv4Addr::from, address => address.octets());
field!(Ipv6Addr, 16, Ipv6Addr::from, address => address.octets());

/// Defines a repr and the accessors of its view, which has the header as `self.header`. Each row is a field
/// and its offset; a row behind `=>` is a field of the repr without an offset, for which the view has its own
/// function.
macro_rules! header {
    (
        $view:ident, $(#[$repr_doc:meta])* $repr:ident, $bytes:expr;
        $( $(#[$doc:meta])* $name:ident: $type:ty = $at:expr; )*
        $( => $(#[$also_doc:meta])* $also:ident: $also_type:ty; )*
    ) => {
        impl $view<'_> {
            $(
                $(#[$doc])*
                #[inline]
                pub fn $name(&self) -> $type {
                    $crate::header::Field::load(self.header, $at)
                }
            )*
        }

        $(#[$repr_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $repr {
            $( $(#[$doc])* pub $name: $type, )*
            $( $(#[$also_doc])* pub $also: $also_type, )*
        }

        impl $repr {
            /// The fields in their places, all other bytes zero.
            #[inline]
            fn fields(&self) -> [u8; $bytes] {
                let mut header = [0; $bytes];
                $( $crate::header::Field::store(self.$name, &mut header, $at); )*
                header
            }
        }

        impl From<$view<'_>> for $repr {
            fn from(view: $view<'_>) -> Self {
                Self { $( $name: view.$name(), )* $( $also: view.$also(), )* }
            }
        }
    };
}

pub(crate) use header;
