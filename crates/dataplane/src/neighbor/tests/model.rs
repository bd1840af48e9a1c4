//! Two hosts, a lossy link and the real table on virtual time: whatever is lost or late, every packet for a
//! neighbor goes to the right MAC address or is reported unreachable, and a link that recovers lets everything
//! through.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use thalweg_base::XorShift64Star;
use thalweg_wire::MacAddr;

/// A host with one address of each family, written against the RFCs and not against the table: it only answers
/// solicitations for its addresses.
struct Host {
    mac: MacAddr,
    address4: Ipv4Addr,
    address6: Ipv6Addr,
    up: bool,
}

impl Host {
    fn new(n: u8) -> Self {
        let address6 = Ipv6Addr::from(u128::from(HOST6) + u128::from(n));
        Self {
            mac: MacAddr([2, 0, 0, 9, 0, n]),
            address4: Ipv4Addr::new(10, 0, 0, 16 + n),
            address6,
            up: true,
        }
    }

    fn addresses(&self) -> [IpAddr; 2] {
        [self.address4.into(), self.address6.into()]
    }

    fn hear(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let to_me = frame[..6] == self.mac || frame[0] & 1 == 1;
        if !self.up || !to_me {
            return None;
        }
        match frame[12..14] {
            [0x08, 0x06] => {
                let asks_me = frame[21] == 1 && frame[38..42] == self.address4.octets();
                let sender = MacAddr::try_from(&frame[22..28]).expect("six bytes");
                asks_me.then(|| arp(2, (self.mac, self.address4), (sender, OUR4), sender))
            }
            [0x86, 0xdd] => {
                let asks_me = frame[54] == 135 && frame[62..78] == self.address6.octets();
                let router = Ipv6Addr::from(<[u8; 16]>::try_from(&frame[22..38]).expect("16 bytes"));
                let message = nd_message(136, 0x60, self.address6, Some((2, self.mac)));
                asks_me.then(|| icmp6((self.mac, OUR_MAC), (self.address6, router), 255, &message))
            }
            _ => None,
        }
    }
}

/// The link, the hosts and the belief of the router's caller.
struct Model {
    table: Table,
    hosts: Vec<Host>,
    /// Frames to the router, by time of arrival.
    on_the_way: BTreeMap<(u64, u64), Vec<u8>>,
    chance: XorShift64Star,
    loss_percent: u32,
    frames: u64,
    now: u64,
    given: u64,
    forwarded: u64,
    unreachable: u64,
    known: BTreeMap<IpAddr, MacAddr>,
}

impl Model {
    fn new(seed: u64, loss_percent: u32) -> Self {
        let config = NeighborConfig { seed, ..NeighborConfig::default() };
        Self {
            table: table_of(config),
            hosts: vec![Host::new(0), Host::new(1)],
            on_the_way: BTreeMap::new(),
            chance: XorShift64Star::new(seed),
            loss_percent,
            frames: 0,
            now: START,
            given: 0,
            forwarded: 0,
            unreachable: 0,
            known: BTreeMap::new(),
        }
    }

    fn lost_on_the_way(&mut self) -> bool {
        self.chance.below(100) < self.loss_percent
    }

    /// Handles the table's outputs until there are none.
    fn settle(&mut self) {
        for output in outputs(&mut self.table) {
            match output {
                Output::Send { frame, .. } => self.carry(&frame),
                Output::Resolved { address, mac, .. } => {
                    assert_eq!(self.known.insert(address, mac), None);
                }
                Output::Changed { address, mac, .. } => {
                    assert!(self.known.insert(address, mac).is_some());
                }
                Output::Silent { address, .. } => assert!(!self.known.contains_key(&address)),
                Output::Lost { address, .. } => assert!(self.known.remove(&address).is_some()),
                Output::Forward { address, mac, packet, .. } => {
                    assert_eq!(packet, address.to_string().into_bytes(), "to whom it was for");
                    assert_eq!(self.known.get(&address), Some(&mac));
                    self.forwarded += 1;
                }
                Output::Unreachable { address, packet, .. } => {
                    assert_eq!(packet, address.to_string().into_bytes());
                    self.unreachable += 1;
                }
            }
        }
    }

    fn carry(&mut self, frame: &[u8]) {
        let answers: Vec<_> = self.hosts.iter().filter_map(|host| host.hear(frame)).collect();
        for answer in answers {
            if !self.lost_on_the_way() && !self.lost_on_the_way() {
                self.frames += 1;
                let delay = u64::from(self.chance.below(1500)) * MS;
                self.on_the_way.insert((self.now + delay, self.frames), answer);
            }
        }
    }

    fn run_until(&mut self, until: u64) {
        loop {
            let frame = self.on_the_way.first_key_value().map(|(&(at, _), _)| at);
            let next = frame.into_iter().chain(self.table.next_deadline()).min();
            let Some(next) = next.filter(|&at| at <= until) else { break };
            self.now = self.now.max(next);
            while let Some(first) = self.on_the_way.first_entry().filter(|first| first.key().0 <= self.now) {
                let frame = first.remove();
                let _ = match frame[12..14] {
                    [0x08, 0x06] => self.table.handle_arp(0, &frame, self.now),
                    _ => self.table.handle_nd(0, &frame, self.now),
                };
                self.settle();
            }
            self.table.handle_timer(self.now);
            self.settle();
        }
        self.now = until;
    }

    fn send(&mut self, to: IpAddr) {
        self.given += 1;
        self.table.resolve(0, to, to.to_string().into_bytes(), self.now);
        self.settle();
        let waiting = self.table.waiting().0 as u64;
        assert_eq!(self.given, self.forwarded + self.unreachable + waiting);
    }

    fn step(&mut self) {
        let host = self.chance.below(2) as usize;
        let pause = u64::from(self.chance.below(20_000)) * MS;
        match self.chance.below(20) {
            0 => self.hosts[host].up = !self.hosts[host].up,
            1 => self.hosts[host].mac.0[4] ^= 1,
            2 => self.send(Ipv4Addr::new(10, 0, 0, 200).into()),
            3 => {
                // It announces a new MAC address, or the old one for no reason.
                let (mac, address) = (self.hosts[host].mac, self.hosts[host].address4);
                let _ = self.table.handle_arp(0, &arp_request((mac, address), address), self.now);
                self.settle();
            }
            4..12 => {
                let address = self.hosts[host].addresses()[self.chance.below(2) as usize];
                self.send(address);
            }
            _ => self.run_until(self.now + pause),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_packet_ends_and_a_healed_link_carries_all(seed: u64, loss_percent in 0u32..100) {
        let mut model = Model::new(seed, loss_percent);
        for _ in 0..400 {
            model.step();
        }
        // Time alone ends all waiting: three solicitations, the last one a second ago.
        model.run_until(model.now + 4 * SECOND);
        prop_assert_eq!(model.table.waiting(), (0, 0));
        prop_assert_eq!(model.given, model.forwarded + model.unreachable);
        // Link and hosts recover; probing finds each host whose MAC address changed.
        model.loss_percent = 0;
        model.hosts.iter_mut().for_each(|host| host.up = true);
        model.run_until(model.now + 200 * SECOND);
        let before = model.unreachable;
        for host in 0..2 {
            for address in model.hosts[host].addresses() {
                model.send(address);
                model.run_until(model.now + 4 * SECOND);
                prop_assert_eq!(model.known.get(&address), Some(&model.hosts[host].mac));
            }
        }
        prop_assert_eq!(model.unreachable, before, "a healed link loses nothing");
    }
}
