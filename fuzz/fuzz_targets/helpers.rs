//! Messages of FTP, SIP and PPTP as helpers read them. What they find lies within the message, and replacing nothing
//! changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| thalweg_dataplane::helpers::fuzz_one(input));
