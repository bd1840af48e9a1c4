//! Real exporters' messages: every datagram of a collection of vendors' quirks, and captures whose records other
//! decoders wrote down.

mod datagrams;
mod netgauze;
mod tshark;
mod value;
