//! NetFlow versions 5 and 9 and IPFIX on the wire.
//!
//! - [`element`]: the information elements, one row each, from which names, types and lengths come.
//! - [`decode`]: received messages of all three versions into records, templates and sequence numbers kept.

pub mod decode;
pub mod element;
