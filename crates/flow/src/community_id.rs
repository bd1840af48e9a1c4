//! Community ID, version 1: a name for a flow that programs agree on, whatever they metered it with. Both directions
//! have the same. <https://github.com/corelight/community-id-spec>

use crate::names::crypto::sha1;
use crate::record::FlowKey;
use std::net::IpAddr;
use thalweg_wire::ip_protocol::{ICMP, ICMPV6, SCTP, TCP, UDP};

/// Everybody's who has no reason for another one.
const SEED: [u8; 2] = [0, 0];

/// Types of ICMP messages that ask and answer, in pairs.
const PAIRS: [(u8, u8); 5] = [(8, 0), (13, 14), (15, 16), (10, 9), (17, 18)];
const PAIRS_V6: [(u8, u8); 6] = [(128, 129), (130, 131), (133, 134), (135, 136), (139, 140), (144, 145)];

/// The identifier of a flow with this key.
pub(crate) fn community_id(key: &FlowKey) -> Option<String> {
    let address = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let (src, dst) = (address(key.src), address(key.dst));
    let (ports, is_one_way) = match key.protocol {
        TCP | UDP | SCTP => (Some((key.src_port, key.dst_port)), false),
        ICMP => icmp_ports(key, &PAIRS),
        ICMPV6 => icmp_ports(key, &PAIRS_V6),
        _ => (None, false),
    };
    let (src_port, dst_port) = ports.unwrap_or_default();
    let in_order = is_one_way || (&src, src_port) <= (&dst, dst_port);
    let ((low, low_port), (high, high_port)) =
        if in_order { ((src, src_port), (dst, dst_port)) } else { ((dst, dst_port), (src, src_port)) };
    let mut bytes = [&SEED[..], &low, &high, &[key.protocol, 0]].concat();
    if ports.is_some() {
        bytes.extend(low_port.to_be_bytes());
        bytes.extend(high_port.to_be_bytes());
    }
    Some(format!("1:{}", base64(&sha1(&bytes)?)))
}

/// Type and code in place of ports: an answer has the type of what it answers as the other port. Messages without an
/// answer have one direction.
fn icmp_ports(key: &FlowKey, pairs: &[(u8, u8)]) -> (Option<(u16, u16)>, bool) {
    let [kind, code] = key.dst_port.to_be_bytes();
    let other = pairs.iter().find_map(|(ask, answer)| match kind {
        kind if kind == *ask => Some(*answer),
        kind if kind == *answer => Some(*ask),
        _ => None,
    });
    (Some((kind.into(), other.unwrap_or(code).into())), other.is_none())
}

/// RFC 4648, 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let byte = |at: usize| u32::from(part.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = usize::try_from(bits >> (18 - 6 * digit) & 63).unwrap_or(0);
            text.push(if digit <= part.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(protocol: u8, src: &str, dst: &str, src_port: u16, dst_port: u16) -> String {
        let key = FlowKey {
            src: src.parse().expect("an address"),
            dst: dst.parse().expect("an address"),
            src_port,
            dst_port,
            protocol,
            traffic_class: 0,
            ingress: 1,
            vlan: 0,
            mpls_label: None,
        };
        community_id(&key).expect("a digest")
    }

    /// Examples of its reference implementation.
    #[test]
    fn identifiers_are_those_of_others() {
        let (a, b) = ("128.232.110.120", "66.35.250.204");
        assert_eq!(id(TCP, a, b, 34855, 80), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
        assert_eq!(id(TCP, b, a, 80, 34855), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
        assert_eq!(id(UDP, "192.168.1.52", "8.8.8.8", 54585, 53), "1:d/FP5EW3wiY1vCndhwleRRKHowQ=");
        assert_eq!(id(SCTP, "192.168.170.8", "192.168.170.56", 7, 7), "1:MP2EtRCAUIZvTw6MxJHLV7N7JDs=");
        let (a, b) = ("2001:470:e5bf:dead:4957:2174:e82c:4887", "2607:f8b0:400c:c03::1a");
        assert_eq!(id(TCP, a, b, 63943, 25), "1:/qFaeAR+gFe1KYjMzVDsMv+wgU4=");
    }

    #[test]
    fn questions_of_icmp_and_their_answers_are_one_flow() {
        let (a, b) = ("192.168.0.89", "192.168.0.1");
        assert_eq!(id(ICMP, a, b, 0, 8 << 8), "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=");
        assert_eq!(id(ICMP, b, a, 0, 0), "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=");
        assert_eq!(
            id(ICMPV6, "fe80::260:97ff:fe07:69ea", "ff02::1", 0, 134 << 8),
            "1:pkvHqCL88/tg1k4cPigmZXUtL00="
        );
        assert_ne!(id(ICMP, a, b, 0, 3 << 8), id(ICMP, b, a, 0, 3 << 8), "one direction");
    }
}
