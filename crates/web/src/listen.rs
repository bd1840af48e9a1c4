//! Sockets and their connections.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use thalweg_config::WebConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;

use crate::body::Body;
use crate::clients::Connected;
use crate::counters::Cut;
use crate::limits::{HEAD_BYTES_MAX, HEAD_MAX, HEADERS_MAX};
use crate::problem::{Problem, ProblemKind};
use crate::rights::Via;
use crate::server::Server;
use crate::stream::Timed;
use crate::{WebError, tls};

/// After an error of the system, such as too few file descriptors, a listener rests.
const REST: Duration = Duration::from_millis(50);
/// Who may open the Unix socket: owner and group.
const SOCKET_MODE: u32 = 0o660;

/// What a connection is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serves {
    Api,
    LookingGlass,
}

/// All open sockets.
pub(crate) struct Listeners {
    tcp: Vec<(StdTcpListener, Serves)>,
    unix: Option<StdUnixListener>,
    tls: Option<TlsAcceptor>,
}

impl Listeners {
    pub(crate) fn open(config: &WebConfig) -> Result<Self, WebError> {
        let tls =
            config.tls.as_ref().map(|(certificate, key)| tls::acceptor(certificate, key)).transpose()?;
        let api = config.listen.iter().map(|address| (*address, Serves::Api));
        let glass = config.looking_glass.iter().map(|address| (*address, Serves::LookingGlass));
        let open = |(address, serves): (SocketAddr, Serves)| {
            let listener = StdTcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            });
            listener.map(|listener| (listener, serves)).map_err(|error| WebError::Listen { address, error })
        };
        let tcp = api.chain(glass).map(open).collect::<Result<_, _>>()?;
        let unix = config.socket.as_deref().map(open_unix).transpose()?;
        Ok(Self { tcp, unix, tls })
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.tcp.iter().filter_map(|(listener, _)| listener.local_addr().ok()).collect()
    }

    /// Begins to accept connections, in tasks of the runtime.
    pub(crate) fn serve(self, server: &Arc<Server>) -> io::Result<()> {
        for (listener, serves) in self.tcp {
            let tls = self.tls.clone().filter(|_| serves == Serves::Api);
            tokio::spawn(accept_tcp(TcpListener::from_std(listener)?, server.clone(), tls, serves));
        }
        if let Some(listener) = self.unix {
            tokio::spawn(accept_unix(UnixListener::from_std(listener)?, server.clone()));
        }
        Ok(())
    }
}

fn open_unix(path: &Path) -> Result<StdUnixListener, WebError> {
    let open = || {
        let listener = match StdUnixListener::bind(path) {
            // Left over from a process that could not clean up.
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && StdUnixStream::connect(path).is_err() =>
            {
                fs::remove_file(path)?;
                StdUnixListener::bind(path)?
            }
            other => other?,
        };
        fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    open().map_err(|error| WebError::Socket { path: path.to_owned(), error })
}

async fn accept_tcp(listener: TcpListener, server: Arc<Server>, tls: Option<TlsAcceptor>, serves: Serves) {
    loop {
        let Ok((stream, address)) = listener.accept().await else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let via = Via::Tcp { client: address.ip(), is_tls: tls.is_some() };
        let connected = match server.clients.connect(Some(address.ip()), Instant::now()) {
            Ok(connected) => connected,
            Err(why) => {
                server.counters.cut(why);
                // Within TLS it could not be read.
                if tls.is_none() {
                    refuse(&stream);
                }
                continue;
            }
        };
        tokio::spawn(talk_tcp(stream, server.clone(), tls.clone(), (via, serves), connected));
    }
}

async fn talk_tcp(
    stream: TcpStream,
    server: Arc<Server>,
    tls: Option<TlsAcceptor>,
    (via, serves): (Via, Serves),
    connected: Connected,
) {
    // Small answers do not wait for acknowledgments. Without it they are only later.
    let _ = stream.set_nodelay(true);
    match tls {
        None => talk(stream, server, via, serves).await,
        Some(tls) => match tokio::time::timeout(HEAD_MAX, tls.accept(stream)).await {
            Ok(Ok(stream)) => talk(stream, server, via, serves).await,
            Ok(Err(_)) | Err(_) => server.counters.cut(Cut::Tls),
        },
    }
    drop(connected);
}

async fn accept_unix(listener: UnixListener, server: Arc<Server>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let connected = match server.clients.connect(None, Instant::now()) {
            Ok(connected) => connected,
            Err(why) => {
                server.counters.cut(why);
                continue;
            }
        };
        let server = server.clone();
        tokio::spawn(async move {
            talk(stream, server, Via::Unix, Serves::Api).await;
            drop(connected);
        });
    }
}

/// Tells a client that there are too many, if its socket takes it at once.
fn refuse(stream: &TcpStream) {
    let document = Problem::new(ProblemKind::Busy, "too many connections; try again").to_json();
    let text = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{document}",
        document.len()
    );
    // Who does not get it sees the connection end.
    let _ = stream.try_write(text.as_bytes());
}

/// Serves a connection until it ends.
async fn talk<S>(stream: S, server: Arc<Server>, via: Via, serves: Serves)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    server.counters.connections.fetch_add(1, Ordering::Relaxed);
    let counters = server.counters.clone();
    let io = TokioIo::new(Timed::new(stream, counters.clone()));
    let service = service_fn(move |request| answer(server.clone(), via, serves, request));
    let result = http1::Builder::new()
        // Without a timer, the limit of the head's time would do nothing.
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(io, service)
        .await;
    match result {
        Err(error) if error.is_timeout() => counters.cut(Cut::SlowHead),
        Err(error) if error.is_parse() => counters.cut(Cut::Malformed),
        Err(error) if error.is_incomplete_message() => counters.cut(Cut::Truncated),
        // The stream has counted it, or the client closed the connection.
        Ok(()) | Err(_) => {}
    }
}

async fn answer(
    server: Arc<Server>,
    via: Via,
    serves: Serves,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    Ok(match serves {
        Serves::Api => server.serve(via, request).await,
        Serves::LookingGlass => server.serve_glass(via, request).await,
    })
}
