//! The same questions to a table of ClickHouse: statements, and answers from their rows.

mod sql;

use sql::Sql;

use super::graph::{Steps, empty};
use super::received::{self, Object, number, time};
use super::{Graph, Key, Lines, Metric, Query, Scanned, Sums, Top, TopRow};
use crate::dataset::{Summary, Window};
use crate::error::StoreError;
use crate::filter::Filter;
use thalweg_flow::FlowRecord;

/// A table that has the columns of `contrib/clickhouse/flows.sql`, and who asks the server.
pub struct Table<'a> {
    /// With its database, as SQL has it.
    pub name: &'a str,
    /// Returns the rows of a statement as `JSONEachRow`.
    pub ask: &'a dyn Fn(&str) -> Result<Vec<u8>, StoreError>,
}

impl Table<'_> {
    /// [`super::top`] of the table.
    pub fn top(&self, query: &Query, keys: &[Key], by: Metric, count: usize) -> Result<Top, StoreError> {
        let sql = Sql::new(self.name, query);
        let (total, scanned) = self.totals(&sql)?;
        let rows = self.rows(&sql.top(keys, by, count))?;
        let rows = rows.iter().map(|row| TopRow::from_json(keys, row)).collect::<Result<_, _>>()?;
        let keys = number(&self.row(&sql.keys(keys))?, "keys")?;
        Ok(Top { rows, total, keys, scanned, ..Top::default() })
    }

    /// [`super::graph`] of the table.
    pub fn graph(
        &self,
        query: &Query,
        keys: &[Key],
        by: Metric,
        lines: Lines<'_>,
        step_ns: Option<u64>,
    ) -> Result<Graph, StoreError> {
        let sql = Sql::new(self.name, query);
        let span_ns = self.span(&sql)?.span_ns;
        let Some(steps) = Steps::new(span_ns, query.window, step_ns)? else {
            return Ok(Graph::empty(step_ns));
        };
        let values = match lines {
            Lines::These(values) => values.to_vec(),
            Lines::Largest(_) if keys.is_empty() => vec![Vec::new()],
            Lines::Largest(count) => {
                let rows = self.rows(&sql.top(keys, by, count.max(1)))?;
                let rows = rows.iter().map(|row| TopRow::from_json(keys, row).map(|row| row.key));
                rows.collect::<Result<_, _>>()?
            }
        };
        let sums = self.rows(&sql.steps(keys, &values, steps.from_ns, steps.step_ns))?;
        let mut series: Vec<_> = values.into_iter().map(|value| empty(Some(value), steps.count)).collect();
        let mut others = empty(None, steps.count);
        for row in &sums {
            let (sums, line) = (Sums::from_json(row)?, place(row, "g")?);
            let line = line.checked_sub(1).and_then(|place| series.get_mut(place)).unwrap_or(&mut others);
            line.total.add(sums);
            if let Some(place) = line.steps.get_mut(place(row, "s")?) {
                place.add(sums);
            }
        }
        series.push(others);
        let (total, scanned) = self.totals(&sql)?;
        Ok(steps.graph(series, (total, Sums::default()), scanned))
    }

    /// [`super::reversed`] of the table.
    pub fn reversed(
        &self,
        query: &Query,
        keys: &[Key],
        by: Metric,
        answer: &Graph,
    ) -> Result<Graph, StoreError> {
        let (query, keys) = query.turned(keys)?;
        self.graph(&query, &keys, by, Lines::These(&answer.named()), Some(answer.step_ns))
    }

    /// [`super::list`] of the table. Of records that differ only in the reason of their end any may be left out.
    pub fn list(&self, query: &Query, count: usize) -> Result<Vec<FlowRecord>, StoreError> {
        received::records(self.rows(&Sql::new(self.name, query).list(count))?.iter())
    }

    /// How many records the table has, and of which time.
    pub fn summary(&self) -> Result<Summary, StoreError> {
        self.span(&Sql::new(self.name, &Query::new(Window::ALL, Filter::default())))
    }

    fn span(&self, sql: &Sql<'_>) -> Result<Summary, StoreError> {
        let row = self.row(&sql.span())?;
        let records = number(&row, "records")?;
        let span_ns = match records {
            0 => None,
            _ => Some((time(&row, "first")?, time(&row, "last")?)),
        };
        Ok(Summary { records, span_ns, ..Summary::default() })
    }

    fn totals(&self, sql: &Sql<'_>) -> Result<(Sums, Scanned), StoreError> {
        let row = self.row(&sql.totals())?;
        let scanned = Scanned {
            sampled: number(&row, "sampled")? > 0,
            sampling_unknown: number(&row, "sampling_unknown")?,
            ..Scanned::default()
        };
        Ok((Sums::from_json(&row)?, scanned))
    }

    fn rows(&self, statement: &str) -> Result<Vec<Object>, StoreError> {
        received::rows(&(self.ask)(statement)?)
    }

    /// The row of a statement that has one.
    fn row(&self, statement: &str) -> Result<Object, StoreError> {
        let first = self.rows(statement)?.into_iter().next();
        first.ok_or_else(|| StoreError::Answer("a row is missing".to_owned()))
    }
}

/// A number that counts elements of a list.
fn place(row: &Object, name: &str) -> Result<usize, StoreError> {
    Ok(usize::try_from(number(row, name)?).unwrap_or(usize::MAX))
}
