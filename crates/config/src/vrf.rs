//! `[vrfs.NAME]`: tables of routes of their own for some ports, and what leaks between them.

use std::collections::HashMap;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use thalweg_dataplane::vrf::VRFS_MAX;

use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::items::PREFIX_LIST;
use crate::key::{Key, Sub, table};
use crate::policy_sets::check_name;
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::sets;
use crate::types::{MAIN_VRF, RoutingConfig, TargetIndex, VrfIndex};

pub(crate) static VRFS: Key<Sub> = Key::named_sections("vrfs", &VRF_TABLE)
    .help("tables of routes of their own for some ports, and leaks between them: see [vrf.md](vrf.md)");
table! {
    static VRF_TABLE: "vrfs.NAME", "[vrfs.NAME]";

    static LEAKS: Key<Sub> = Key::sections("leaks", &LEAK_TABLE).help("what is looked up in other tables");
}

table! {
    static LEAK_TABLE: "vrfs.NAME.leaks", "[[vrfs.NAME.leaks]]";

    static FROM: Key<()> =
        Key::raw("from", "a VRF").required("\"main\"").help("the table in which packets are looked up too");
    static PREFIXES: Key<Vec<IpNet>> = Key::by("prefixes", PREFIX_LIST, sets::prefixes)
        .required("[\"192.0.2.0/24\"]")
        .help("packets to which prefixes, or [sets](firewall.md#sets) of them: `\"@shared\"`");
}

/// The routes of a table.
pub type VrfRoutes<'c> = (VrfIndex, &'c [(Ipv4Net, TargetIndex)], &'c [(Ipv6Net, TargetIndex)]);

impl RoutingConfig {
    /// The routes of all tables, the main one first.
    pub fn tables(&self) -> impl Iterator<Item = VrfRoutes<'_>> {
        let others = self.vrfs.iter().map(|vrf| (&vrf.v4[..], &vrf.v6[..]));
        let all = std::iter::once((&self.v4[..], &self.v6[..])).chain(others);
        (0..).zip(all).map(|(vrf, (v4, v6))| (vrf, v4, v6))
    }

    /// The name of a table.
    pub fn vrf_name(&self, vrf: VrfIndex) -> &str {
        let place = usize::from(vrf).checked_sub(1);
        place.map_or(MAIN_VRF, |place| self.vrfs.get(place).map_or("?", |vrf| vrf.name.as_str()))
    }

    /// The names of all tables, by number; empty for those that a reload removed.
    pub fn vrf_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(MAIN_VRF).chain(self.vrfs.iter().map(|vrf| vrf.name.as_str()))
    }
}

/// The VRFs by name, and their leaks.
#[derive(Default)]
pub(crate) struct Vrfs {
    /// By index; empty if a reload removed it.
    pub(crate) names: Vec<String>,
    pub(crate) leaks: Vec<Leak>,
}

/// Packets of `into` for these prefixes are looked up in the table of `from`, unless `into` has a longer prefix.
pub(crate) struct Leak {
    pub(crate) into: VrfIndex,
    pub(crate) from: VrfIndex,
    pub(crate) prefixes: Vec<IpNet>,
}

impl Vrfs {
    /// Reads `[vrfs]`. Those in `places` have their index there, others follow.
    pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>, places: &[String]) -> Self {
        let mut vrfs = Self { names: vec![MAIN_VRF.to_owned()], leaks: Vec::new() };
        let item = root.take(&VRFS);
        let mut sections = item.and_then(|item| reader.names(&item)).unwrap_or_default();
        let place_of: HashMap<&str, usize> = places.iter().map(String::as_str).zip(0..).collect();
        let place = |item: &Item<'_>| place_of.get(item.key).copied().unwrap_or(places.len());
        sections.sort_by_key(|(_, item)| place(item));
        let is_other = |item: &Item<'_>| item.key != MAIN_VRF;
        for (span, item) in sections.iter().filter(|(_, item)| is_other(item)) {
            check_name(reader, item.key, span);
            vrfs.fill_up_to(place(item));
            if vrfs.names.len() >= VRFS_MAX {
                let expected = format!("at most {}", VRFS_MAX - 1);
                reader.error(ErrorKind::TooMany, span, "too many VRFs", expected);
                break;
            }
            vrfs.names.push(item.key.to_owned());
        }
        vrfs.fill_up_to(places.len());
        let mut leaking: HashMap<(VrfIndex, IpNet), VrfIndex> = HashMap::new();
        for (_, item) in sections {
            let Some(into) = vrfs.find(item.key) else { continue };
            let title = format!("[vrfs.{}]", item.key);
            let Some(mut section) = reader.section_called(&item, &VRF_TABLE, title) else { continue };
            for mut leak in section.sections(reader, &LEAKS) {
                let from = leak.take(&FROM).and_then(|item| {
                    let from = vrfs.named(reader, &item)?;
                    if from == into {
                        let message = format!("`{}` is the VRF itself", vrfs.name(from));
                        reader.error(ErrorKind::Conflict, &item.span, message, "another VRF");
                    }
                    Some(from)
                });
                let prefixes = leak.read(reader, &PREFIXES);
                leak.finish(reader);
                let (Some(from), Some(At { value: prefixes, span })) = (from, prefixes) else { continue };
                for prefix in &prefixes {
                    let earlier = *leaking.entry((into, *prefix)).or_insert(from);
                    if earlier != from {
                        let message = format!("{prefix} leaks from `{}` too", vrfs.name(earlier));
                        reader.error(ErrorKind::Duplicate, &span, message, "each prefix of one VRF");
                        break;
                    }
                }
                vrfs.leaks.push(Leak { into, from, prefixes });
            }
            section.finish(reader);
        }
        vrfs
    }

    fn fill_up_to(&mut self, place: usize) {
        let length = self.names.len().max(place);
        self.names.resize(length, String::new());
    }

    /// Whether there is another table than the main one.
    pub(crate) fn are_several(&self) -> bool {
        self.names.len() > 1
    }

    pub(crate) fn name(&self, vrf: VrfIndex) -> &str {
        self.names.get(usize::from(vrf)).map_or("?", String::as_str)
    }

    fn find(&self, name: &str) -> Option<VrfIndex> {
        let mut all = (0..).zip(&self.names).filter(|(_, known)| !known.is_empty());
        all.find(|(_, known)| *known == name).map(|(vrf, _)| vrf)
    }

    /// The VRF that an item names.
    pub(crate) fn named(&self, reader: &mut Reader, item: &Item<'_>) -> Option<VrfIndex> {
        let names = || self.names.iter().map(String::as_str).filter(|name| !name.is_empty());
        let expected = one_of(names());
        let name = reader.string(item, &expected)?;
        let found = self.find(name);
        if found.is_none() {
            let message = format!("no VRF is named `{name}`");
            let finding = reader.error(ErrorKind::UnknownName, &item.span, message, expected);
            finding.help = nearest(name, names()).map(|name| format!("did you mean `{name}`?"));
        }
        found
    }
}
