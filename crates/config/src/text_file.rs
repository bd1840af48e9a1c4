//! Files of text, of which a configuration is one.

use std::path::Path;

/// A configuration is written by hand; more than this is another file.
const FILE_MAX_BYTES: u64 = 16 << 20;

/// The file as text, or why not.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    use std::io::Read;
    let name = path.display();
    let file = std::fs::File::open(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read {name}: {error}"))?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(format!("{name} is larger than 16 MiB, too large for a configuration"));
    }
    String::from_utf8(bytes).map_err(|error| {
        format!("{name} is not text: byte {} is not UTF-8", error.utf8_error().valid_up_to())
    })
}
