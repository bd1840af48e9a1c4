//! The names under which this server may be asked for.

use std::net::IpAddr;

/// Names that are ours. A page of another server can make its own name lead to this address, and would then ask in
/// the name of its reader (DNS rebinding); an address in the header `Host` cannot come about that way.
#[derive(Debug)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(crate) fn new(names: &[String]) -> Self {
        Self(names.iter().cloned().chain(["localhost".to_owned()]).collect())
    }

    /// Whether a header `Host` names us.
    pub(crate) fn has(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => {
                let Some((address, port)) = rest.split_once(']') else { return false };
                let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_number);
                return is_port && address.parse::<std::net::Ipv6Addr>().is_ok();
            }
            None => match host.rsplit_once(':') {
                Some((name, port)) if is_number(port) => name,
                _ => host,
            },
        };
        let is_address = name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4());
        is_address || self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_our_names_are_ours() {
        let hosts = Hosts::new(&["router.example.net".to_owned()]);
        for ours in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:8080",
            "192.0.2.1",
            "[::1]:80",
            "[2001:db8::1]",
            "Router.Example.Net:443",
        ] {
            assert!(hosts.has(ours), "{ours}");
        }
        for other in [
            "",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::1",
            "[evil]",
            "[::1]x",
            "router.example.net.",
            "2130706433",
            "0x7f.1",
            "::1",
            "localhost:x",
        ] {
            assert!(!hosts.has(other), "{other}");
        }
    }
}
