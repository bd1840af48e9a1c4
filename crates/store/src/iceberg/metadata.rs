//! The table's metadata: a JSON document of Iceberg's version 2, which each commit changes and writes anew.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use serde_json::{Map, Value, json};
use thalweg_flow::fields::Field;

use crate::schema::COLUMNS;

/// The name of the partition field: the hour in which a flow ended.
pub(super) const HOUR_FIELD: &str = "flow_end_hour";
pub(super) const HOUR_FIELD_ID: i64 = 1000;
/// The most snapshots that are kept.
const SNAPSHOTS_MAX: usize = 64;
/// Marks tables of ours.
const MARK: &str = "thalweg.table";
const VERSION: &str = "1";

/// The numbers of columns in the schema of a table, by name.
pub(super) type Ids = BTreeMap<String, i64>;

/// The document.
#[derive(Clone, Debug)]
pub(super) struct Metadata(Value);

/// A snapshot to add.
pub(super) struct Snapshot {
    pub(super) time_ms: i64,
    /// The path of its list of manifests.
    pub(super) list: String,
    /// What it does, and counts.
    pub(super) summary: Map<String, Value>,
    /// Earlier snapshots have files that it removes.
    pub(super) ends_earlier: bool,
}

impl Metadata {
    /// A table without snapshots at this place.
    pub(super) fn new(location: &str) -> Self {
        let [high, low] = [(); 2].map(|()| RandomState::new().build_hasher().finish());
        let uuid = format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            low >> 48 & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff
        );
        let mut table = Self(json!({
            "format-version": 2,
            "table-uuid": uuid,
            "location": location,
            "last-sequence-number": 0,
            "last-updated-ms": 0,
            "last-column-id": 0,
            "schemas": [],
            "default-spec-id": 0,
            "last-partition-id": HOUR_FIELD_ID,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {MARK: VERSION},
            "refs": {},
            "snapshots": [],
            "snapshot-log": [],
        }));
        let source = table.columns().get(Field::FlowEnd.name()).copied();
        let hour =
            json!({"name": HOUR_FIELD, "transform": "hour", "source-id": source, "field-id": HOUR_FIELD_ID});
        table.0["partition-specs"] = json!([{"spec-id": 0, "fields": [hour]}]);
        table
    }

    /// Reads a document; `None` if it is no table of ours at this place.
    pub(super) fn read(bytes: &[u8], location: &str) -> Option<Self> {
        let table: Value = serde_json::from_slice(bytes).ok()?;
        let fits = table["properties"][MARK] == VERSION
            && table["location"] == location
            && table["schemas"].is_array()
            && table["snapshots"].is_array();
        fits.then_some(Self(table))
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }

    fn number(&self, key: &str) -> i64 {
        self.0[key].as_i64().unwrap_or(0)
    }

    /// The sequence number of the last snapshot, which is also the snapshot's number.
    pub(super) fn sequence(&self) -> i64 {
        self.number("last-sequence-number")
    }

    fn snapshots(&self) -> impl DoubleEndedIterator<Item = &Value> {
        self.0["snapshots"].as_array().into_iter().flatten()
    }

    /// The number of the current snapshot, if there is one.
    pub(super) fn current(&self) -> Option<i64> {
        self.0["current-snapshot-id"].as_i64()
    }

    /// The lists of manifests of all snapshots, the current one last.
    pub(super) fn lists(&self) -> Vec<&str> {
        let current = self.current();
        let is_current = |snapshot: &&Value| snapshot["snapshot-id"].as_i64() == current;
        let (last, mut lists): (Vec<_>, Vec<_>) = self.snapshots().partition(is_current);
        lists.extend(last);
        lists.into_iter().filter_map(|snapshot| snapshot["manifest-list"].as_str()).collect()
    }

    /// The schema and the partitions for the header of a manifest.
    pub(super) fn header(&self) -> [(&'static str, String); 6] {
        let schema = self.0["schemas"].as_array().and_then(|all| all.last()).unwrap_or(&Value::Null);
        [
            ("schema", schema.to_string()),
            ("schema-id", self.number("current-schema-id").to_string()),
            ("partition-spec", self.0["partition-specs"][0]["fields"].to_string()),
            ("partition-spec-id", "0".to_owned()),
            ("format-version", "2".to_owned()),
            ("content", "data".to_owned()),
        ]
    }

    /// The numbers of columns. Columns that the table lacks are added to it, in a further schema.
    pub(super) fn columns(&mut self) -> Ids {
        let schemas = self.0["schemas"].as_array();
        let fields = schemas.and_then(|all| all.last()).and_then(|last| last["fields"].as_array());
        let mut fields = fields.cloned().unwrap_or_default();
        let mut last = self.number("last-column-id");
        let named = |field: &Value| Some((field["name"].as_str()?.to_owned(), field["id"].as_i64()?));
        let mut ids: Ids = fields.iter().filter_map(named).collect();
        let before = ids.len();
        for column in COLUMNS.iter().filter(|column| !ids.contains_key(&column.name)).collect::<Vec<_>>() {
            last += 1;
            // Not required: an older file may lack it.
            let kind = column.iceberg_type();
            fields.push(json!({"id": last, "name": column.name, "required": false, "type": kind}));
            ids.insert(column.name.clone(), last);
        }
        if ids.len() > before
            && let Some(schemas) = self.0["schemas"].as_array_mut()
        {
            let id = schemas.len();
            schemas.push(json!({"type": "struct", "schema-id": id, "fields": fields}));
            // Files have no numbers of columns: engines find columns by name.
            let names: Vec<Value> =
                ids.iter().map(|(name, id)| json!({"field-id": id, "names": [name]})).collect();
            self.0["properties"]["schema.name-mapping.default"] = Value::Array(names).to_string().into();
            self.0["current-schema-id"] = id.into();
            self.0["last-column-id"] = last.into();
        }
        ids
    }

    /// Makes this the current snapshot.
    pub(super) fn push(&mut self, snapshot: Snapshot) {
        let id = self.sequence() + 1;
        let time_ms = snapshot.time_ms.max(self.number("last-updated-ms"));
        let mut new = json!({
            "snapshot-id": id,
            "sequence-number": id,
            "timestamp-ms": time_ms,
            "manifest-list": snapshot.list,
            "summary": snapshot.summary,
            "schema-id": self.0["current-schema-id"],
        });
        if let Some(parent) = self.current() {
            new["parent-snapshot-id"] = parent.into();
        }
        let kept = if snapshot.ends_earlier { 0 } else { SNAPSHOTS_MAX - 1 };
        for (key, entry) in
            [("snapshots", new), ("snapshot-log", json!({"timestamp-ms": time_ms, "snapshot-id": id}))]
        {
            if let Some(entries) = self.0[key].as_array_mut() {
                entries.drain(..entries.len().saturating_sub(kept));
                entries.push(entry);
            }
        }
        self.0["last-sequence-number"] = id.into();
        self.0["last-updated-ms"] = time_ms.into();
        self.0["current-snapshot-id"] = id.into();
        self.0["refs"] = json!({"main": {"snapshot-id": id, "type": "branch"}});
    }
}
