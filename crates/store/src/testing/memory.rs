//! A store of objects in memory that fails, or is gone, when a test wants it.

#![allow(clippy::unwrap_used)] // a helper that fails fails the test

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;

use parking_lot::Mutex;

use crate::object::{Content, ObjectStore, Objects};

/// How a store fails to take an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Refused,
    /// It has the object, and nobody hears of it.
    Unheard,
}

/// Objects in memory.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) objects: Mutex<BTreeMap<String, Vec<u8>>>,
    /// The next ones fail like this.
    pub(crate) failures: Mutex<Vec<Failure>>,
    /// Bytes that were read.
    pub(crate) read: Mutex<u64>,
    /// What happens before the next lists, the last first.
    pub(crate) meanwhile: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    /// Objects that are as old as their hours; others were written after them all.
    pub(crate) old: Mutex<BTreeSet<String>>,
    /// After so many changes nothing is done any more, as if the writer was killed; the last one is, or is not.
    pub(crate) changes_left: Mutex<Option<(usize, Failure)>>,
    /// It knows no `If-None-Match`.
    pub(crate) overwrites: bool,
    /// Of its name.
    pub(crate) number: usize,
}

/// Names of some.
const NAMES: [&str; 2] = ["s3://memory/a", "s3://memory/b"];

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    /// Counts a change; returns whether it is done, and fails if its writer hears nothing of that.
    fn change(&self, key: &str, done: impl FnOnce(&mut BTreeMap<String, Vec<u8>>)) -> io::Result<()> {
        let killed = || io::Error::other(format!("the test kills the writer at {key}"));
        let mut left = self.changes_left.lock();
        match &mut *left {
            Some((0, _)) => return Err(killed()),
            Some((1, Failure::Refused)) => *left = Some((0, Failure::Refused)),
            Some((number, _)) => {
                *number -= 1;
                done(&mut self.objects.lock());
            }
            None => done(&mut self.objects.lock()),
        }
        if matches!(*left, Some((0, _))) { Err(killed()) } else { Ok(()) }
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.objects.lock().keys().cloned().collect()
    }
}

impl ObjectStore for Memory {
    fn name(&self) -> &str {
        NAMES[self.number]
    }

    fn server(&self) -> &str {
        "memory"
    }

    fn list(&self, under: &str, is_deep: bool, _: &dyn Fn() -> bool) -> io::Result<Objects> {
        let happens = self.meanwhile.lock().pop();
        happens.into_iter().for_each(|happens| happens());
        let mut found = Objects::default();
        for (key, bytes) in self.objects.lock().iter().filter(|(key, _)| key.starts_with(under)) {
            match key[under.len()..].find('/').filter(|_| !is_deep) {
                None => found.objects.push((key.clone(), bytes.len() as u64)),
                Some(end) => found.folders.push(key[..=under.len() + end].to_owned()),
            }
        }
        found.folders.dedup();
        Ok(found)
    }

    fn written_before(
        &self,
        under: &str,
        _: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> io::Result<Vec<(String, u64)>> {
        let mut found = self.list(under, true, goes_on)?.objects;
        found.retain(|(key, _)| self.old.lock().contains(key));
        Ok(found)
    }

    fn remove(&self, key: &str, _: &dyn Fn() -> bool) -> io::Result<()> {
        if self.failures.lock().pop().is_some() {
            return Err(io::Error::other("the test refuses"));
        }
        self.change(key, |objects| drop(objects.remove(key)))
    }

    fn read(&self, key: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        *self.read.lock() += range.end - range.start;
        let objects = self.objects.lock();
        let bytes = objects.get(key).ok_or(io::ErrorKind::NotFound)?;
        Ok(bytes[range.start as usize..range.end as usize].to_vec())
    }

    fn read_all(&self, key: &str, _: &dyn Fn() -> bool) -> io::Result<Vec<u8>> {
        self.objects.lock().get(key).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn put_new(&self, key: &str, content: Content<'_>, _: &dyn Fn() -> bool) -> io::Result<()> {
        let failure = self.failures.lock().pop();
        if failure == Some(Failure::Refused) {
            return Err(io::Error::other("the test refuses"));
        }
        let content = match content {
            Content::File(path) => fs::read(path)?,
            Content::Bytes(bytes) => bytes.to_vec(),
        };
        let is_other = self.objects.lock().get(key).is_some_and(|there| *there != content);
        if is_other && !self.overwrites {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.change(key, |objects| drop(objects.insert(key.to_owned(), content)))?;
        if failure.is_some() { Err(io::Error::other("the test hears nothing")) } else { Ok(()) }
    }

    fn put(&self, key: &str, bytes: &[u8], _: &dyn Fn() -> bool) -> io::Result<()> {
        self.change(key, |objects| drop(objects.insert(key.to_owned(), bytes.to_vec())))
    }
}
