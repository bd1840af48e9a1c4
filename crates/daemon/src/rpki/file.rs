//! VRPs from a file: `{"roas": [{"prefix": "192.0.2.0/24", "maxLength": 24, "asn": "AS64496", "expires": 1750000000}]}`,
//! as rpki-client, Routinator and others write it. A VRP that has expired when the file is read is passed over.
//!
//! The file is read again when its time or length differs, on the way into a list of VRPs, not of JSON: the whole RPKI
//! takes 75 MB of text.

use std::borrow::Cow;
use std::fmt;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::json;
use thalweg_base::IpPrefix;
use thalweg_bgp::rpki::{CacheConfig, Vrp, VrpList, VrpTable};
use thalweg_node::control::RpkiSourceView;

use super::Seen;

/// A file that is followed.
pub(super) struct VrpFile {
    path: PathBuf,
    config: CacheConfig,
    /// The time and length of what was read.
    read: Option<(SystemTime, u64)>,
    counts: Counts,
    last_error: Option<String>,
}

/// What was read.
#[derive(Clone, Copy, Default)]
struct Counts {
    reads: u64,
    /// Of the last read.
    expired: u64,
    /// VRPs whose fields make no sense, of the last read.
    malformed: u64,
}

impl VrpFile {
    pub(super) fn new(path: PathBuf, config: CacheConfig) -> Self {
        Self { path, config, read: None, counts: Counts::default(), last_error: None }
    }

    /// Reads the file if it is another one than before.
    pub(super) fn look(&mut self, seen: &Mutex<Seen>) {
        let before = seen.lock().table.clone();
        let facts = fs::metadata(&self.path).and_then(|facts| Ok((facts.modified()?, facts.len())));
        let mut table = before.clone();
        match facts {
            Err(error) => self.note(Some(format!("cannot read: {error}"))),
            Ok(facts) if self.read != Some(facts) => {
                self.read = Some(facts);
                match read(&self.path, self.config.vrps_max) {
                    Ok((list, counts)) => {
                        self.counts = Counts { reads: self.counts.reads + 1, ..counts };
                        let new = list.into_table();
                        // The same VRPs in another file are no change.
                        if before.as_deref() != Some(&new) {
                            table = Some(Arc::new(new));
                        }
                        self.note(None);
                    }
                    Err(error) => self.note(Some(error)),
                }
            }
            Ok(_) => {}
        }
        let age = self.read.and_then(|(modified, _)| modified.elapsed().ok());
        let limit = self.config.expire_s.map(|limit| Duration::from_secs(limit.into()));
        if let (Some(age), Some(limit)) = (age, limit)
            && age >= limit
            && table.is_some()
        {
            self.note(Some(format!("the file is {} s old: its VRPs have expired", age.as_secs())));
            table = None;
        }
        let view = self.view(table.as_deref(), age, limit);
        *seen.lock() = Seen { table, view };
    }

    fn note(&mut self, error: Option<String>) {
        if let Some(error) = error.as_ref().filter(|_| self.last_error != error) {
            tracing::warn!("rpki: {}: {error}", self.path.display());
        }
        self.last_error = error;
    }

    fn view(
        &self,
        table: Option<&VrpTable>,
        age: Option<Duration>,
        limit: Option<Duration>,
    ) -> RpkiSourceView {
        RpkiSourceView {
            source: self.path.display().to_string(),
            kind: "file".to_owned(),
            state: if self.last_error.is_none() { "loaded" } else { "unreadable" }.to_owned(),
            vrps: table.map_or([0; 2], VrpTable::counts).map(|count| count as u64).into(),
            age_s: table.and(age).map(|age| age.as_secs()),
            expires_in_s: limit.zip(table.and(age)).map(|(limit, age)| limit.saturating_sub(age).as_secs()),
            expire_s: self.config.expire_s,
            last_error: self.last_error.clone(),
            counters: json!({
                "reads": self.counts.reads,
                "expired": self.counts.expired,
                "malformed": self.counts.malformed,
            }),
            ..RpkiSourceView::default()
        }
    }
}

/// Reads a file; the error is in words for people.
fn read(path: &Path, vrps_max: usize) -> Result<(VrpList, Counts), String> {
    let file = File::open(path).map_err(|error| format!("cannot read: {error}"))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut reading = Reading { list: VrpList::default(), counts: Counts::default(), vrps_max, now };
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, file));
    json.deserialize_map(Top(&mut reading)).and_then(|()| json.end()).map_err(|error| error.to_string())?;
    Ok((reading.list, reading.counts))
}

struct Reading {
    list: VrpList,
    counts: Counts,
    vrps_max: usize,
    now: u64,
}

/// The object of the file; all but `roas` is passed over.
struct Top<'r>(&'r mut Reading);

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `roas`")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let mut has = false;
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            if key == "roas" {
                has = true;
                map.next_value_seed(Roas(&mut *self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if has { Ok(()) } else { Err(de::Error::missing_field("roas")) }
    }
}

struct Roas<'r>(&'r mut Reading);

impl<'de> DeserializeSeed<'de> for Roas<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Roas<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of VRPs")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut sequence: S) -> Result<(), S::Error> {
        let Reading { list, counts, vrps_max, now } = self.0;
        while let Some(roa) = sequence.next_element::<Roa>()? {
            if roa.expires.is_some_and(|expires| expires < *now) {
                counts.expired += 1;
            } else if let Some(vrp) = roa.vrp() {
                list.push(vrp);
            } else {
                counts.malformed += 1;
            }
            if list.len() > *vrps_max {
                return Err(de::Error::custom(format!("more than {vrps_max} VRPs (`vrps_max`)")));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Roa {
    prefix: String,
    #[serde(rename = "maxLength")]
    max_length: Option<u8>,
    asn: Asn,
    expires: Option<u64>,
}

/// `64496` or `"AS64496"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Asn {
    Number(u32),
    Text(String),
}

impl Roa {
    fn vrp(&self) -> Option<Vrp> {
        let prefix: IpPrefix = self.prefix.parse().ok()?;
        let asn = match &self.asn {
            Asn::Number(asn) => *asn,
            Asn::Text(text) => text.strip_prefix("AS").unwrap_or(text).parse().ok()?,
        };
        let max_length = self.max_length.unwrap_or(prefix.length());
        let bits = if prefix.address().is_ipv4() { 32 } else { 128 };
        (prefix.length()..=bits).contains(&max_length).then_some(Vrp { prefix, max_length, asn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(file: &mut VrpFile, seen: &Mutex<Seen>) -> (Option<usize>, String) {
        file.look(seen);
        let seen = seen.lock();
        (seen.table.as_ref().map(|table| table.len()), seen.view.state.clone())
    }

    #[test]
    fn a_file_is_read_again_when_it_changes_and_kept_when_it_breaks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vrps.json");
        let config = CacheConfig { refresh_s: None, retry_s: None, expire_s: None, vrps_max: 3 };
        let (mut file, seen) = (VrpFile::new(path.clone(), config), Mutex::default());
        assert_eq!(look(&mut file, &seen), (None, "unreadable".to_owned()));
        let text = r#"{"metadata": {"roas": [1]}, "roas": [
            {"prefix": "192.0.2.0/24", "maxLength": 24, "asn": "AS64496", "ta": "x", "expires": 99999999999},
            {"prefix": "2001:db8::/32", "maxLength": 48, "asn": 64497},
            {"prefix": "198.51.100.0/24", "maxLength": 24, "asn": 1, "expires": 1},
            {"prefix": "198.51.100.0/24", "maxLength": 23, "asn": 1}], "aspas": []}"#;
        fs::write(&path, text).unwrap();
        assert_eq!(look(&mut file, &seen), (Some(2), "loaded".to_owned()));
        assert_eq!((file.counts.expired, file.counts.malformed), (1, 1));
        let first = seen.lock().table.clone().unwrap();
        // The same VRPs, written in another way.
        fs::write(&path, text.replace("64497", "\"64497\"")).unwrap();
        look(&mut file, &seen);
        assert!(file.counts.reads == 2 && Arc::ptr_eq(&first, seen.lock().table.as_ref().unwrap()));
        for broken in ["", "[]", "{\"roas\": 1}", "{}", &text[..100]] {
            fs::write(&path, broken).unwrap();
            assert_eq!(look(&mut file, &seen), (Some(2), "unreadable".to_owned()), "{broken}");
        }
        let many: Vec<String> = (0..4)
            .map(|asn| format!(r#"{{"prefix": "10.0.0.0/8", "maxLength": 8, "asn": {asn}}}"#))
            .collect();
        fs::write(&path, format!("{{\"roas\": [{}]}}", many.join(","))).unwrap();
        assert_eq!(look(&mut file, &seen), (Some(2), "unreadable".to_owned()));
        assert!(
            file.last_error.as_ref().is_some_and(|error| error.contains("vrps_max")),
            "{:?}",
            file.last_error
        );
    }

    #[test]
    fn an_old_file_expires() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vrps.json");
        fs::write(&path, r#"{"roas": [{"prefix": "10.0.0.0/8", "asn": 1}]}"#).unwrap();
        let config = CacheConfig { refresh_s: None, retry_s: None, expire_s: Some(600), vrps_max: 3 };
        let (mut file, seen) = (VrpFile::new(path.clone(), config), Mutex::default());
        assert_eq!(look(&mut file, &seen).0, Some(1));
        let old = SystemTime::now() - Duration::from_secs(700);
        File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        assert_eq!(look(&mut file, &seen), (None, "unreadable".to_owned()));
    }
}
