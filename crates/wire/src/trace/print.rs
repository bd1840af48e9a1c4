//! Writes lines.

use super::{Addresses, FieldOrder, TraceLine};
use crate::application;
use std::io::Write;
use std::net::Ipv6Addr;

impl TraceLine<'_> {
    /// Appends the line with its line feed to `out`.
    pub fn print(&self, order: FieldOrder, out: &mut Vec<u8>) {
        let (first_port, second_port) = match order {
            FieldOrder::DestinationFirst => (self.destination_port, self.source_port),
            FieldOrder::SourceFirst => (self.source_port, self.destination_port),
        };
        out.extend_from_slice(self.port.bytes());
        match self.addresses {
            Addresses::V4 { source, destination } => {
                let (first, second) = in_order(order, source, destination);
                push_ipv4(first, out);
                push_ipv4(second, out);
            }
            Addresses::V6 { source, destination } => {
                let (first, second) = in_order(order, source, destination);
                // Writing to a vector cannot fail.
                let _ = write!(out, " {} {}", Ipv6Addr::from_bits(first), Ipv6Addr::from_bits(second));
            }
        }
        for number in [first_port, second_port] {
            out.push(b' ');
            push_decimal(u32::from(number), out);
        }
        out.push(b' ');
        match application::by_code(self.application).filter(|a| a.transport == self.protocol) {
            Some(a) => out.extend_from_slice(a.name.as_bytes()),
            None => push_decimal(u32::from(self.protocol), out),
        }
        out.push(b'\n');
    }
}

fn in_order<T>(order: FieldOrder, source: T, destination: T) -> (T, T) {
    match order {
        FieldOrder::DestinationFirst => (destination, source),
        FieldOrder::SourceFirst => (source, destination),
    }
}

fn push_ipv4(address: u32, out: &mut Vec<u8>) {
    for (i, byte) in address.to_be_bytes().into_iter().enumerate() {
        out.push(if i == 0 { b' ' } else { b'.' });
        push_decimal(u32::from(byte), out);
    }
}

fn push_decimal(mut number: u32, out: &mut Vec<u8>) {
    let mut digits = [0u8; 10];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
