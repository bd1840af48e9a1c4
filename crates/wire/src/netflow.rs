//! NetFlow versions 5 and 9 and IPFIX on the wire.
//!
//! - [`element`]: the information elements, one row each, from which names, types and lengths come.

pub mod element;
