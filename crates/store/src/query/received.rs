//! Reads answers of other programs: the HTTP API's documents, and rows of ClickHouse that have the same names.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value};
use thalweg_flow::FlowRecord;
use thalweg_flow::fields::{Access, Field, Kind, unknown_record};
use thalweg_text::calendar::parse_time;
use thalweg_wire::MacAddr;

use super::list::order;
use super::{Graph, Key, KeyValue, Scanned, Series, Sums, Top, TopRow};
use crate::dataset::{Rolled, RollupSummary, Skipped, Summary};
use crate::error::StoreError;
use crate::live::{LiveFacts, Writing};

/// An object of an answer.
pub type Object = Map<String, Value>;

/// The lines of `JSONEachRow` or `application/x-ndjson`.
pub fn rows(text: &[u8]) -> Result<Vec<Object>, StoreError> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(document).collect()
}

/// A document that is an object.
pub fn document(text: &[u8]) -> Result<Object, StoreError> {
    serde_json::from_slice(text).map_err(|error| StoreError::Answer(error.to_string()))
}

impl Top {
    /// What [`Top::to_json`] wrote.
    pub fn from_json(keys: &[Key], answer: &Object) -> Result<(Self, Vec<Writing>), StoreError> {
        let rows = objects(answer, "rows")?.map(|row| TopRow::from_json(keys, row?));
        let top = Self {
            rows: rows.collect::<Result<_, _>>()?,
            total: Sums::in_json(answer, "total")?,
            live: Sums::in_json(answer, "live")?,
            keys: number(answer, "keys")?,
            rest: Sums::in_json(answer, "rest")?,
            scanned: Scanned::in_json(answer)?,
        };
        Ok((top, writing(answer)?))
    }
}

impl TopRow {
    /// A row with the names of its keys.
    pub fn from_json(keys: &[Key], row: &Object) -> Result<Self, StoreError> {
        Ok(Self { key: key_values(keys, row)?, sums: Sums::from_json(row)? })
    }
}

impl Graph {
    /// What [`Graph::to_json`] wrote.
    pub fn from_json(keys: &[Key], answer: &Object) -> Result<(Self, Vec<Writing>), StoreError> {
        let series = objects(answer, "series")?.map(|series| {
            let series = series?;
            let key = series.get("key").and_then(Value::as_object).map(|key| key_values(keys, key));
            let steps = objects(series, "steps")?.map(|sums| Sums::from_json(sums?));
            Ok(Series {
                key: key.transpose()?,
                total: Sums::in_json(series, "total")?,
                steps: steps.collect::<Result<_, StoreError>>()?,
            })
        });
        let series: Vec<Series> = series.collect::<Result<_, StoreError>>()?;
        let step = answer.get("step_s").and_then(Value::as_f64).map(Duration::try_from_secs_f64);
        let step = step.and_then(Result::ok).ok_or_else(|| missing("step_s"))?;
        let step_ns = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX);
        let from_ns = time(answer, "from")?;
        let count = series.iter().map(|series| series.steps.len()).max().unwrap_or(0) as u64;
        let to_ns = from_ns.saturating_add(step_ns.saturating_mul(count));
        let incomplete = answer.get("incomplete_steps").and_then(Value::as_array);
        let incomplete = incomplete.ok_or_else(|| missing("incomplete_steps"))?;
        let lacks = |step: u64| u64::from(incomplete.iter().any(|number| number.as_u64() == Some(step)));
        // Only the first and the last step lack something; how much does not matter.
        let covered = (from_ns + lacks(0), to_ns.saturating_sub(count.checked_sub(1).map_or(0, lacks)));
        let graph = Self {
            from_ns,
            step_ns,
            covered,
            series,
            total: Sums::in_json(answer, "total")?,
            live: Sums::in_json(answer, "live")?,
            scanned: Scanned::in_json(answer)?,
        };
        Ok((graph, writing(answer)?))
    }
}

impl Sums {
    /// The sums that are members of an object.
    pub fn from_json(object: &Object) -> Result<Self, StoreError> {
        let of = |name| number(object, name);
        Ok(Self { packets: of("packets")?, bytes: of("bytes")?, flows: of("flows")? })
    }

    fn in_json(answer: &Object, name: &str) -> Result<Self, StoreError> {
        Self::from_json(object(answer, name)?)
    }
}

impl Scanned {
    fn in_json(answer: &Object) -> Result<Self, StoreError> {
        let scanned = object(answer, "scanned")?;
        let of = |name| number(scanned, name);
        // A router of an earlier version has no rollups.
        let rolled = |name| of(name).unwrap_or(0);
        Ok(Self {
            files: of("files")?,
            row_groups_read: of("row_groups_read")?,
            row_groups_pruned: of("row_groups_pruned")?,
            records: of("records")?,
            pending_records: of("pending_records")?,
            cached_records: of("cached_records")?,
            skipped: Skipped::in_json(scanned)?,
            sampled: scanned.get("sampled").and_then(Value::as_bool).ok_or_else(|| missing("sampled"))?,
            sampling_unknown: of("sampling_unknown")?,
            rolled: Rolled {
                step_s: rolled("rollup_step_s"),
                hours_coarse: rolled("hours_coarse"),
                hours_missing: rolled("hours_missing"),
            },
        })
    }

    /// What is known of records that another program chose.
    pub fn of_records(records: &[FlowRecord]) -> Self {
        let unknown = |record: &&FlowRecord| record.sampling_interval == thalweg_flow::SAMPLING_UNKNOWN;
        Self {
            sampled: records.iter().any(|record| record.sampling_interval > 1),
            sampling_unknown: records.iter().filter(unknown).count() as u64,
            ..Self::default()
        }
    }
}

impl Skipped {
    fn in_json(answer: &Object) -> Result<Self, StoreError> {
        let skipped = object(answer, "skipped")?;
        let named = objects(skipped, "named")?.map(|named| {
            let named = named?;
            Ok((text(named, "file")?.into(), text(named, "reason")?.to_owned()))
        });
        Ok(Self { count: number(skipped, "count")?, named: named.collect::<Result<_, StoreError>>()? })
    }
}

impl Summary {
    /// What [`Summary::to_json`] wrote.
    pub fn from_json(answer: &Object) -> Result<Self, StoreError> {
        let of = |name| number(answer, name);
        let is_empty = answer.get("from").is_none_or(Value::is_null);
        Ok(Self {
            partitions: of("partitions")?,
            files: of("files")?,
            row_groups: of("row_groups")?,
            records: of("records")?,
            bytes: of("bytes")?,
            pending_records: of("pending_records")?,
            cached_records: of("cached_records")?,
            span_ns: (!is_empty)
                .then(|| Ok::<_, StoreError>((time(answer, "from")?, time(answer, "to")?)))
                .transpose()?,
            rollups: RollupSummary::all_in_json(answer)?,
            skipped: Skipped::in_json(answer)?,
        })
    }
}

impl RollupSummary {
    /// None of a router of an earlier version.
    fn all_in_json(answer: &Object) -> Result<Vec<Self>, StoreError> {
        if !answer.contains_key("rollups") {
            return Ok(Vec::new());
        }
        let read = |rollup: &Object| {
            let of = |name| number(rollup, name);
            let span_ns = (time(rollup, "from")?, time(rollup, "to")?);
            Ok(Self {
                step_s: of("step_s")?,
                files: of("files")?,
                rows: of("rows")?,
                bytes: of("bytes")?,
                span_ns,
            })
        };
        objects(answer, "rollups")?.map(|rollup| read(rollup?)).collect()
    }
}

/// The records in rows or items, in the order of a list. Fields of a later version are ignored.
pub fn records<'a>(rows: impl Iterator<Item = &'a Object>) -> Result<Vec<FlowRecord>, StoreError> {
    let mut records: Vec<FlowRecord> = rows.map(record).collect::<Result<_, _>>()?;
    records.sort_by_cached_key(order);
    Ok(records)
}

fn record(row: &Object) -> Result<FlowRecord, StoreError> {
    let mut record = unknown_record();
    for field in Field::STORED {
        let Some(value) = row.get(field.name()).filter(|value| !value.is_null()) else { continue };
        restore(*field, value, &mut record).ok_or_else(|| wrong(field.name(), value))?;
    }
    Ok(record)
}

/// `None` if the value is none of the field's.
fn restore(field: Field, value: &Value, record: &mut FlowRecord) -> Option<()> {
    let kind = field.row().kind;
    match (field.row().access, kind) {
        (Access::Address(_, set), _) => set(record, of_address(value)?),
        (Access::Wide(_, set), Kind::Time) => set(record, parse_time(value.as_str()?)?),
        (Access::Wide(_, set), Kind::Mac) => set(record, value.as_str()?.parse::<MacAddr>().ok()?.to_u64()),
        (Access::Wide(_, set), _) => set(record, of_number(value)?),
        (Access::Number(_, set), Kind::Word(vocabulary)) => set(record, vocabulary.code(value.as_str()?)?),
        (Access::Number(_, set), _) => set(record, of_number(value)?.try_into().ok()?),
        (Access::Text(_), _) => {}
    }
    Some(())
}

fn key_values(keys: &[Key], row: &Object) -> Result<Vec<KeyValue>, StoreError> {
    let value = |key: &Key| {
        let name = key.name.replace('-', "_");
        let value = row.get(&name).ok_or_else(|| missing(&name))?;
        let read = match key.source.row().kind {
            _ if value.is_null() => Some(KeyValue::Unknown),
            Kind::Address => of_address(value).map(KeyValue::Address),
            Kind::Word(_) => value.as_str().map(|word| KeyValue::Word(word.to_owned())),
            _ => of_number(value).and_then(|number| number.try_into().ok()).map(KeyValue::Number),
        };
        read.ok_or_else(|| wrong(&name, value))
    };
    keys.iter().map(value).collect()
}

/// How the writers of the asked dataset answered, as one.
fn writing(answer: &Object) -> Result<Vec<Writing>, StoreError> {
    let live = object(answer, "live")?;
    let flag = |name: &str| live.get(name).and_then(Value::as_bool).unwrap_or(false);
    let facts = LiveFacts {
        cache_left_out: flag("cache_left_out"),
        cache_busy: flag("cache_busy"),
        on_the_way: number(live, "records_on_the_way")?,
        ..LiveFacts::default()
    };
    Ok(match text(live, "writer")? {
        "answered" => vec![Writing::Answered(facts)],
        "silent" => vec![Writing::Answered(facts), Writing::Silent(text(live, "reason")?.to_owned())],
        _ => Vec::new(),
    })
}

/// A time that is a member.
pub fn time(object: &Object, name: &str) -> Result<u64, StoreError> {
    let time = text(object, name)?;
    parse_time(time).ok_or_else(|| StoreError::Answer(format!("{name}: {time:?} is no time")))
}

/// A number that is a member; of 64 bits it may stand in quotes.
pub fn number(object: &Object, name: &str) -> Result<u64, StoreError> {
    let value = object.get(name).ok_or_else(|| missing(name))?;
    of_number(value).ok_or_else(|| wrong(name, value))
}

fn of_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// ClickHouse has IPv4 addresses as IPv6's that they are mapped to.
fn of_address(value: &Value) -> Option<IpAddr> {
    value.as_str()?.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

fn text<'a>(object: &'a Object, name: &str) -> Result<&'a str, StoreError> {
    object.get(name).and_then(Value::as_str).ok_or_else(|| missing(name))
}

fn object<'a>(answer: &'a Object, name: &str) -> Result<&'a Object, StoreError> {
    answer.get(name).and_then(Value::as_object).ok_or_else(|| missing(name))
}

/// The objects of a list that is a member.
pub fn objects<'a>(
    answer: &'a Object,
    name: &'static str,
) -> Result<impl Iterator<Item = Result<&'a Object, StoreError>>, StoreError> {
    let list = answer.get(name).and_then(Value::as_array).ok_or_else(|| missing(name))?;
    Ok(list.iter().map(move |item| item.as_object().ok_or_else(|| wrong(name, item))))
}

fn missing(name: &str) -> StoreError {
    StoreError::Answer(format!("{name} is missing, or of another type"))
}

fn wrong(name: &str, value: &Value) -> StoreError {
    let shown: String = value.to_string().chars().take(80).collect();
    StoreError::Answer(format!("{name}: unexpected {shown}"))
}
