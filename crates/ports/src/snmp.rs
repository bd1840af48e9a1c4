//! Asks exporters by SNMP (version 2c) what they call their interfaces: IF-MIB's ifName and ifAlias.
//!
//! A thread asks one exporter at a time, when its first records come and then every `AGAIN_AFTER`. Nobody waits for
//! it: until an answer has come, interfaces have no names. An exporter that does not answer keeps the names it had.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use thalweg_base::Name;
use thalweg_flow::InterfaceName;
use thalweg_wire::snmp::{Value, get_bulk, response};

const IF_NAME: &[u32] = &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 1];
const IF_ALIAS: &[u32] = &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 18];
/// Values of an answer: with names of 64 bytes it fits into a datagram without fragments.
const REPETITIONS: u8 = 15;
/// How long an answer may take, and how often it is asked for.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
const TRIES: u32 = 3;
/// Interfaces of an exporter, and exporters; further ones have no names.
const INTERFACES_MAX: usize = 1 << 16;
const EXPORTERS_MAX: usize = 4096;
const AGAIN_AFTER: Duration = Duration::from_secs(300);

/// Names by the number of the interface.
pub type Interfaces = BTreeMap<u32, InterfaceName>;

/// The names of exporters' interfaces, as far as they are known.
pub struct InterfaceNames {
    known: Arc<Mutex<HashMap<IpAddr, Arc<Interfaces>>>>,
    /// New exporters.
    asks: Sender<IpAddr>,
}

impl InterfaceNames {
    /// Starts the thread, which ends with the value.
    pub fn start(community: String, port: u16) -> io::Result<Self> {
        let known = Arc::<Mutex<HashMap<IpAddr, Arc<Interfaces>>>>::default();
        let (asks, asked) = bounded(EXPORTERS_MAX);
        let answers = Arc::clone(&known);
        let run = move || ask_all(&community, port, &asked, &answers);
        std::thread::Builder::new().name("snmp".to_owned()).spawn(run)?;
        Ok(Self { known, asks })
    }

    /// What an exporter called its interfaces last. Of one that is asked for the first time nothing is known.
    pub fn of(&self, exporter: IpAddr) -> Option<Arc<Interfaces>> {
        let mut known = self.known.lock();
        if let Some(interfaces) = known.get(&exporter) {
            return Some(Arc::clone(interfaces));
        }
        if known.len() < EXPORTERS_MAX && self.asks.try_send(exporter).is_ok() {
            known.insert(exporter, Arc::default());
        }
        None
    }
}

fn ask_all(
    community: &str,
    port: u16,
    asked: &Receiver<IpAddr>,
    answers: &Mutex<HashMap<IpAddr, Arc<Interfaces>>>,
) {
    let mut due: BTreeSet<(Instant, IpAddr)> = BTreeSet::new();
    loop {
        let now = Instant::now();
        let wait = due.first().map_or(AGAIN_AFTER, |(at, _)| at.saturating_duration_since(now));
        match asked.recv_timeout(wait) {
            Ok(exporter) => {
                due.insert((now, exporter));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some((at, exporter)) = due.pop_first() else { continue };
        if at > Instant::now() {
            due.insert((at, exporter));
            continue;
        }
        // Its records keep the names that are known.
        if let Ok(interfaces) = interfaces(SocketAddr::new(exporter, port), community) {
            answers.lock().insert(exporter, Arc::new(interfaces));
        }
        due.insert((Instant::now() + AGAIN_AFTER, exporter));
    }
}

/// What an agent calls its interfaces.
pub fn interfaces(agent: SocketAddr, community: &str) -> io::Result<Interfaces> {
    let any: SocketAddr = if agent.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(agent)?;
    let mut interfaces = Interfaces::new();
    for (number, name) in column(&socket, community, IF_NAME)? {
        interfaces.insert(number, InterfaceName { name: Name::of(&name), ..InterfaceName::default() });
    }
    for (number, alias) in column(&socket, community, IF_ALIAS)? {
        if let Some(interface) = interfaces.get_mut(&number) {
            interface.description = Name::of(&alias);
        }
    }
    Ok(interfaces)
}

/// The texts of a column, by the number of the row.
fn column(socket: &UdpSocket, community: &str, column: &[u32]) -> io::Result<BTreeMap<u32, String>> {
    let mut texts = BTreeMap::new();
    let mut behind = column.to_vec();
    while texts.len() < INTERFACES_MAX {
        for (name, value) in exchange(socket, community, &behind)? {
            let (Some([number]), Value::Text(text)) = (name.strip_prefix(column), &value) else {
                return Ok(texts);
            };
            // An agent whose rows do not ascend would go on forever.
            if name <= behind {
                return Ok(texts);
            }
            texts.insert(*number, String::from_utf8_lossy(text).trim().to_owned());
            behind = name;
        }
    }
    Ok(texts)
}

/// The values behind an object, at least one.
fn exchange(socket: &UdpSocket, community: &str, behind: &[u32]) -> io::Result<Vec<(Vec<u32>, Value)>> {
    // The numbers of requests need not be secret: the socket takes datagrams of the agent alone.
    let number = behind.iter().fold(1_u32, |hash, part| hash.wrapping_mul(31).wrapping_add(*part)) >> 1;
    let request = get_bulk(community.as_bytes(), number, REPETITIONS, behind);
    let mut answer = [0; 1 << 16];
    for _ in 0..TRIES {
        socket.send(&request)?;
        let until = Instant::now() + ANSWER_WITHIN;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            socket.set_read_timeout(Some(left))?;
            let length = match socket.recv(&mut answer) {
                Ok(length) => length,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let found = response(&answer[..length]).filter(|response| response.request == number);
            if let Some(found) = found {
                let refused = found.error != 0 || found.values.is_empty();
                return if refused { Err(io::ErrorKind::InvalidData.into()) } else { Ok(found.values) };
            }
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{in_namespace, ip};
    use std::process::{Child, Command, Stdio};

    struct Agent(Child);

    impl Drop for Agent {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// The texts of a column, as net-snmp's own client prints them.
    fn walked(port: u16, column: &str) -> Vec<String> {
        let output = Command::new("snmpbulkwalk")
            .args(["-v2c", "-csecret", "-Oqv", &format!("127.0.0.1:{port}"), column])
            .output()
            .expect("it is there with the agent");
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| line.trim_matches('"').to_owned())
            .collect()
    }

    /// An agent of net-snmp names interfaces as the kernel does, and as its own client prints them. In a namespace, whose
    /// interfaces no other test makes.
    #[test]
    fn an_agent_says_what_the_kernel_calls_them() {
        in_namespace("snmp::tests::an_agent_says_what_the_kernel_calls_them", || {
            ip("link add west type veth peer name east");
            an_agent_is_asked();
        });
    }

    fn an_agent_is_asked() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("snmpd.conf");
        std::fs::write(&path, "rocommunity secret 127.0.0.1\n").expect("it can be written");
        let log = folder.path().join("log");
        // Not one that the system assigns: a question that leaves from the port it goes to holds it when the agent wants it.
        let port = thalweg_testdata::free_port();
        let agent = Command::new("snmpd")
            .args(["-f", "-C", "-Le", "-I", "-smux", "-c"])
            .arg(&path)
            .arg(format!("udp:127.0.0.1:{port}"))
            .env("SNMP_PERSISTENT_DIR", folder.path())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).expect("it can be written"))
            .spawn();
        let Ok(mut agent) = agent.map(Agent) else {
            thalweg_testdata::skipped("no snmpd (Debian: snmpd, snmp)");
            return;
        };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let begun = Instant::now();
        let found = loop {
            match interfaces(address, "secret") {
                Ok(found) => break found,
                Err(error) => {
                    let ended = agent.0.try_wait().expect("it is ours");
                    let said = || std::fs::read_to_string(&log).expect("its log");
                    assert!(ended.is_none(), "the agent ended, {ended:?}: {}", said());
                    assert!(begun.elapsed() < Duration::from_secs(60), "{error}: {}", said());
                }
            }
        };
        let names: Vec<String> = found.values().map(|interface| interface.name.text().into_owned()).collect();
        let aliases: Vec<String> =
            found.values().map(|interface| interface.description.text().into_owned()).collect();
        assert_eq!(names, walked(port, "1.3.6.1.2.1.31.1.1.1.1"));
        assert_eq!(aliases, walked(port, "1.3.6.1.2.1.31.1.1.1.18"));
        for (number, name) in found.keys().zip(&names) {
            let number = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex"))
                .map_or(*number, |text| text.trim().parse().expect("a number"));
            assert_eq!(found[&number].name, Name::of(name));
        }
        for name in ["lo", "east", "west"] {
            assert!(names.iter().any(|one| one == name), "{names:?}");
        }
        // By the thread, and with another community.
        let known = InterfaceNames::start("secret".to_owned(), port).expect("a thread");
        let interfaces_of = |known: &InterfaceNames| known.of(address.ip()).filter(|found| !found.is_empty());
        while interfaces_of(&known).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(120));
            std::thread::yield_now();
        }
        assert_eq!(interfaces_of(&known).as_deref(), Some(&found));
        let error = interfaces(address, "another").expect_err("the agent does not answer strangers");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
