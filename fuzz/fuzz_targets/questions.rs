//! What an operator may ask: filters of flow records and of captures, packets to trace, requests of the control
//! socket. No text makes a reader panic; what one reads means the same written another way, and an error has its place
//! in the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_node::capture::PacketFilter;
use thalweg_node::control::{Request, to_json};
use thalweg_node::trace::PacketSpec;
use thalweg_store::Filter;

fuzz_target!(|text: &str| {
    match Filter::parse(text) {
        Ok(filter) if !text.trim().is_empty() => {
            // One more parenthesis may be too many.
            if let Ok(same) = Filter::parse(&format!("( {text})")) {
                assert_eq!(filter, same);
            }
        }
        Ok(_) => {}
        Err(error) => assert!((1..=text.chars().count() + 1).contains(&error.column), "{error}"),
    }
    if let Ok(filter) = PacketFilter::parse(text) {
        assert_eq!(PacketFilter::parse(&format!(" {text} ")).ok(), Some(filter));
    }
    if let Ok(packet) = PacketSpec::parse(text) {
        assert_eq!(packet.to_packet().len(), packet.length);
        assert_eq!(PacketSpec::parse(&packet.to_string()).ok(), Some(packet));
    }
    if let Ok(request) = Request::parse(text) {
        assert_eq!(Request::parse(&to_json(&request).to_string()).ok(), Some(request));
    }
});
