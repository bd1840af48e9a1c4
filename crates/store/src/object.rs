//! A store of objects as a dataset needs it. Who connects to one is outside: this crate does not know the network.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

/// A store of objects below some prefix. Errors are those of the operating system or say in words what to do. `goes_on`
/// ends a request early, with an error.
pub trait ObjectStore: Send + Sync + fmt::Debug {
    /// As in `s3://bucket/prefix`.
    fn name(&self) -> &str;

    /// Where it answers: there may be several of a name.
    fn server(&self) -> &str;

    /// Both of them.
    fn place(&self) -> (String, String) {
        (self.name().to_owned(), self.server().to_owned())
    }

    /// Objects whose names begin so, and, unless `is_deep`, only those without a further slash, and what is before it.
    fn list(&self, under: &str, is_deep: bool, goes_on: &dyn Fn() -> bool) -> io::Result<Objects>;

    /// Objects whose names begin so and that were written before this time, in nanoseconds since the epoch, by the store's
    /// clock; with their bytes.
    fn written_before(
        &self,
        under: &str,
        before_ns: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> io::Result<Vec<(String, u64)>>;

    /// Removes an object; one that is gone is none.
    fn remove(&self, key: &str, goes_on: &dyn Fn() -> bool) -> io::Result<()>;

    /// These bytes of an object. Fails with [`io::ErrorKind::NotFound`] if it is gone.
    fn read(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>>;

    /// All bytes of an object; fails as [`Self::read`] does.
    fn read_all(&self, key: &str, goes_on: &dyn Fn() -> bool) -> io::Result<Vec<u8>>;

    /// Makes something an object and looks that it is whole. One that is there already must have the same content, or this
    /// fails with [`io::ErrorKind::AlreadyExists`]: of two who write a name at once, one fails.
    fn put_new(&self, key: &str, content: Content<'_>, goes_on: &dyn Fn() -> bool) -> io::Result<()>;

    /// Makes these bytes an object, in the place of one of this name.
    fn put(&self, key: &str, bytes: &[u8], goes_on: &dyn Fn() -> bool) -> io::Result<()>;
}

/// What becomes an object.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    File(&'a Path),
    Bytes(&'a [u8]),
}

/// What a store lists.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Names and bytes.
    pub objects: Vec<(String, u64)>,
    pub folders: Vec<String>,
}
