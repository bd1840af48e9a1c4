//! Reads text files with a size limit.

use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// A configuration is written by hand; a larger file is something else.
const FILE_MAX_BYTES: u64 = 16 << 20;

/// The file as text; an error has its name.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let name = path.display();
    let cannot = |error: io::Error| io::Error::new(error.kind(), format!("cannot read {name}: {error}"));
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        let why = format!("{name} is larger than 16 MiB, too large for a configuration");
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(ErrorKind::InvalidData, format!("{name} is not text: byte {at} is not UTF-8"))
    })
}
