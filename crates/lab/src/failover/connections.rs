//! TCP connections through a pair of routers, which must survive the death of the first.
//!
//! A connection lives if bytes still go both ways. The far end speaks first: a router without its state lets nothing in
//! from outside, whereas the client's own packets could begin it anew.

use super::site::Site;
use crate::forwarding::ForwardingError;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

const PORT: u16 = 7002;
/// Connections of the client, spread over the destinations.
pub(super) const CONNECTIONS: usize = 100;
/// Far longer than TCP waits before it repeats a segment that a switch-over has lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// Both ends of each.
pub(super) struct Connections(Vec<[TcpStream; 2]>);

impl Connections {
    /// Opens them to the first transit, which has all destinations.
    pub(super) fn open(site: &Site) -> Result<Self, ForwardingError> {
        let to: Vec<Ipv4Addr> = site.destinations().collect();
        let listener =
            site.transits[0].inside(|| TcpListener::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT)))?;
        let all = site.client.inside(|| {
            let open = |address: &Ipv4Addr| {
                let client = TcpStream::connect_timeout(&SocketAddrV4::new(*address, PORT).into(), PATIENCE)?;
                let (server, _) = listener.accept()?;
                for end in [&client, &server] {
                    end.set_nodelay(true)?;
                    end.set_read_timeout(Some(PATIENCE))?;
                }
                Ok([client, server])
            };
            to.iter().cycle().take(CONNECTIONS).map(open).collect::<io::Result<_>>()
        })?;
        Ok(Self(all))
    }

    /// How many do not live any more.
    pub(super) fn lost(&self) -> usize {
        let lives = |[client, server]: &[TcpStream; 2]| says(server, client) && says(client, server);
        std::thread::scope(|scope| {
            let asked: Vec<_> = self.0.iter().map(|ends| scope.spawn(move || lives(ends))).collect();
            asked.into_iter().filter_map(|asked| asked.join().ok()).filter(|lives| !lives).count()
        })
    }
}

/// Whether what one end says arrives at the other.
fn says(mut from: &TcpStream, mut to: &TcpStream) -> bool {
    let mut heard = [0];
    from.write_all(b"x").and_then(|()| to.read_exact(&mut heard)).is_ok() && heard == *b"x"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_lives_until_an_end_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            [client, listener.accept().unwrap().0]
        };
        let connections = Connections(vec![pair(), pair(), pair()]);
        assert_eq!(connections.lost(), 0);
        connections.0[1][0].shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(connections.lost(), 1);
    }
}
