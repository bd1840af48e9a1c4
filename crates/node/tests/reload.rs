//! A configuration that is refused or withdrawn, at whatever step, changes nothing, and the next one is accepted.
//!
//! The test's network records the expected neighbors, and refuses what a test wants refused, such as a password
//! that is too long for a kernel.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use thalweg_bgp::session::NeighborConfig;
use thalweg_config::{BgpConfig, RouterConfig};
use thalweg_exec::control_plane::{ControlPlane, Registry, Token, Wakers};
use thalweg_node::control::{BgpNeighborView, BgpRequest, RouteFilter, RouteView};
use thalweg_node::speaker::{ByteStream, Incoming, Network, Speaker, SpeakerOptions};

/// The password that no socket takes.
const REFUSED: &str = "refused";

/// Expected addresses with their passwords, and the number of changes.
#[derive(Default)]
struct Expected {
    passwords: BTreeMap<IpAddr, Option<String>>,
    calls: usize,
}

#[derive(Clone, Default)]
struct Picky(Arc<Mutex<Expected>>);

impl Picky {
    fn expected(&self) -> MutexGuard<'_, Expected> {
        self.0.lock().expect("no thread panicked with this lock")
    }

    fn passwords(&self) -> BTreeMap<IpAddr, Option<String>> {
        self.expected().passwords.clone()
    }
}

impl Network for Picky {
    fn register_listeners(&self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn accept(&self) -> io::Result<Option<Incoming>> {
        Ok(None)
    }

    fn connect(&self, _: &NeighborConfig) -> io::Result<Box<dyn ByteStream>> {
        Err(io::ErrorKind::ConnectionRefused.into())
    }

    fn expect(&self, neighbor: &NeighborConfig, expected: bool) -> io::Result<()> {
        let password = neighbor.transport.password.as_ref().map(|secret| secret.reveal().to_owned());
        let mut all = self.expected();
        all.calls += 1;
        match expected {
            true if password.as_deref() == Some(REFUSED) => return Err(io::Error::other("no such key")),
            true => drop(all.passwords.insert(neighbor.address, password)),
            false => drop(all.passwords.remove(&neighbor.address)),
        }
        Ok(())
    }
}

/// A configuration with these neighbors, by the last byte of their address, and their passwords.
fn config(network: &str, neighbors: &[(u8, &str)]) -> Arc<BgpConfig> {
    let mut text = format!(
        "[bgp]\nas = 64500\nrouter_id = \"192.0.2.1\"\nlisten = []\ninstall = \"none\"\nnetworks = [{network:?}]\n"
    );
    for (byte, password) in neighbors {
        text += &format!("[[bgp.neighbor]]\naddress = \"198.51.100.{byte}\"\nas = 645{byte:02}\n");
        if !password.is_empty() {
            text += &format!("password = {password:?}\n");
        }
    }
    match RouterConfig::from_text("router.toml", &text, Path::new("")) {
        Ok(config) => Arc::new(config.bgp.expect("[bgp] in the configuration")),
        Err(errors) => panic!("{errors}\n{text}"),
    }
}

fn speaker(network: &Picky, config: Arc<BgpConfig>) -> io::Result<Speaker> {
    let options = SpeakerOptions::new(network.clone(), 1);
    let speaker = Speaker::new(config, options)?;
    speaker.begin(1, Wakers::default());
    Ok(speaker)
}

fn ask<T: serde::de::DeserializeOwned>(speaker: &Speaker, request: &BgpRequest) -> Vec<T> {
    let mut views = Vec::new();
    let answer = speaker.answer(request, &mut |item| {
        views.push(serde_json::from_value(item).expect("a view"));
        Ok(())
    });
    answer.expect("a listener").expect("a good request");
    views
}

/// Everything of a speaker that a reload could have changed.
fn picture(speaker: &Speaker) -> (Vec<BgpNeighborView>, Vec<RouteView>) {
    let routes = ask(speaker, &BgpRequest::Routes(RouteFilter::default()));
    (ask(speaker, &BgpRequest::Neighbors), routes)
}

const OLD: &str = "203.0.113.0/25";
const NEW: &str = "203.0.113.128/25";

#[test]
fn what_is_refused_changes_nothing() {
    let network = Picky::default();
    let before = config(OLD, &[(1, "one"), (2, ""), (3, "three")]);
    let speaker = speaker(&network, before.clone()).expect("a speaker");
    let (passwords, then) = (network.passwords(), picture(&speaker));
    assert_eq!(passwords.len(), 3);
    let refused: [&[(u8, &str)]; 5] = [
        // One that is added, after one that could be added, with others removed.
        &[(1, "one"), (4, "four"), (5, REFUSED)],
        // One that stays, with another password; before and after it are neighbors that could change.
        &[(1, "uno"), (2, ""), (3, REFUSED), (4, "")],
        &[(1, REFUSED), (2, ""), (3, "tre")],
        // One that had no password.
        &[(1, ""), (2, REFUSED), (3, "three"), (6, "six")],
        &[(4, "four"), (1, "uno"), (2, "due"), (3, ""), (5, REFUSED)],
    ];
    for neighbors in refused {
        let calls = network.expected().calls;
        let error = speaker.reload(config(NEW, neighbors)).expect_err("a password that is refused");
        let name = neighbors
            .iter()
            .find(|each| each.1 == REFUSED)
            .map(|each| each.0)
            .expect("one neighbor has the refused address");
        assert!(error.to_string().contains(&format!("198.51.100.{name}: no such key")), "{error}");
        assert!(network.expected().calls > calls, "it was asked");
        assert_eq!(network.passwords(), passwords, "{neighbors:?}");
        assert!(Arc::ptr_eq(&speaker.config(), &before), "{neighbors:?}");
        assert_eq!(picture(&speaker), then, "{neighbors:?}");
    }
}

/// The other half of the router may still refuse what BGP has accepted.
#[test]
fn what_is_accepted_and_not_applied_changes_nothing() {
    let network = Picky::default();
    let before = config(OLD, &[(1, "one"), (2, ""), (3, "three")]);
    let speaker = speaker(&network, before.clone()).expect("a speaker");
    let (passwords, then) = (network.passwords(), picture(&speaker));
    let after = config(NEW, &[(1, "uno"), (2, "due"), (4, "four")]);
    let prepared = speaker.prepare_reload(after.clone()).expect("a good configuration");
    assert_ne!(network.passwords(), passwords, "the system was asked");
    assert!(Arc::ptr_eq(&speaker.config(), &before));
    assert_eq!(picture(&speaker), then);
    drop(prepared);
    assert_eq!(network.passwords(), passwords);
    assert_eq!(picture(&speaker), then);
    let done = speaker.prepare_reload(after.clone()).expect("a good configuration").apply();
    assert!(done.contains(&"neighbor 198.51.100.4 added".to_owned()), "{done:?}");
    assert!(Arc::ptr_eq(&speaker.config(), &after));
    assert_eq!(network.passwords().len(), 3);
}

#[test]
fn what_is_taken_after_a_refusal_is_taken_whole() {
    let network = Picky::default();
    let speaker = speaker(&network, config(OLD, &[(1, "one"), (2, ""), (3, "three")])).expect("a speaker");
    speaker
        .reload(config(NEW, &[(1, ""), (4, "four"), (5, REFUSED)]))
        .expect_err("a password that is refused");
    let after = config(NEW, &[(1, ""), (2, "two"), (4, "four")]);
    let done = speaker.reload(after.clone()).expect("a good configuration");
    let passwords: Vec<_> = network.passwords().into_iter().collect();
    let address = |byte: u8| IpAddr::from([198, 51, 100, byte]);
    let password = |text: &str| Some(text.to_owned());
    let expected = [(address(1), None), (address(2), password("two")), (address(4), password("four"))];
    assert_eq!(passwords, expected);
    assert!(Arc::ptr_eq(&speaker.config(), &after));
    let (neighbors, routes) = picture(&speaker);
    let names: Vec<_> = neighbors.iter().map(|each| each.name.as_str()).collect();
    assert_eq!(names, ["198.51.100.1", "198.51.100.2", "198.51.100.4"]);
    assert_eq!(routes.iter().map(|route| route.prefix.as_str()).collect::<Vec<_>>(), [NEW]);
    for words in
        ["198.51.100.3 removed", "198.51.100.4 added", "198.51.100.1 begins anew", "1 network announced"]
    {
        assert!(done.iter().any(|each| each.contains(words)), "{words} in {done:?}");
    }
    // A free slot is used again.
    speaker.reload(config(NEW, &[(1, ""), (2, "two"), (4, "four"), (7, "")])).expect("a good configuration");
    assert_eq!(ask::<BgpNeighborView>(&speaker, &BgpRequest::Neighbors).len(), 4);
    assert!(speaker.reload(speaker.config()).expect("the same").is_empty());
}

#[test]
fn a_speaker_that_is_refused_does_not_begin() {
    let network = Picky::default();
    let error = speaker(&network, config(OLD, &[(1, "one"), (2, REFUSED)])).err().expect("refused");
    assert_eq!(error.to_string(), "no such key");
}
