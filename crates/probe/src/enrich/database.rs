//! An MMDB database (the format of MaxMind's, DB-IP's and IPinfo's): country and AS by address.

use std::net::IpAddr;
use std::path::Path;

use maxminddb::{MaxMindDbError, PathElement, Reader};
use thalweg_base::Name;
use thalweg_flow::NO_AS;

const COUNTRY: &[PathElement<'_>] = &[PathElement::Key("country"), PathElement::Key("iso_code")];
const REGISTERED_COUNTRY: &[PathElement<'_>] =
    &[PathElement::Key("registered_country"), PathElement::Key("iso_code")];
const COUNTRY_CODE: &[PathElement<'_>] = &[PathElement::Key("country_code")];
const AS_NUMBER: &[PathElement<'_>] = &[PathElement::Key("autonomous_system_number")];
/// As text: "AS64500".
const AS_TEXT: &[PathElement<'_>] = &[PathElement::Key("asn")];

pub(super) struct Database(Reader<Vec<u8>>);

impl Database {
    pub(super) fn read(path: &Path) -> Result<Self, MaxMindDbError> {
        Reader::open_readfile(path).map(Self)
    }

    /// What kind it is, as it says.
    pub(super) fn kind(&self) -> &str {
        &self.0.metadata().database_type
    }

    /// Country and AS of an address; what is unknown or damaged is none.
    pub(super) fn facts(&self, address: IpAddr) -> (Name, u32) {
        let Ok(found) = self.0.lookup(address) else { return (Name::NONE, NO_AS) };
        let text = |path| found.decode_path::<&str>(path).ok().flatten();
        let country = text(COUNTRY).or_else(|| text(REGISTERED_COUNTRY)).or_else(|| text(COUNTRY_CODE));
        let number = found.decode_path::<u32>(AS_NUMBER).ok().flatten();
        let number = number.or_else(|| text(AS_TEXT)?.strip_prefix("AS")?.parse().ok());
        // A code is two letters; anything else could be any number of names.
        let country = country.filter(|code| code.len() == 2).map_or(Name::NONE, Name::of);
        (country, number.unwrap_or(NO_AS))
    }
}
