//! Server-sent events: whole views, once a second, made once for all who watch.

use parking_lot::{Condvar, Mutex};
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use serde_json::json;
use thalweg_node::control::{BgpRequest, Client, PacketRequest, Request};
use thalweg_text::calendar::format_time;
use tokio::sync::mpsc;

use crate::body::Body;
use crate::counters::{Counters, Cut};
use crate::limits::{BEHIND_BYTES_MAX, STREAMS_MAX};
use crate::problem::{Problem, ProblemKind};
use crate::router::connect;

const TICK: Duration = Duration::from_secs(1);
/// Streams that say nothing otherwise get a comment this often, so that nobody on the way takes them for dead.
const COMMENT_EVERY: Duration = Duration::from_secs(15);
/// Events that may wait for a client, besides their limit in bytes.
const WAITING_MAX: usize = 256;

/// What can be watched.
struct Topic {
    name: &'static str,
    request: fn() -> Request,
    is_list: bool,
}

const fn topic(name: &'static str, is_list: bool, request: fn() -> Request) -> Topic {
    Topic { name, request, is_list }
}

const TOPICS_COUNT: usize = 15;

static TOPICS: [Topic; TOPICS_COUNT] = [
    topic("status", false, || Request::Status),
    topic("ports", true, || Request::Packets(PacketRequest::Ports)),
    topic("counters", false, || Request::Packets(PacketRequest::Counters)),
    topic("queues", true, || Request::Packets(PacketRequest::Queues)),
    topic("bgp", true, || Request::Bgp(BgpRequest::Neighbors)),
    topic("rib", false, || Request::Bgp(BgpRequest::Rib)),
    topic("nat", false, || Request::Packets(PacketRequest::NatCounters)),
    topic("firewall", false, || Request::Packets(PacketRequest::FirewallCounters)),
    topic("firewall-rules", true, || Request::Packets(PacketRequest::FirewallRules)),
    topic("flows", false, || Request::Packets(PacketRequest::FlowCache)),
    topic("forwarding", false, || Request::Forwarding),
    topic("checks", true, || Request::Packets(PacketRequest::GatewayChecks)),
    topic("vrrp", true, || Request::Packets(PacketRequest::VirtualRouters)),
    topic("standby", true, || Request::Packets(PacketRequest::Standby)),
    topic("rpki", false, || Request::Bgp(BgpRequest::Rpki)),
];

/// A yes or no for each topic.
type Topics = [bool; TOPICS_COUNT];

/// All streams, and the thread that feeds them. It runs until dropped.
pub(crate) struct Events {
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    streams: Vec<Stream>,
    is_over: bool,
}

/// A client that watches.
struct Stream {
    wants: Topics,
    /// Topics of which it knows that the router has none.
    knows_absent: Topics,
    sender: mpsc::Sender<Bytes>,
    waiting: Arc<AtomicUsize>,
    /// It has had nothing yet.
    is_new: bool,
    last: Instant,
}

impl Stream {
    /// Whether the client still takes events; counts one that is too far behind.
    fn send(&mut self, bytes: &Bytes, now: Instant, counters: &Counters) -> bool {
        let behind = self.waiting.fetch_add(bytes.len(), Ordering::AcqRel) + bytes.len();
        let is_behind = behind > BEHIND_BYTES_MAX && behind > bytes.len();
        let error = match is_behind {
            true => true,
            false => match self.sender.try_send(bytes.clone()) {
                Ok(()) => false,
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
                Err(mpsc::error::TrySendError::Full(_)) => true,
            },
        };
        if error {
            counters.cut(Cut::Behind);
        }
        self.last = now;
        !error
    }
}

impl Events {
    pub(crate) fn start(
        router: PathBuf,
        clock: fn() -> u64,
        counters: Arc<Counters>,
    ) -> io::Result<Arc<Self>> {
        let state = Arc::<(Mutex<State>, Condvar)>::default();
        let feed = Feed { router, clock, counters, state: state.clone(), conversation: None };
        thread::Builder::new().name("web-events".to_owned()).spawn(move || feed.run())?;
        Ok(Arc::new(Self { state }))
    }

    /// A new stream of these topics, with commas between them; without any, of all.
    pub(crate) fn subscribe(&self, topics: Option<&str>) -> Result<Body, Problem> {
        let mut wants = [topics.is_none(); TOPICS_COUNT];
        for name in topics.iter().flat_map(|topics| topics.split(',')) {
            let place = TOPICS.iter().position(|topic| topic.name == name);
            let place = place.ok_or_else(|| {
                let names: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
                Problem::bad(format!("topics: expected some of {}", names.join(",")))
            })?;
            wants[place] = true;
        }
        let (sender, events) = mpsc::channel(WAITING_MAX);
        let waiting = Arc::<AtomicUsize>::default();
        let (lock, wake) = &*self.state;
        let mut state = lock.lock();
        state.streams.retain(|stream| !stream.sender.is_closed());
        if state.streams.len() >= STREAMS_MAX {
            return Err(Problem::new(ProblemKind::Busy, format!("{STREAMS_MAX} streams of events are open")));
        }
        let (knows_absent, last) = ([false; TOPICS_COUNT], Instant::now());
        let first = Bytes::from_static(b"retry: 2000\n\n");
        waiting.fetch_add(first.len(), Ordering::AcqRel);
        // The channel is empty.
        let _ = sender.try_send(first);
        state.streams.push(Stream {
            wants,
            knows_absent,
            sender,
            waiting: waiting.clone(),
            is_new: true,
            last,
        });
        wake.notify_one();
        Ok(Body::Events(events, waiting))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let (lock, wake) = &*self.state;
        lock.lock().is_over = true;
        wake.notify_one();
    }
}

/// The thread that asks the router and feeds all streams.
struct Feed {
    router: PathBuf,
    clock: fn() -> u64,
    counters: Arc<Counters>,
    state: Arc<(Mutex<State>, Condvar)>,
    conversation: Option<Client>,
}

/// What the router said about a topic.
enum Said {
    Views(Bytes),
    Absent(Bytes),
    /// It does not answer; the whole tick is lost.
    Gone(Bytes),
}

impl Feed {
    fn run(mut self) {
        let mut next = Instant::now();
        while let Some((topics, is_tick)) = self.wait(next) {
            let said = self.ask_all(topics);
            let now = Instant::now();
            self.deliver(&said, is_tick, now);
            if is_tick {
                // After a pause the ticks before it are not made up for.
                next = (next + TICK).max(now);
            }
        }
    }

    /// Waits for the next tick or a new stream. Returns the topics wanted, and whether it is a tick, for everybody;
    /// `None` at the end.
    fn wait(&mut self, next: Instant) -> Option<(Topics, bool)> {
        let (lock, wake) = &*self.state;
        let mut state = lock.lock();
        loop {
            if state.is_over {
                return None;
            }
            state.streams.retain(|stream| !stream.sender.is_closed());
            let is_tick = Instant::now() >= next;
            let mut wanted = [false; TOPICS_COUNT];
            for stream in state.streams.iter().filter(|stream| is_tick || stream.is_new) {
                wanted.iter_mut().zip(stream.wants).for_each(|(wanted, wants)| *wanted |= wants);
            }
            match state.streams.is_empty() {
                // Nobody watches: the router is left in peace.
                true => {
                    self.conversation = None;
                    wake.wait(&mut state);
                }
                false if wanted.contains(&true) => return Some((wanted, is_tick)),
                false => {
                    wake.wait_until(&mut state, next);
                }
            }
        }
    }

    fn ask_all(&mut self, topics: Topics) -> Vec<Option<Said>> {
        let mut said: Vec<Option<Said>> = Vec::with_capacity(TOPICS_COUNT);
        for (topic, is_wanted) in TOPICS.iter().zip(topics) {
            let is_lost = said.iter().any(|said| matches!(said, Some(Said::Gone(_))));
            said.push((is_wanted && !is_lost).then(|| self.ask(topic)));
        }
        said
    }

    fn ask(&mut self, topic: &Topic) -> Said {
        let time = format_time((self.clock)() / 1_000_000 * 1_000_000);
        let mut items = String::new();
        let conversation = match self.conversation.take() {
            Some(conversation) => Ok(conversation),
            None => connect(&self.router),
        };
        let result = conversation.and_then(|mut router| {
            let result = router.ask(&(topic.request)(), |item| {
                if !items.is_empty() {
                    items.push(',');
                }
                items.push_str(item);
                ControlFlow::<()>::Continue(())
            });
            let result = result.map_err(Problem::from);
            // After what the router says of a request, the connection is good for the next.
            let is_good = !result.as_ref().is_err_and(is_gone);
            self.conversation = is_good.then_some(router);
            result
        });
        let event = |name: &str, data: String| Bytes::from(format!("event: {name}\ndata: {data}\n\n"));
        match result {
            Ok(_) => {
                let (name, open, close) = if topic.is_list { ("items", "[", "]") } else { ("item", "", "") };
                let items = if items.is_empty() && !topic.is_list { "null" } else { &items };
                let data = format!("{{\"time\":\"{time}\",\"{name}\":{open}{items}{close}}}");
                Said::Views(event(topic.name, data))
            }
            Err(problem) if is_gone(&problem) => {
                Said::Gone(event("gone", json!({ "time": time, "detail": problem.detail }).to_string()))
            }
            Err(problem) => Said::Absent(event(
                "absent",
                json!({ "topic": topic.name, "detail": problem.detail }).to_string(),
            )),
        }
    }

    fn deliver(&self, said: &[Option<Said>], is_tick: bool, now: Instant) {
        let counters = &self.counters;
        let gone = said.iter().flatten().find_map(|said| match said {
            Said::Gone(event) => Some(event),
            _ => None,
        });
        self.state.0.lock().streams.retain_mut(|stream| {
            if !is_tick && !stream.is_new {
                return true;
            }
            stream.is_new = false;
            if let Some(event) = gone {
                stream.knows_absent = [false; TOPICS_COUNT];
                return stream.send(event, now, counters);
            }
            let wants = stream.wants;
            for (place, said) in said.iter().enumerate().filter(|(place, _)| wants[*place]) {
                let event = match said {
                    Some(Said::Views(event)) => {
                        stream.knows_absent[place] = false;
                        event
                    }
                    Some(Said::Absent(event)) if !stream.knows_absent[place] => {
                        stream.knows_absent[place] = true;
                        event
                    }
                    _ => continue,
                };
                if !stream.send(event, now, counters) {
                    return false;
                }
            }
            let is_quiet = now.saturating_duration_since(stream.last) >= COMMENT_EVERY;
            !is_quiet || stream.send(&Bytes::from_static(b":\n\n"), now, counters)
        });
    }
}

/// Whether the router does not answer at all.
fn is_gone(problem: &Problem) -> bool {
    matches!(problem.kind, ProblemKind::NoRouter | ProblemKind::Busy | ProblemKind::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(sender: mpsc::Sender<Bytes>) -> Stream {
        let (wants, last) = ([true; TOPICS_COUNT], Instant::now());
        Stream {
            wants,
            knows_absent: [false; TOPICS_COUNT],
            sender,
            waiting: Arc::default(),
            is_new: true,
            last,
        }
    }

    #[test]
    fn the_page_about_the_api_names_the_topics() {
        let page = include_str!("../../../docs/api.md");
        let line =
            page.split("\n\n").find_map(|text| text.strip_prefix("Topics of `events`:")).expect("topics");
        let named: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        assert!(named.into_iter().eq(TOPICS.iter().map(|topic| topic.name)));
    }

    #[test]
    fn a_client_that_is_behind_is_cut_and_counted() {
        let counters = Counters::default();
        let cut = || counters.cuts().find(|(name, _)| *name == Cut::Behind.name()).map(|(_, number)| number);
        let (sender, mut events) = mpsc::channel(WAITING_MAX);
        let mut stream = stream(sender);
        let event = Bytes::from(vec![b'x'; BEHIND_BYTES_MAX / 4]);
        let now = Instant::now();
        assert_eq!((0..5).filter(|_| stream.send(&event, now, &counters)).count(), 4);
        assert_eq!(cut(), Some(1));
        // What it takes makes room again: the body counts it.
        events.close();
        assert!(!stream.send(&event, now, &counters));
    }

    /// The first large view must reach everybody, or nobody could watch a router with many neighbors.
    #[test]
    fn one_event_may_be_larger_than_the_limit() {
        let (sender, _events) = mpsc::channel(WAITING_MAX);
        let large = Bytes::from(vec![b'x'; 2 * BEHIND_BYTES_MAX]);
        let mut stream = stream(sender);
        assert!(stream.send(&large, Instant::now(), &Counters::default()));
        assert!(!stream.send(&large, Instant::now(), &Counters::default()));
    }
}
