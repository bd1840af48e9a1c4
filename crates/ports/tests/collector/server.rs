//! A collector that reads streams and can be killed.

use crate::reader::Reader;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The records that all sessions have read, in order, identified by their packet counts.
pub(crate) type Heard = Arc<Mutex<Vec<u64>>>;

/// Listens until it is killed.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    listener: TcpListener,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(address: SocketAddr, tls: Option<Arc<ServerConfig>>, heard: &Heard) -> Self {
        let listener = listen(address);
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (accepting, stopped) = (listener.try_clone().unwrap(), Arc::clone(&stop));
        let (heard, known) = (Arc::clone(heard), Arc::clone(&connections));
        let worker = thread::spawn(move || {
            while let Ok((connection, _)) = accepting.accept() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                known.lock().unwrap().push(connection.try_clone().unwrap());
                match &tls {
                    None => read_session(connection, &heard),
                    Some(tls) => {
                        let session = ServerConnection::new(Arc::clone(tls)).unwrap();
                        read_session(StreamOwned::new(session, connection), &heard);
                    }
                }
            }
        });
        Self { address, listener, connections, stop, worker: Some(worker) }
    }

    /// Stops listening and closes all connections.
    pub(crate) fn kill(mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // From here on nobody can connect, not even before `accept` returns; it then fails.
        socket2::SockRef::from(&self.listener).shutdown(Shutdown::Both).expect("it listens");
        for connection in self.connections.lock().unwrap().drain(..) {
            // The connection may have ended by itself.
            let _ = connection.shutdown(Shutdown::Both);
        }
        self.worker.take().expect("killed once").join().expect("the reader found no fault");
        drop(self.listener);
    }
}

fn listen(address: SocketAddr) -> TcpListener {
    let socket =
        socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    // A program that another test is just starting briefly holds copies of open sockets, perhaps of a killed
    // server's.
    let began = Instant::now();
    while let Err(error) = socket.bind(&address.into()).and_then(|()| socket.listen(8)) {
        assert!(began.elapsed() < Duration::from_secs(10), "{address}: {error}");
        thread::sleep(Duration::from_millis(5));
    }
    socket.into()
}

/// Reads messages until the session ends. It must end between messages.
fn read_session(mut stream: impl Read, heard: &Heard) {
    let mut reader = Reader::default();
    loop {
        let mut head = [0; 4];
        if stream.read_exact(&mut head).is_err() {
            return;
        }
        let bytes = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let mut message = vec![0; bytes];
        message[..4].copy_from_slice(&head);
        if stream.read_exact(&mut message[4..]).is_err() {
            return;
        }
        let before = reader.flows.len();
        reader.read(&message);
        let mut heard = heard.lock().unwrap();
        for flow in &reader.flows[before..] {
            heard
                .push(crate::reader::number(&flow[&(0, thalweg_wire::netflow::element::PACKET_DELTA_COUNT)]));
        }
    }
}
