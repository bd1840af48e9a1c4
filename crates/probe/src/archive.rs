//! A bucket of S3 as the archive of a dataset: the store does not know the network, nor `ports` the store.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use thalweg_ports::s3::{Bucket, S3Address, S3Error};
use thalweg_store::{Content, ObjectStore, Objects};

#[derive(Debug)]
struct Archive(Bucket);

/// Opens an archive by its address, `s3://BUCKET/PREFIX`. Takes credentials, and asks nothing yet.
pub fn open_archive(address: &str) -> Result<Arc<dyn ObjectStore>, S3Error> {
    let address: S3Address = address.parse()?;
    Ok(Arc::new(Archive(Bucket::open(&address)?)))
}

fn in_words(error: S3Error) -> io::Error {
    let kind = match &error {
        error if error.is_gone() => io::ErrorKind::NotFound,
        S3Error::Taken(_) => io::ErrorKind::AlreadyExists,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl ObjectStore for Archive {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn server(&self) -> &str {
        self.0.server()
    }

    fn list(&self, under: &str, is_deep: bool, goes_on: &dyn Fn() -> bool) -> io::Result<Objects> {
        let listing = self.0.list(under, is_deep, goes_on).map_err(in_words)?;
        Ok(Objects { objects: listing.objects, folders: listing.folders })
    }

    fn written_before(
        &self,
        under: &str,
        before_ns: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> io::Result<Vec<(String, u64)>> {
        self.0.list_written_before(under, before_ns, goes_on).map(|listing| listing.objects).map_err(in_words)
    }

    fn remove(&self, key: &str, goes_on: &dyn Fn() -> bool) -> io::Result<()> {
        self.0.remove(key, goes_on).map_err(in_words)
    }

    fn read(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.0.read(key, range).map_err(in_words)
    }

    fn read_all(&self, key: &str, goes_on: &dyn Fn() -> bool) -> io::Result<Vec<u8>> {
        self.0.read_all(key, goes_on).map_err(in_words)
    }

    fn put_new(&self, key: &str, content: Content<'_>, goes_on: &dyn Fn() -> bool) -> io::Result<()> {
        let put = match content {
            Content::File(path) => self.0.put_new(key, path, goes_on).map(drop),
            Content::Bytes(bytes) => self.0.put_new_bytes(key, bytes, goes_on),
        };
        put.map_err(in_words)
    }

    fn put(&self, key: &str, bytes: &[u8], goes_on: &dyn Fn() -> bool) -> io::Result<()> {
        self.0.put(key, bytes, goes_on).map_err(in_words)
    }
}
