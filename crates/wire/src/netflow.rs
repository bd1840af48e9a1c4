//! NetFlow versions 5 and 9 and IPFIX on the wire.
//!
//! - [`element`]: the information elements, one row each, with names, types and lengths.
//! - [`decode`]: decodes received messages of all three versions into records, and tracks templates and
//!   sequence numbers.

pub mod decode;
pub mod element;
