//! A request from its head to its answer: who asks, for what, and may they.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HOST,
    HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, ORIGIN, REFERRER_POLICY, RETRY_AFTER, SET_COOKIE,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use thalweg_base::DropReason;
use thalweg_config::WebConfig;
use tokio::sync::Semaphore;

use crate::answer::{Form, Outlet, Page, answer};
use crate::assets;
use crate::body::Body;
use crate::clients::{Clients, Listing};
use crate::counters::Counters;
use crate::events::Events;
use crate::flows::{self, FlowsKind};
use crate::hosts::Hosts;
use crate::limits::{ANSWER_WAIT, ANSWERS_MAX, BODY_BYTES_MAX, BODY_MAX, LIST_MAX};
use crate::metrics::Metrics;
use crate::problem::{Problem, ProblemKind};
use crate::query::{read_body, read_query};
use crate::rights::{COOKIE_NAME, Grant, Rights, Via};
use crate::routes::{ASSETS, Call, Does, Own, Row, capture, find, has_cursor};
use crate::{WebOptions, check, download, reports};

const OPENAPI: &str = include_str!("openapi.json");

const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                   base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

/// What all connections share.
pub(crate) struct Server {
    pub(crate) options: WebOptions,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) events: Arc<Events>,
    /// Neighbors that the looking glass does not show.
    pub(crate) hidden: Vec<String>,
    /// The folder of the laboratory's reports.
    reports: Option<PathBuf>,
    rights: Rights,
    hosts: Hosts,
    metrics: Arc<Metrics>,
    answers: Arc<Semaphore>,
}

/// An answer before it is one of HTTP's.
pub(crate) struct Reply {
    status: StatusCode,
    kind: &'static str,
    body: Body,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Reply {
    pub(crate) fn new(kind: &'static str, body: Body) -> Self {
        Self { status: StatusCode::OK, kind, body, headers: Vec::new() }
    }

    pub(crate) fn json(value: &impl serde::Serialize) -> Self {
        Self::new(JSON, Body::whole(serde_json::to_vec(value).unwrap_or_default()))
    }

    fn with(mut self, name: HeaderName, value: impl AsRef<str>) -> Self {
        // Values are ours, or were checked; one that no header can carry is left out.
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.push((name, value));
        }
        self
    }
}

impl From<&Problem> for Reply {
    fn from(problem: &Problem) -> Self {
        let body = Body::whole(problem.to_json());
        let mut reply = Self { status: problem.kind.status(), ..Self::new("application/problem+json", body) };
        if let Some(seconds) = problem.retry_s {
            reply = reply.with(RETRY_AFTER, seconds.to_string());
        }
        match problem.kind {
            ProblemKind::NoToken => reply.with(WWW_AUTHENTICATE, "Bearer"),
            ProblemKind::WrongMethod => {
                let methods =
                    problem.detail.strip_prefix("expected ").unwrap_or_default().replace(" or ", ", ");
                reply.with(ALLOW, methods)
            }
            _ => reply,
        }
    }
}

/// A request as far as its head goes.
pub(crate) struct Head {
    pub(crate) via: Via,
    pub(crate) method: Method,
    pub(crate) path: String,
    query: String,
    pub(crate) headers: HeaderMap,
}

impl Server {
    pub(crate) fn new(config: &WebConfig, options: WebOptions) -> std::io::Result<Self> {
        let counters = Arc::<Counters>::default();
        let clock = options.wall_ns;
        Ok(Self {
            rights: Rights::new(config.tokens.clone())?,
            hosts: Hosts::new(&config.hosts),
            hidden: config.looking_glass_hidden.clone(),
            reports: config.reports.clone(),
            clients: Arc::default(),
            events: Events::start(options.router.clone(), clock, counters.clone())?,
            metrics: Arc::new(Metrics::new(options.router.clone(), options.version, counters.clone())),
            answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
            counters,
            options,
        })
    }

    /// Answers a request of the API.
    pub(crate) async fn serve(self: Arc<Self>, via: Via, request: Request<Incoming>) -> Response<Body> {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let (parts, body) = request.into_parts();
        let head = Head {
            via,
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: parts.headers,
        };
        let result = self.reply(&head, body).await;
        self.respond(result)
    }

    /// The response for a reply or a problem, which is counted.
    pub(crate) fn respond(&self, result: Result<Reply, Problem>) -> Response<Body> {
        let reply = result.unwrap_or_else(|problem| {
            self.counters.problem(problem.kind);
            Reply::from(&problem)
        });
        let mut response = Response::new(reply.body);
        *response.status_mut() = reply.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.kind));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CSP));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in reply.headers {
            headers.insert(name, value);
        }
        response
    }

    async fn reply(&self, head: &Head, body: Incoming) -> Result<Reply, Problem> {
        self.check_host(head.via, &head.headers)?;
        if let Some(asset) = asset_name(&head.path) {
            return asset_reply(head, asset);
        }
        let (row, place) = find(&head.method, &head.path)?;
        self.check_rate(head.via)?;
        let grant = self.rights.of(head.via, &head.headers);
        check_right(row, &grant)?;
        let is_get = row.method == Method::GET;
        if !is_get {
            check_origin(head)?;
        }
        let values = match row.method == Method::POST {
            true => {
                check_type(head)?;
                read_query(&head.query, &[])?;
                read_body(&read_all(body).await?, row.params)?
            }
            false => read_query(&head.query, row.params)?,
        };
        let call = Call { place, values };
        match row.does {
            Does::One(ask) => self.ask(head, ask(&call)?, Form::One).await,
            Does::Part(ask, name) => self.ask(head, ask(&call)?, Form::Part(name)).await,
            Does::Named(ask, name) => self.ask(head, ask(&call)?, Form::Named(name)).await,
            Does::Done(ask) => self.ask(head, ask(&call)?, Form::Done).await,
            Does::List(ask) => self.list(head, &call, ask(&call)?, false).await,
            Does::Paged(ask) => {
                let has_cursor = has_cursor(&call);
                self.list(head, &call, ask(&call)?, has_cursor).await
            }
            Does::Own(own) => self.own(own, head, &call, grant).await,
        }
    }

    async fn list(
        &self,
        head: &Head,
        call: &Call,
        request: thalweg_node::control::Request,
        has_cursor: bool,
    ) -> Result<Reply, Problem> {
        let limit = call.number("limit").map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        if limit.is_some_and(|limit| !(1..=LIST_MAX).contains(&limit)) {
            return Err(Problem::bad(format!("limit: expected 1 to {LIST_MAX}")));
        }
        let page = Page { limit, has_cursor };
        let wants_lines = accepts(&head.headers, NDJSON);
        let form = if wants_lines { Form::Lines(page) } else { Form::List(page) };
        self.ask(head, request, form).await
    }

    /// Asks the router on a thread of its own.
    async fn ask(
        &self,
        head: &Head,
        request: thalweg_node::control::Request,
        form: Form,
    ) -> Result<Reply, Problem> {
        let listing = match (&form, head.via) {
            (Form::List(_) | Form::Lines(_), Via::Tcp { client, .. }) => Some(self.listing(client)?),
            _ => None,
        };
        let kind = if matches!(form, Form::Lines(_)) { NDJSON } else { JSON };
        let socket = self.options.router.clone();
        let body = self.on_thread(move |mut outlet| {
            outlet.is_list(listing);
            answer(&socket, &request, &form, outlet);
        });
        Ok(Reply::new(kind, body.await?))
    }

    pub(crate) fn listing(&self, client: std::net::IpAddr) -> Result<Listing, Problem> {
        self.clients.list(client, Instant::now()).ok_or_else(|| {
            Problem::new(ProblemKind::TooMany, "another list is being made for this client: one at a time")
        })
    }

    /// Runs `work` on one of the threads for answers; returns the body when it has begun.
    pub(crate) async fn on_thread(
        &self,
        work: impl FnOnce(Outlet) + Send + 'static,
    ) -> Result<Body, Problem> {
        let waiting = tokio::time::timeout(ANSWER_WAIT, self.answers.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = waiting else {
            return Err(Problem::new(
                ProblemKind::Busy,
                format!("{ANSWERS_MAX} answers are being made; try again"),
            ));
        };
        let (outlet, begun) = Outlet::new();
        tokio::task::spawn_blocking(move || {
            work(outlet);
            drop(permit);
        });
        begun.await.unwrap_or_else(|_| Err(Problem::failed("the answer was given up")))
    }

    async fn own(&self, own: Own, head: &Head, call: &Call, grant: Grant) -> Result<Reply, Problem> {
        match own {
            Own::Health => Ok(Reply::json(&json!({ "ok": true }))),
            Own::Ready => {
                self.ask(head, thalweg_node::control::Request::Status, Form::One).await?;
                Ok(Reply::json(&json!({ "ok": true })))
            }
            Own::OpenApi => Ok(Reply::new(JSON, Body::whole(Bytes::from_static(OPENAPI.as_bytes())))),
            Own::DropReasons => {
                let reasons = DropReason::ALL.iter();
                let items = reasons.map(|each| json!({ "name": each.name(), "meaning": each.meaning() }));
                Ok(Reply::json(&json!({ "items": items.collect::<Vec<_>>(), "cursor": null })))
            }
            Own::Session => Ok(Reply::json(&grant)),
            Own::SessionBegin => self.begin_session(head, call),
            Own::SessionEnd => {
                let empty = self.rights.of(head.via, &HeaderMap::new());
                Ok(Reply::json(&empty).with(SET_COOKIE, cookie("", head.via) + "; Max-Age=0"))
            }
            Own::Events => {
                self.events.subscribe(call.text("topics")).map(|body| Reply::new("text/event-stream", body))
            }
            Own::Metrics => {
                let (metrics, is_open) =
                    (self.metrics.clone(), accepts(&head.headers, "application/openmetrics-text"));
                let body = self.on_thread(move |outlet| metrics.answer(is_open, outlet)).await?;
                Ok(Reply::new(Metrics::kind(is_open), body))
            }
            Own::Reports => {
                let folder = self.reports()?;
                let body = self.on_thread(move |outlet| reports::list(&folder, outlet)).await?;
                Ok(Reply::new(JSON, body))
            }
            Own::Report => {
                let body = self.report(call, reports::PAGE).await?;
                let reply = Reply::new("text/html; charset=utf-8", body);
                Ok(reply.with(CONTENT_SECURITY_POLICY, reports::SANDBOX))
            }
            Own::ReportResults => Ok(Reply::new(JSON, self.report(call, reports::RESULTS).await?)),
            Own::FlowsTop => self.flows(call, FlowsKind::Top).await,
            Own::FlowsList => self.flows(call, FlowsKind::List).await,
            Own::FlowsGraph => self.flows(call, FlowsKind::Graph).await,
            Own::FlowsStats => self.flows(call, FlowsKind::Stats).await,
            Own::FlowsWords => Ok(Reply::json(&flows::words())),
            Own::ConfigCheck => {
                let text =
                    call.text("text").ok_or_else(|| Problem::bad("text is missing: a configuration"))?;
                let text = text.to_owned();
                let body = self.on_thread(move |outlet| check::answer(&text, outlet)).await?;
                Ok(Reply::new(JSON, body))
            }
            Own::Capture => {
                let (request, socket) = (capture(call)?, self.options.router.clone());
                let body = self.on_thread(move |outlet| download::capture(&socket, &request, outlet)).await?;
                let reply = Reply::new("application/vnd.tcpdump.pcap", body);
                Ok(reply.with(CONTENT_DISPOSITION, "attachment; filename=\"capture.pcapng\""))
            }
        }
    }

    async fn flows(&self, call: &Call, kind: FlowsKind) -> Result<Reply, Problem> {
        let folder: PathBuf = self.options.store.clone().ok_or_else(|| {
            Problem::new(ProblemKind::Absent, "no flow records are kept here: [flows] has no `store`")
        })?;
        let question = flows::Question::new(call, kind, (self.options.wall_ns)())?;
        let body = self.on_thread(move |outlet| question.answer(&folder, outlet)).await?;
        Ok(Reply::new(JSON, body))
    }

    fn reports(&self) -> Result<PathBuf, Problem> {
        let none = || Problem::new(ProblemKind::Absent, "no reports are served here: [web] has no `reports`");
        self.reports.clone().ok_or_else(none)
    }

    async fn report(&self, call: &Call, file: &'static str) -> Result<Body, Problem> {
        let (folder, name) = (self.reports()?, call.place.clone());
        self.on_thread(move |outlet| reports::send(&folder, &name, file, outlet)).await
    }

    fn begin_session(&self, head: &Head, call: &Call) -> Result<Reply, Problem> {
        let secret = call.text("token").unwrap_or_default();
        let grant = self.rights.of_token(secret).ok_or_else(|| no_token("this is no token"))?;
        Ok(Reply::json(&grant).with(SET_COOKIE, cookie(secret, head.via)))
    }

    /// Refuses names that are not ours: a page of another server may have made its own name lead here.
    pub(crate) fn check_host(&self, via: Via, headers: &HeaderMap) -> Result<(), Problem> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        match via == Via::Unix || self.hosts.has(host) {
            true => Ok(()),
            false => Err(Problem::new(
                ProblemKind::Misdirected,
                "this name is not one of this server's: [web] hosts lists them",
            )),
        }
    }

    pub(crate) fn check_rate(&self, via: Via) -> Result<(), Problem> {
        match via {
            Via::Tcp { client, .. } if !self.clients.may_ask(client, Instant::now()) => {
                Err(Problem::new(ProblemKind::TooMany, "too many requests; wait a second"))
            }
            _ => Ok(()),
        }
    }
}

fn check_right(row: &Row, grant: &Grant) -> Result<(), Problem> {
    match (row.needs, grant.may) {
        (None, _) => Ok(()),
        (Some(needs), Some(may)) if may >= needs => Ok(()),
        (Some(needs), Some(may)) => Err(Problem::new(
            ProblemKind::Forbidden,
            format!("this needs the right \"{}\"; you have \"{}\"", needs.name(), may.name()),
        )),
        (Some(_), None) => Err(no_token("this needs a token")),
    }
}

fn no_token(detail: &str) -> Problem {
    Problem::new(ProblemKind::NoToken, detail)
}

/// A browser names the page that a request comes from; that must be ours.
fn check_origin(head: &Head) -> Result<(), Problem> {
    let text = |name| head.headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    let Some(origin) = text(ORIGIN) else { return Ok(()) };
    let from = origin.split_once("://").map(|(_, host)| host);
    match from.is_some() && from == text(HOST) {
        true => Ok(()),
        false => Err(Problem::new(ProblemKind::Forbidden, "the request comes from a page of another server")),
    }
}

fn check_type(head: &Head) -> Result<(), Problem> {
    let kind = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind.eq_ignore_ascii_case(JSON) {
        true => Ok(()),
        false => Err(Problem::new(ProblemKind::WrongType, "expected Content-Type: application/json")),
    }
}

/// The whole body, if it is small and comes in time.
async fn read_all(mut body: Incoming) -> Result<Vec<u8>, Problem> {
    let read = async {
        let mut bytes = Vec::new();
        while let Some(frame) = next_frame(&mut body).await {
            let frame = frame.map_err(|error| Problem::bad(format!("the body broke off: {error}")))?;
            if let Ok(data) = frame.into_data() {
                if bytes.len() + data.len() > BODY_BYTES_MAX {
                    let detail = format!("the body has more than {BODY_BYTES_MAX} bytes");
                    return Err(Problem::new(ProblemKind::TooLarge, detail));
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(bytes)
    };
    let late = |_| {
        Err(Problem::new(ProblemKind::TooSlow, format!("the body took more than {} s", BODY_MAX.as_secs())))
    };
    tokio::time::timeout(BODY_MAX, read).await.unwrap_or_else(late)
}

async fn next_frame(body: &mut Incoming) -> Option<hyper::Result<hyper::body::Frame<Bytes>>> {
    std::future::poll_fn(|context| hyper::body::Body::poll_frame(std::pin::Pin::new(&mut *body), context))
        .await
}

/// Whether a client asks for this type of answer by name.
fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|each| {
        let name = each.split(';').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case(kind)
    })
}

/// The cookie of a token; no script can read it, and no other page's request carries it.
fn cookie(secret: &str, via: Via) -> String {
    let secure = if matches!(via, Via::Tcp { is_tls: true, .. }) { "; Secure" } else { "" };
    format!("{COOKIE_NAME}={secret}; Path=/; HttpOnly; SameSite=Strict{secure}")
}

/// The name of the asset that a path asks for.
fn asset_name(path: &str) -> Option<&str> {
    if path == "/" { Some("index.html") } else { path.strip_prefix(ASSETS) }
}

fn asset_reply(head: &Head, name: &str) -> Result<Reply, Problem> {
    if ![Method::GET, Method::HEAD].contains(&head.method) {
        return Err(Problem::new(ProblemKind::WrongMethod, "expected GET"));
    }
    let asset =
        assets::find(name).ok_or_else(|| Problem::new(ProblemKind::NotFound, "there is no such file"))?;
    let is_same =
        head.headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == asset.etag.as_bytes());
    let (status, body) = match is_same {
        true => (StatusCode::NOT_MODIFIED, Body::Whole(None)),
        false => (StatusCode::OK, Body::whole(asset.bytes)),
    };
    let reply = Reply { status, ..Reply::new(asset.kind, body) };
    Ok(reply.with(ETAG, asset.etag).with(CACHE_CONTROL, "no-cache"))
}
