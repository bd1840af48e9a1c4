//! The head of an HTTP/1 request (RFC 9112), as far as a watcher needs it: the host.

/// The most bytes of a head that are searched.
pub const HEAD_BYTES_MAX: usize = 4096;
/// The longest method that is taken for one.
const METHOD_BYTES_MAX: usize = 20;

/// The host in a request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    /// Without its port.
    Is(&'a [u8]),
    /// It may follow in bytes that are not there.
    Later,
    /// The request has none, or these bytes are no request.
    None,
}

/// Finds the host of the request that these bytes begin with. The last line counts only if it ends.
pub fn host(request: &[u8]) -> Host<'_> {
    let method = request.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    if method > METHOD_BYTES_MAX || request.get(method).is_some_and(|byte| method == 0 || *byte != b' ') {
        return Host::None;
    }
    let head = &request[..request.len().min(HEAD_BYTES_MAX)];
    let mut lines = head.split_inclusive(|byte| *byte == b'\n');
    let mut next = || lines.next().filter(|line| line.ends_with(b"\n")).map(<[u8]>::trim_ascii);
    match next() {
        Some(line) if line.windows(8).any(|window| window == b" HTTP/1.") => {}
        Some(_) => return Host::None,
        None => return unfinished(head),
    }
    while let Some(line) = next() {
        if line.is_empty() {
            return Host::None;
        }
        if line.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"host:")) {
            return Host::Is(without_port(line[5..].trim_ascii()));
        }
    }
    unfinished(head)
}

fn unfinished(head: &[u8]) -> Host<'_> {
    if head.len() < HEAD_BYTES_MAX { Host::Later } else { Host::None }
}

/// `example.org:8080` without its port; an IPv6 address is in brackets.
fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|byte| *byte == b':') {
        Some(at) if host[at + 1..].iter().all(u8::is_ascii_digit) => &host[..at],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_in_any_form() {
        for (request, expected) in [
            (&b"GET / HTTP/1.1\r\nAccept: */*\r\nHost: example.org\r\n\r\n"[..], Host::Is(b"example.org")),
            (b"GET / HTTP/1.0\nhost:example.org:8080\n\n", Host::Is(b"example.org")),
            (
                b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHOST: [2001:db8::1]:443\r\n\r\n",
                Host::Is(b"[2001:db8::1]"),
            ),
            (b"GET / HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n", Host::Is(b"[2001:db8::1]")),
            (b"GET / HTTP/1.1\r\n\r\nHost: example.org\r\n", Host::None),
            (b"EHLO example.org\r\n", Host::None),
            (b"INVITE sip:a@example.org SIP/2.0\r\nHost: x\r\n", Host::None),
            (b"HTTP/1.1 200 OK\r\nHost: x\r\n", Host::None),
            (b"get / HTTP/1.1\r\nHost: x\r\n", Host::None),
            (b"", Host::Later),
        ] {
            assert_eq!(host(request), expected, "{}", request.escape_ascii());
        }
        let endless = [&b"GET /"[..], &[b'a'; HEAD_BYTES_MAX]].concat();
        assert_eq!(host(&endless), Host::None);
    }

    #[test]
    fn a_cut_head_has_no_other_host() {
        let request = b"GET /index.html HTTP/1.1\r\nAccept: */*\r\nHost: www.example.org\r\nX: y\r\n\r\n";
        for end in 0..request.len() {
            assert!(
                matches!(host(&request[..end]), Host::Is(b"www.example.org") | Host::Later),
                "cut at {end}"
            );
        }
    }
}
