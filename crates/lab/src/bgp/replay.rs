//! Reads neighbors from an MRT file: turns the announcements of a route collector's peers into messages for a
//! daemon.
//!
//! A table dump becomes, for each peer, its routes packed by attribute set, in the order in which sets first
//! appear; a file of messages becomes the same messages in the same order. Both are encoded anew: AS numbers of
//! two bytes become four (AS4_PATH merged in, RFC 6793), NEXT_HOP becomes the speaker's own address (a
//! collector's neighbors' next hops lead nowhere in a laboratory), LOCAL_PREF is left out (it does not leave an
//! AS). An UPDATE that withdraws and announces becomes two, the withdrawal first.
//!
//! Peers keep their real AS, so that a first-AS check passes; their addresses are the laboratory's.

use super::message::{NextHops, Stream, family_of, path_hash, put_attribute};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use thalweg_base::IpPrefix;
use thalweg_ports::{MrtError, MrtReader};
use thalweg_wire::bgp::{Attributes, attribute};
use thalweg_wire::mrt::{AsSize, Content, PathView, Prefixes};

/// A collector's peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayPeer {
    pub address: IpAddr,
    pub as_number: u32,
    /// Routes that it announces in the file; for a file of messages, changes.
    pub routes: u64,
}

/// A file's messages, by peer.
#[derive(Debug, Default)]
pub struct Replay {
    /// The peers, those with most routes first.
    pub peers: Vec<ReplayPeer>,
    /// The peer of each message of the file; empty for a table dump.
    pub arrival: Vec<u16>,
    items: Vec<Vec<Item>>,
    /// Broken records, which were left out.
    pub broken: u64,
}

#[derive(Clone, Debug)]
struct Item {
    /// Path and other attributes, without the next hop; `None` withdraws.
    attributes: Option<Vec<u8>>,
    path: u64,
    prefixes: Vec<IpPrefix>,
}

/// Why there is nothing to replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error(transparent)]
    File(MrtError),
    /// The file has no routes of IPv4 or IPv6 unicast.
    #[error("{0} has no unicast routes")]
    NoRoutes(String),
}

impl Replay {
    /// Reads at most `messages_max` messages of a file.
    pub fn read(path: &Path, messages_max: usize) -> Result<Replay, ReplayError> {
        let mut reader = MrtReader::open(path).map_err(ReplayError::File)?;
        let mut builder = Builder::default();
        while let Some(item) = reader.next() {
            match item {
                Ok(item) => builder.take(&item.content),
                Err(error) if error.record <= 1 => return Err(ReplayError::File(error)),
                Err(_) => builder.replay.broken += 1,
            }
            if builder.replay.arrival.len() >= messages_max {
                break;
            }
        }
        let replay = builder.finish();
        if replay.peers.is_empty() {
            return Err(ReplayError::NoRoutes(path.display().to_string()));
        }
        Ok(replay)
    }

    /// A peer's messages, from a speaker with these addresses.
    pub fn stream(&self, peer: usize, hops: NextHops) -> Stream {
        let mut stream = Stream::default();
        for item in self.items.get(peer).into_iter().flatten() {
            match &item.attributes {
                Some(attributes) => stream.announce(attributes, hops, &item.prefixes, usize::MAX),
                None => stream.withdraw(&item.prefixes, usize::MAX),
            }
        }
        stream
    }

    /// The hash of the path of each prefix that a peer has at the end.
    pub fn expected(&self, peer: usize) -> HashMap<IpPrefix, u64> {
        self.in_the_end(peer, |item| item.path)
    }

    /// The path of each prefix that a peer has at the end, and whether it contains sets, which daemons may sort.
    pub fn paths(&self, peer: usize) -> HashMap<IpPrefix, (Vec<u32>, bool)> {
        self.in_the_end(peer, |item| {
            let mut attributes = Attributes::new(item.attributes.as_deref().unwrap_or_default());
            let value =
                attributes.find(|each| each.code == attribute::AS_PATH).map_or(&[][..], |each| each.value);
            let path = super::message::PathView::new(value);
            (path.numbers().collect(), path.has_sets())
        })
    }

    fn in_the_end<T>(&self, peer: usize, of: impl Fn(&Item) -> T) -> HashMap<IpPrefix, T> {
        let mut routes = HashMap::new();
        for item in self.items.get(peer).into_iter().flatten() {
            for prefix in &item.prefixes {
                match item.attributes {
                    Some(_) => drop(routes.insert(*prefix, of(item))),
                    None => drop(routes.remove(prefix)),
                }
            }
        }
        routes
    }
}

#[derive(Default)]
struct Builder {
    replay: Replay,
    places: HashMap<(IpAddr, u32), usize>,
    /// For table dumps: the index of a peer's item with these attributes, by family.
    sets: HashMap<(usize, bool, Vec<u8>), usize>,
    scratch: Vec<u8>,
}

impl Builder {
    fn take(&mut self, content: &Content<'_>) {
        match content {
            Content::Rib(rib) if !rib.multicast => {
                for entry in rib.entries() {
                    let peer = self.place(entry.peer.address, entry.peer.asn);
                    let (attributes, path) = self.rewritten(entry.attributes, entry.as_size);
                    self.replay.peers[peer].routes += 1;
                    let is_v4 = matches!(entry.prefix, IpPrefix::V4(_));
                    let items = &mut self.replay.items[peer];
                    let at = *self.sets.entry((peer, is_v4, attributes)).or_insert_with_key(
                        |(_, _, attributes)| {
                            items.push(Item {
                                attributes: Some(attributes.clone()),
                                path,
                                prefixes: Vec::new(),
                            });
                            items.len() - 1
                        },
                    );
                    items[at].prefixes.push(entry.prefix);
                }
            }
            Content::Message(message) => {
                let Ok(Some(update)) = message.update() else { return };
                let view = PathView::new(update.attributes(), update.as_size);
                let mut gone: Vec<IpPrefix> = flat(update.withdrawn());
                let mut come: Vec<IpPrefix> = flat(update.announced());
                if let Some(unreach) = &view.mp_unreach {
                    gone.extend(unreach.prefixes(message.add_path).into_iter().flat_map(flat));
                }
                if let Some(reach) = &view.mp_reach {
                    come.extend(reach.prefixes(message.add_path).into_iter().flat_map(flat));
                }
                let peer = self.place(message.peer.address, message.peer.asn);
                for prefixes in by_family(gone) {
                    self.push(peer, Item { attributes: None, path: 0, prefixes });
                }
                for prefixes in by_family(come) {
                    let (attributes, path) = self.rewritten(update.attributes(), update.as_size);
                    self.push(peer, Item { attributes: Some(attributes), path, prefixes });
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, peer: usize, item: Item) {
        // Peers beyond the range of `u16` are left out of the order; their messages come last, by peer.
        self.replay.arrival.extend(u16::try_from(peer).ok());
        self.replay.peers[peer].routes += item.prefixes.len() as u64;
        self.replay.items[peer].push(item);
    }

    fn place(&mut self, address: IpAddr, as_number: u32) -> usize {
        let replay = &mut self.replay;
        *self.places.entry((address, as_number)).or_insert_with(|| {
            replay.peers.push(ReplayPeer { address, as_number, routes: 0 });
            replay.items.push(Vec::new());
            replay.peers.len() - 1
        })
    }

    /// Attributes with four-octet AS numbers and without what depends on the session, and the hash of the path.
    fn rewritten(&mut self, attributes: &[u8], size: AsSize) -> (Vec<u8>, u64) {
        let view = PathView::new(attributes, size);
        let mut out = Vec::with_capacity(attributes.len() + 16);
        let mut hash = path_hash(std::iter::empty());
        for each in Attributes::new(attributes) {
            match each.code {
                attribute::NEXT_HOP
                | attribute::MP_REACH_NLRI
                | attribute::MP_UNREACH_NLRI
                | attribute::LOCAL_PREF
                | attribute::AS4_PATH
                | attribute::AS4_AGGREGATOR => {}
                attribute::AS_PATH => {
                    if let Some(path) = view.four_octet_path(&mut self.scratch) {
                        hash = path_hash(super::message::PathView::new(path).numbers());
                        put_attribute(&mut out, attribute::FLAG_TRANSITIVE, attribute::AS_PATH, path);
                    }
                }
                attribute::AGGREGATOR => {
                    if let Some((number, router)) = view.aggregator {
                        let mut value = number.to_be_bytes().to_vec();
                        value.extend_from_slice(&router.octets());
                        put_attribute(&mut out, each.flags & !attribute::FLAG_EXTENDED, each.code, &value);
                    }
                }
                _ => put_attribute(&mut out, each.flags & !attribute::FLAG_EXTENDED, each.code, each.value),
            }
        }
        (out, hash)
    }

    /// Sorts the peers by routes, most first.
    fn finish(self) -> Replay {
        let mut replay = self.replay;
        let mut order: Vec<usize> = (0..replay.peers.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(replay.peers[*at].routes));
        let mut place = vec![0u16; order.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old] = u16::try_from(new).unwrap_or(u16::MAX);
        }
        replay.peers = order.iter().map(|at| replay.peers[*at].clone()).collect();
        replay.items = order.iter().map(|at| std::mem::take(&mut replay.items[*at])).collect();
        for peer in &mut replay.arrival {
            *peer = place[usize::from(*peer)];
        }
        replay
    }
}

/// Prefixes up to the first broken one: what follows it has no meaning.
fn flat(prefixes: Prefixes<'_>) -> Vec<IpPrefix> {
    prefixes.map_while(Result::ok).map(|(_, prefix)| prefix).collect()
}

fn by_family(prefixes: Vec<IpPrefix>) -> impl Iterator<Item = Vec<IpPrefix>> {
    let (v4, v6): (Vec<_>, Vec<_>) =
        prefixes.into_iter().partition(|p| family_of(*p) == thalweg_wire::bgp::Family::Ipv4);
    [v4, v6].into_iter().filter(|prefixes| !prefixes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::message::{HEADER_LEN, Said, read_update};
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use thalweg_testdata::shared;

    const HOPS: NextHops = NextHops { v4: Ipv4Addr::new(127, 0, 1, 1), v6: Ipv6Addr::LOCALHOST };

    fn state(stream: &Stream) -> HashMap<IpPrefix, u64> {
        let mut state = HashMap::new();
        let mut start = 0;
        for end in &stream.ends {
            read_update(&stream.bytes[start + HEADER_LEN..*end], |said| match said {
                Said::Announced(prefix, path) => drop(state.insert(prefix, path_hash(path.numbers()))),
                Said::Withdrawn(prefix) => drop(state.remove(&prefix)),
            })
            .unwrap();
            start = *end;
        }
        state
    }

    /// A record of TABLE_DUMP (RFC 6396 4.2) with a path of two-octet numbers, by hand.
    fn table_dump(prefix: [u8; 4], peer: [u8; 4], path: &[u16]) -> Vec<u8> {
        let mut attributes = vec![0x40, 1, 1, 0, 0x40, 2, 2 + 2 * path.len() as u8, 2, path.len() as u8];
        path.iter().for_each(|n| attributes.extend(n.to_be_bytes()));
        attributes.extend([0x40, 3, 4, 10, 0, 0, 1, 0x40, 5, 4, 0, 0, 0, 100]);
        let mut body = vec![0, 0, 0, 0];
        body.extend(prefix);
        body.extend([24, 1, 0, 0, 0, 0]);
        body.extend(peer);
        body.extend(path[0].to_be_bytes());
        body.extend((attributes.len() as u16).to_be_bytes());
        body.extend(attributes);
        let mut record = vec![0, 0, 0, 0, 0, 12, 0, 1];
        record.extend((body.len() as u32).to_be_bytes());
        record.extend(body);
        record
    }

    #[test]
    fn a_table_dump_is_packed_by_peer_and_attributes() {
        let mut bytes = Vec::new();
        let (one, two) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        for (prefix, peer, path) in [
            ([20, 0, 0, 0], two, &[64501, 7][..]),
            ([20, 0, 0, 0], one, &[64500, 7]),
            ([20, 0, 1, 0], one, &[64500, 8]),
            ([20, 0, 2, 0], one, &[64500, 7]),
        ] {
            bytes.extend(table_dump(prefix, peer, path));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let replay = Replay::read(file.path(), usize::MAX).unwrap();
        let peers: Vec<(u32, u64)> = replay.peers.iter().map(|p| (p.as_number, p.routes)).collect();
        assert_eq!(peers, [(64500, 3), (64501, 1)]);
        let stream = replay.stream(0, HOPS);
        assert_eq!((stream.messages(), stream.prefixes), (2, 3), "two sets of attributes");
        assert_eq!(state(&stream), replay.expected(0));
        let first: IpPrefix = "20.0.0.0/24".parse().unwrap();
        assert_eq!(replay.expected(0)[&first], path_hash([64500, 7].into_iter()));
        // NEXT_HOP is ours, and LOCAL_PREF is gone.
        let message = &stream.bytes[..stream.ends[0]];
        assert!(message.windows(7).any(|w| w == [0x40, 3, 4, 127, 0, 1, 1]));
        assert!(!message.windows(3).any(|w| w == [0x40, 5, 4]));
    }

    #[test]
    fn real_files_come_out_as_they_went_in() {
        for (name, least) in [
            ("mrt/rib.routeviews-jinx.20140530.2200.bz2", 480_000),
            ("mrt/updates.routeviews.20260222.1530.bz2", 10_000),
            ("mrt/bgpdump-pairs/updates.20160811.1600.gz", 1000),
        ] {
            let Some(path) = shared(name) else { continue };
            let replay = Replay::read(&path, usize::MAX).unwrap();
            assert!(replay.peers[0].routes >= least, "{name}: {:?}", replay.peers[0]);
            assert!(replay.peers.is_sorted_by_key(|p| std::cmp::Reverse(p.routes)));
            for peer in 0..replay.peers.len().min(4) {
                assert_eq!(state(&replay.stream(peer, HOPS)), replay.expected(peer), "{name}, {peer}");
            }
        }
    }

    #[test]
    fn what_is_no_mrt_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0; 40]).unwrap();
        let error = Replay::read(file.path(), 10).unwrap_err().to_string();
        assert!(error.contains(file.path().to_str().unwrap()), "{error}");
    }
}
