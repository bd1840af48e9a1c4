//! ICMP errors about any packet, and echo replies. Each output is valid, short enough, goes to the source, quotes
//! the packet, and causes no further error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thalweg_dataplane::icmp::{IcmpConfig, IcmpError, IcmpWriter, echo_reply, write_error};
use thalweg_dataplane::ip_packet::{IpPacket, count_down};

const ROUTER4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ROUTER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

fn error(choice: u8, number: u32) -> IcmpError {
    match choice % 12 {
        0 => IcmpError::TimeExceeded,
        1 => IcmpError::ReassemblyTimeExceeded,
        2 => IcmpError::NoRoute,
        3 => IcmpError::Rejected,
        4 => IcmpError::HostUnreachable,
        5 => IcmpError::PortUnreachable,
        6 => IcmpError::ProtocolUnreachable { next_header_at: number },
        7 => IcmpError::Prohibited,
        8 => IcmpError::SourceProhibited,
        9 => IcmpError::PacketTooBig { mtu_bytes: number },
        10 => IcmpError::ParameterProblem { at: number },
        _ => IcmpError::UnknownOption { at: number, even_to_many: choice & 0x80 != 0 },
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((head, about)) = input.split_first_chunk::<6>() else { return };
    let [choice, sent_to_one, number @ ..] = *head;
    let error = error(choice, u32::from_be_bytes(number));
    for source in [IpAddr::from(ROUTER4), IpAddr::from(ROUTER6)] {
        let Ok((written, receiver)) = write_error(error, about, source, sent_to_one & 1 == 1) else {
            continue;
        };
        let read = IpPacket::parse(&written).expect("it is IP");
        assert!(read.complete && read.header_checksum_holds());
        assert_eq!((read.source, read.destination), (source, receiver));
        assert!(written.len() <= if read.is_ipv6() { 1280 } else { 576 });
        assert!(about.starts_with(&read.transport()[8..]));
        assert!(write_error(error, &written, source, true).is_err(), "an error about an error");
    }
    if let (Some(reply), Some(asked)) = (echo_reply(about), IpPacket::parse(about)) {
        let read = IpPacket::parse(&reply).expect("it is IP");
        assert!(read.complete && read.header_checksum_holds());
        assert_eq!((read.source, read.destination), (asked.destination, asked.source));
        assert_eq!(read.transport()[4..], asked.transport()[4..]);
        assert_eq!(echo_reply(&reply), None, "an answer to an answer");
    }
    let _ = IcmpWriter::new(IcmpConfig::default()).answer(about, sent_to_one & 1 == 1, 1);
    let mut packet = about.to_vec();
    if count_down(&mut packet) {
        let (before, after) = (IpPacket::parse(about), IpPacket::parse(&packet));
        assert_eq!(before.map(|p| p.hop_limit), after.map(|p| p.hop_limit + 1));
        if before.is_some_and(|p| p.header_checksum_holds()) {
            assert!(after.is_some_and(|p| p.header_checksum_holds()));
        }
    }
});
