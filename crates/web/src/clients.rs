//! What each client address takes: connections, requests a second, and one list at a time.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use crate::counters::Cut;
use crate::limits::{CLIENT_CONNECTIONS_MAX, CLIENTS_MAX, CONNECTIONS_MAX, REQUESTS_AT_ONCE, REQUESTS_PER_S};

/// All clients of late.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    connections: u32,
    by_address: HashMap<IpAddr, Client>,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    connections: u32,
    /// Whether a list is being made for it.
    has_list: bool,
    /// Requests that it may still make at once.
    tokens: f64,
    seen: Instant,
}

/// A connection, counted until dropped.
#[derive(Debug)]
pub(crate) struct Connected {
    clients: Arc<Clients>,
    address: Option<IpAddr>,
}

/// A list that is being made, until dropped.
#[derive(Debug)]
pub(crate) struct Listing {
    clients: Arc<Clients>,
    address: IpAddr,
}

/// An IPv6 host has a whole network of addresses.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        },
    }
}

impl Clients {
    /// Counts a connection; a client of a Unix socket has no address.
    pub(crate) fn connect(self: &Arc<Self>, address: Option<IpAddr>, now: Instant) -> Result<Connected, Cut> {
        let (address, mut table) = (address.map(network), self.0.lock());
        if table.connections >= CONNECTIONS_MAX {
            return Err(Cut::Full);
        }
        if let Some(address) = address {
            let client = table.client(address, now);
            if client.connections >= CLIENT_CONNECTIONS_MAX {
                return Err(Cut::ClientFull);
            }
            client.connections += 1;
        }
        table.connections += 1;
        Ok(Connected { clients: self.clone(), address })
    }

    /// Counts a request; otherwise the client has to wait.
    pub(crate) fn may_ask(&self, address: IpAddr, now: Instant) -> bool {
        let mut table = self.0.lock();
        let client = table.client(network(address), now);
        let may = client.tokens >= 1.0;
        if may {
            client.tokens -= 1.0;
        }
        may
    }

    /// Begins a list; `None` while another is being made for the client.
    pub(crate) fn list(self: &Arc<Self>, address: IpAddr, now: Instant) -> Option<Listing> {
        let address = network(address);
        let mut table = self.0.lock();
        let client = table.client(address, now);
        if client.has_list {
            return None;
        }
        client.has_list = true;
        Some(Listing { clients: self.clone(), address })
    }
}

impl Table {
    fn client(&mut self, address: IpAddr, now: Instant) -> &mut Client {
        if self.by_address.len() >= CLIENTS_MAX && !self.by_address.contains_key(&address) {
            self.forget();
        }
        let new = Client { connections: 0, has_list: false, tokens: REQUESTS_AT_ONCE, seen: now };
        let client = self.by_address.entry(address).or_insert(new);
        let passed = now.saturating_duration_since(client.seen).as_secs_f64();
        client.tokens = (client.tokens + passed * REQUESTS_PER_S).min(REQUESTS_AT_ONCE);
        client.seen = now;
        client
    }

    /// Forgets the half that was silent for longest, but nobody who is connected. Connections are fewer than the half.
    fn forget(&mut self) {
        let mut seen: Vec<Instant> = self.by_address.values().map(|client| client.seen).collect();
        seen.sort_unstable();
        let Some(middle) = seen.get(seen.len() / 2).copied() else { return };
        self.by_address.retain(|_, client| client.seen > middle || client.connections > 0 || client.has_list);
        // All may have been seen in one moment.
        if self.by_address.len() >= CLIENTS_MAX {
            self.by_address.retain(|_, client| client.connections > 0 || client.has_list);
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut table = self.clients.0.lock();
        table.connections -= 1;
        if let Some(client) = self.address.and_then(|address| table.by_address.get_mut(&address)) {
            client.connections -= 1;
        }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        if let Some(client) = self.clients.0.lock().by_address.get_mut(&self.address) {
            client.has_list = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn requests_come_back_with_time() {
        let (clients, begun) = (Clients::default(), Instant::now());
        let address = IpAddr::from([192, 0, 2, 1]);
        let taken = |now| (0..1000).filter(|_| clients.may_ask(address, now)).count() as f64;
        assert_eq!(taken(begun), REQUESTS_AT_ONCE);
        assert_eq!(taken(begun + Duration::from_secs(1)), REQUESTS_PER_S);
        assert_eq!(taken(begun + Duration::from_secs(600)), REQUESTS_AT_ONCE);
        assert!(clients.may_ask([192, 0, 2, 2].into(), begun), "another client");
    }

    #[test]
    fn connections_and_lists_are_counted_until_they_end() {
        let (clients, now) = (Arc::<Clients>::default(), Instant::now());
        let address = IpAddr::from([192, 0, 2, 1]);
        let mine: Vec<_> = (0..CLIENT_CONNECTIONS_MAX).map(|_| clients.connect(Some(address), now)).collect();
        assert!(mine.iter().all(Result::is_ok));
        assert_eq!(clients.connect(Some(address), now).err(), Some(Cut::ClientFull));
        let left = CONNECTIONS_MAX - CLIENT_CONNECTIONS_MAX;
        let others: Vec<_> = (0..left).map(|_| clients.connect(None, now)).collect();
        assert!(others.iter().all(Result::is_ok));
        assert_eq!(clients.connect(None, now).err(), Some(Cut::Full));
        drop(mine);
        let list = clients.list(address, now);
        assert!(list.is_some() && clients.list(address, now).is_none());
        drop(list);
        assert!(clients.list(address, now).is_some() && clients.connect(Some(address), now).is_ok());
    }

    #[test]
    fn a_flood_of_addresses_finds_a_table_of_one_size() {
        let (clients, begun) = (Arc::<Clients>::default(), Instant::now());
        let mine = clients.connect(Some([10, 0, 0, 1].into()), begun);
        for number in 0..20_000u32 {
            clients.may_ask(Ipv6Addr::from_bits(u128::from(number) << 64).into(), begun);
            assert!(clients.0.lock().by_address.len() <= CLIENTS_MAX);
        }
        assert!(clients.0.lock().by_address.contains_key(&IpAddr::from([10, 0, 0, 1])));
        drop(mine);
    }
}
