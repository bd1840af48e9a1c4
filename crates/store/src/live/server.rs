//! The server of the live view, in the writing process.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thalweg_flow::FlowRecord;

use super::frame::{CACHE_BUSY, GREETING, Kind, Note, QUESTION_MAX, Sender, bad};
use super::{Cache, NOTED_MAX, SETTLE, SOCKET, TIMEOUT, Way};
use crate::dataset::Window;
use crate::error::StoreError;
use crate::writer::{Shared, Writer};

/// The most clients at a time; the connections of others are closed, and they use files alone.
const CLIENTS_MAX: usize = 8;
/// How often a follower receives new records.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);
/// The longest pause between frames, so that both sides notice when the other is gone.
const ALIVE_EVERY: Duration = Duration::from_secs(1);

/// Answers queries about records that are not on disk. Dropping it removes the socket.
#[derive(Debug)]
pub struct LiveServer {
    folder: PathBuf,
    /// The socket's inode: another writer may have replaced it with its own.
    inode: u64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the clients' threads.
struct Served {
    writer: Arc<Shared>,
    cache: Option<Arc<dyn Cache>>,
    stop: Arc<AtomicBool>,
    clients: AtomicUsize,
}

impl Writer {
    /// Answers queries on a socket in the dataset's folder about records that are in no file yet: pending
    /// records, and the flow cache from which records come. Serves until the server is dropped.
    pub fn serve(&self, cache: Option<Arc<dyn Cache>>) -> Result<LiveServer, StoreError> {
        let writer = self.shared();
        LiveServer::start(Arc::clone(writer), writer.root(), cache)
    }
}

impl LiveServer {
    /// Listens in the dataset's folder. There is no other writer, so an existing socket is left over from a
    /// killed one.
    fn start(writer: Arc<Shared>, folder: &Path, cache: Option<Arc<dyn Cache>>) -> Result<Self, StoreError> {
        let (listener, inode) = listen(folder).map_err(StoreError::io("listen on", &folder.join(SOCKET)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let served = Served { writer, cache, stop: Arc::clone(&stop), clients: AtomicUsize::new(0) };
        let served = Arc::new(served);
        let thread =
            thread::Builder::new().name("flow-live".to_owned()).spawn(move || accept(&listener, &served));
        let thread = thread.map_err(StoreError::io("start a thread for", folder))?;
        Ok(Self { folder: folder.to_path_buf(), inode, stop, thread: Some(thread) })
    }
}

impl Drop for LiveServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let path = self.folder.join(SOCKET);
        if fs::symlink_metadata(&path).map_or(0, |socket| socket.ino()) != self.inode {
            // The socket belongs to another server: the thread cannot be woken and ends with the process.
            return;
        }
        let woken = Way::to(&self.folder, SOCKET).and_then(|way| UnixStream::connect(&way.path));
        let _ = fs::remove_file(path);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// The mode of folders whose files belong to the folder's group.
const SET_GROUP: u32 = 0o2000;

/// Makes the socket where only we have access, and moves it to its place when its permissions are right: for its owner,
/// and for the group that the folder gives to all that is made in it.
fn listen(folder: &Path) -> io::Result<(UnixListener, u64)> {
    let is_shared = fs::metadata(folder)?.mode() & SET_GROUP != 0;
    let name = format!(".live-{}", std::process::id());
    let private = folder.join(&name);
    let _ = fs::remove_dir_all(&private);
    DirBuilder::new().mode(0o700).create(&private)?;
    let made = (|| {
        let way = Way::to(&private, SOCKET)?;
        let listener = UnixListener::bind(&way.path)?;
        fs::set_permissions(
            private.join(SOCKET),
            Permissions::from_mode(if is_shared { 0o660 } else { 0o600 }),
        )?;
        let inode = fs::symlink_metadata(private.join(SOCKET))?.ino();
        fs::rename(private.join(SOCKET), folder.join(SOCKET))?;
        Ok((listener, inode))
    })();
    let _ = fs::remove_dir_all(&private);
    made
}

fn accept(listener: &UnixListener, served: &Arc<Served>) {
    for stream in listener.incoming() {
        if served.stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else {
            // Most likely out of descriptors: wait until one is closed.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if served.clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
            served.clients.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let own = Arc::clone(served);
        let spawned = thread::Builder::new().name("flow-live".to_owned()).spawn(move || {
            // A client that left needs no answer.
            let _ = own.talk(&stream);
            own.clients.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            served.clients.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Served {
    fn talk(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut question = String::new();
        BufReader::new(stream.take(QUESTION_MAX)).read_line(&mut question)?;
        let words = question.trim_end().strip_prefix(GREETING).unwrap_or("");
        let mut words = words.split_ascii_whitespace();
        let mut sender = Sender::new(stream);
        match (words.next(), words.next().map(str::parse), words.next().map(str::parse)) {
            (Some("view"), Some(Ok(from_ns)), Some(Ok(to_ns))) => {
                self.view(Window { from_ns, to_ns }, &mut sender)
            }
            (Some("follow"), None, None) => self.follow(&mut sender),
            _ => Err(bad("not a question")),
        }
    }

    fn view(&self, window: Window, sender: &mut Sender<&UnixStream>) -> io::Result<()> {
        let inside = |record: &&FlowRecord| window.contains(record.counters.last_ns);
        let listener = self.writer.listen_for_notes(NOTED_MAX);
        let (mut on_the_way, mut is_busy) = (0, false);
        if let Some(cache) = &self.cache {
            let mut sent = Ok(());
            let shows_all = cache.show(&mut |records| {
                sent = sender.send_records(Kind::Cached, records.iter().filter(inside));
                if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            sent?;
            let settled = if shows_all { cache.settle(SETTLE) } else { None };
            (on_the_way, is_busy) = (settled.unwrap_or(0), settled.is_none());
        }
        let moment = self.writer.moment(window, &listener).map_err(|error| bad(&error.to_string()))?;
        drop(listener);
        sender.send_all(Kind::Noted, moment.notes, Note::write)?;
        let pending = moment.pending.iter().flat_map(|batch| batch.iter());
        sender.send_records(Kind::Pending, pending.filter(inside))?;
        sender.send_all(Kind::Files, moment.files, |name, out| {
            out.extend_from_slice(name.as_bytes());
            out.push(b'\n');
        })?;
        let mut end = [0; 10];
        end[..8].copy_from_slice(&u64::to_le_bytes(on_the_way));
        end[8] = self.cache.is_some().into();
        end[9] = if is_busy { CACHE_BUSY } else { moment.notes_whole.into() };
        sender.send(Kind::End, &end)
    }

    fn follow(&self, sender: &mut Sender<&UnixStream>) -> io::Result<()> {
        let listener = self.writer.listen_for_records(super::FOLLOWED_MAX);
        // Confirms that following has begun.
        sender.send(Kind::Followed, &[])?;
        let mut sent = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            thread::sleep(FOLLOW_EVERY);
            let (batches, missed) = self.writer.drain(&listener);
            if batches.is_empty() && missed == 0 && sent.elapsed() < ALIVE_EVERY {
                continue;
            }
            match batches.is_empty() {
                true => sender.send(Kind::Followed, &[])?,
                false => {
                    sender.send_records(Kind::Followed, batches.iter().flat_map(|batch| batch.iter()))?
                }
            }
            if missed > 0 {
                sender.send(Kind::Missed, &u64::to_le_bytes(missed))?;
            }
            sent = Instant::now();
        }
        Ok(())
    }
}
