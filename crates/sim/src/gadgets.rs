//! Well-studied policies as configurations: the gadgets of Griffin, Shepherd and Wilfong ("The stable paths
//! problem and interdomain routing", IEEE/ACM Transactions on Networking, 2002).
//!
//! Router 0 owns the prefix. Each other router accepts a few paths, which it ranks, and rejects all others. A
//! path is written as in the paper: `130` goes from router 1 over 3 to 0. [`Gadget::solutions`] finds the
//! stable states by trying all.

use std::collections::BTreeSet;
use std::fmt::Write;

use thalweg_base::IpPrefix;

use crate::policy::address;
use crate::prefixes::prefix;

const AS_OF_0: u32 = 64_500;

/// What theory predicts for a gadget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Every run ends, always in the same state.
    Settles,
    /// There are two stable states, and every run ends in one of them unless messages cross for ever.
    Either,
    /// There is a stable state, but some runs never reach it.
    MayDiverge,
    /// There is no stable state.
    Never,
}

/// The routers, and the paths that each accepts.
#[derive(Clone, Copy, Debug)]
pub struct Gadget {
    /// The paper's name.
    pub name: &'static str,
    /// The paper's prediction.
    pub fate: Fate,
    /// The paths of each router from 1 on, best first.
    paths: &'static [&'static [&'static str]],
}

/// The paper's gadgets.
pub const GADGETS: [Gadget; 5] = [
    Gadget {
        name: "SHORTEST",
        fate: Fate::Settles,
        paths: &[&["10", "120", "130"], &["20", "210", "230"], &["30", "310", "320"]],
    },
    Gadget {
        name: "GOOD",
        fate: Fate::Settles,
        paths: &[&["130", "10"], &["210", "20"], &["30"], &["430", "420"]],
    },
    Gadget {
        name: "NAUGHTY",
        fate: Fate::MayDiverge,
        paths: &[&["130", "10"], &["210", "20"], &["3420", "30"], &["430", "420"]],
    },
    Gadget { name: "DISAGREE", fate: Fate::Either, paths: &[&["120", "10"], &["210", "20"]] },
    Gadget {
        name: "BAD",
        fate: Fate::Never,
        paths: &[&["130", "10"], &["210", "20"], &["3420", "30"], &["420", "430"]],
    },
];

/// The best path of each router from 1 on, as the paper writes it; empty if it has none.
pub type State = Vec<String>;

impl Gadget {
    /// The number of routers, including the owner of the prefix.
    pub fn routers(&self) -> usize {
        self.paths.len() + 1
    }

    /// The prefix that router 0 owns.
    pub fn prefix() -> IpPrefix {
        prefix(0)
    }

    /// The pairs of neighbors, each once.
    pub fn links(&self) -> Vec<(usize, usize)> {
        let hops =
            self.paths.iter().flat_map(|paths| paths.iter()).flat_map(|path| path.as_bytes().windows(2));
        let links: BTreeSet<(usize, usize)> = hops
            .map(|pair| (usize::from(pair[0] - b'0'), usize::from(pair[1] - b'0')))
            .map(|(a, b)| (a.min(b), a.max(b)))
            .collect();
        links.into_iter().collect()
    }

    /// The `router.toml` of a router.
    pub fn configuration(&self, router: usize) -> String {
        let networks = if router == 0 { vec![Self::prefix().to_string()] } else { Vec::new() };
        let import = if router == 0 { "reject" } else { "ranked" };
        let mut text = format!(
            "[bgp]\nas = {}\nrouter_id = \"{}\"\nlisten = []\ninstall = \"none\"\nnetworks = {networks:?}\n\
             import = \"{import}\"\nexport = \"accept\"\n",
            as_of(router),
            address(router)
        );
        for (a, b) in self.links().into_iter().filter(|(a, b)| *a == router || *b == router) {
            let other = a + b - router;
            let _ =
                write!(text, "[[bgp.neighbor]]\naddress = \"{}\"\nas = {}\n", address(other), as_of(other));
        }
        let Some(paths) = router.checked_sub(1).and_then(|place| self.paths.get(place)) else { return text };
        for (rank, path) in paths.iter().enumerate() {
            let _ = write!(
                text,
                "[[policy.rules.ranked]]\nmatch = {{ as_path = \"^{}$\" }}\nset = {{ local_pref = {} }}\n\
                 action = \"accept\"\n",
                heard(path).replace(' ', "_"),
                200 - rank
            );
        }
        text + "[[policy.rules.ranked]]\ndefault = \"reject\"\n"
    }

    /// The path of a router with this AS_PATH, as the paper writes it.
    pub fn path(&self, router: usize, as_path: &str) -> Option<&'static str> {
        let paths = self.paths.get(router.checked_sub(1)?)?;
        paths.iter().copied().find(|path| heard(path) == as_path)
    }

    /// All stable states. In such a state, each router uses the best of its paths whose next router uses the
    /// rest of that path.
    pub fn solutions(&self) -> Vec<State> {
        let mut found = Vec::new();
        let mut choice = vec![0; self.paths.len()];
        loop {
            let state: State = choice
                .iter()
                .zip(self.paths)
                .map(|(at, paths)| paths.get(*at).map_or(String::new(), |path| (*path).to_owned()))
                .collect();
            if self.is_stable(&state) {
                found.push(state);
            }
            // The next combination; an index behind the last path stands for no path.
            let Some(place) = (0..choice.len()).find(|place| choice[*place] < self.paths[*place].len())
            else {
                return found;
            };
            choice[place] += 1;
            choice[..place].fill(0);
        }
    }

    fn is_stable(&self, state: &State) -> bool {
        let has = |rest: &str| match rest {
            "0" => true,
            _ => rest.as_bytes().first().is_some_and(|first| state[usize::from(first - b'1')] == rest),
        };
        self.paths.iter().zip(state).all(|(paths, is)| {
            let best = paths.iter().find(|path| has(&path[1..])).copied().unwrap_or_default();
            best == is
        })
    }
}

fn as_of(router: usize) -> u32 {
    AS_OF_0 + router as u32
}

/// The AS_PATH that a router with this path has received.
fn heard(path: &str) -> String {
    let numbers = path.bytes().skip(1).map(|digit| as_of(usize::from(digit - b'0')).to_string());
    numbers.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trying all states finds what the paper says.
    #[test]
    fn gadgets_have_the_stable_states_of_the_paper() {
        let solutions = |name| GADGETS.iter().find(|gadget| gadget.name == name).unwrap().solutions();
        let state = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<State>();
        assert_eq!(solutions("SHORTEST"), [state(&["10", "20", "30"])]);
        assert_eq!(solutions("GOOD"), [state(&["130", "20", "30", "430"])]);
        assert_eq!(solutions("NAUGHTY"), [state(&["130", "20", "30", "430"])]);
        assert_eq!(solutions("DISAGREE"), [state(&["10", "210"]), state(&["120", "20"])]);
        assert!(solutions("BAD").is_empty());
    }

    #[test]
    fn links_are_those_of_paths() {
        let disagree = &GADGETS[3];
        assert_eq!(disagree.links(), [(0, 1), (0, 2), (1, 2)]);
        assert_eq!(disagree.path(1, "64502 64500"), Some("120"));
        assert_eq!(disagree.path(1, "64503 64500"), None);
    }
}
