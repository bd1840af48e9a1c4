//! Delivers records as lines to a file or standard output.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use thalweg_flow::FlowRecord;
use thalweg_flow::export::Amount;

use super::{Finished, Outlet};
use crate::ProbeError;
use crate::summary::OutletSummary;
use thalweg_flow::fields::Field;
use thalweg_flow::lines::LineFormat;

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// The outlet; see the module documentation.
pub(crate) struct Lines {
    format: LineFormat,
    with_community_id: bool,
    path: PathBuf,
    file: Box<dyn Write + Send>,
    buffer: Vec<u8>,
    amount: Amount,
}

impl Lines {
    /// Outlets for the files that were asked for.
    pub(crate) fn outlets(
        json: &Option<PathBuf>,
        csv: &Option<PathBuf>,
        with_community_id: bool,
    ) -> Result<Vec<Box<dyn Outlet>>, ProbeError> {
        let files = [(LineFormat::Json, json), (LineFormat::Csv, csv)];
        let files = files.into_iter().filter_map(|(format, path)| Some((format, path.as_ref()?)));
        let open = |(format, path): (LineFormat, &PathBuf)| -> Result<Box<dyn Outlet>, ProbeError> {
            Ok(Box::new(Self::create(format, with_community_id, path)?))
        };
        files.map(open).collect()
    }

    /// Creates the file and replaces an existing one; `-` is standard output.
    fn create(format: LineFormat, with_community_id: bool, path: &Path) -> Result<Self, ProbeError> {
        let failed = |source| ProbeError::Output { path: path.to_owned(), source };
        let (path, file): (_, Box<dyn Write + Send>) = match path.as_os_str() == "-" {
            true => ("standard output".into(), Box::new(io::stdout())),
            false => (path.to_owned(), Box::new(File::create(path).map_err(failed)?)),
        };
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + 4096);
        buffer.extend_from_slice(format.header(Field::of_lines(with_community_id)).as_bytes());
        Ok(Self { format, with_community_id, path, file, buffer, amount: Amount::default() })
    }

    fn write(&mut self) -> Result<(), ProbeError> {
        let written = self.file.write_all(&self.buffer).and_then(|()| self.file.flush());
        self.buffer.clear();
        written.map_err(|source| ProbeError::Output { path: self.path.clone(), source })
    }
}

impl Outlet for Lines {
    fn take(&mut self, records: &[FlowRecord]) -> Result<(), ProbeError> {
        for record in records {
            self.format.write(record, Field::of_lines(self.with_community_id), &mut self.buffer);
            if self.buffer.len() >= BUFFER_BYTES {
                self.write()?;
            }
        }
        self.amount += Amount::of_all(records);
        Ok(())
    }

    fn tick(&mut self) -> Result<(), ProbeError> {
        if self.buffer.is_empty() { Ok(()) } else { self.write() }
    }

    fn finish(mut self: Box<Self>, _hurried: bool) -> Result<Finished, ProbeError> {
        self.write()?;
        let summary = OutletSummary::all_taken(self.path.display().to_string(), self.amount);
        Ok(Finished { summaries: vec![summary], missed: Amount::default() })
    }
}
