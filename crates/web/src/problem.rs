//! Problem documents (RFC 9457): why a request is not answered.

use hyper::StatusCode;
use serde_json::json;
use thalweg_node::control::RefusalKind;

thalweg_base::words! {
    /// The kinds of problems; their words are part of the API.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum ProblemKind {
        BadRequest => "bad-request",
        NoToken => "no-token",
        Forbidden => "forbidden",
        NotFound => "not-found",
        /// The router has no such part.
        Absent => "absent",
        WrongMethod => "wrong-method",
        TooSlow => "too-slow",
        /// The router understood, and refuses.
        Refused => "refused",
        TooLarge => "too-large",
        WrongType => "wrong-type",
        /// The header `Host` names somebody else.
        Misdirected => "misdirected",
        TooMany => "too-many",
        Failed => "failed",
        /// The router does not answer.
        NoRouter => "no-router",
        Busy => "busy",
    }
}

impl ProblemKind {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::NoToken => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound | Self::Absent => StatusCode::NOT_FOUND,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Refused => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::WrongType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NoRouter | Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) kind: ProblemKind,
    /// In words, for the client.
    pub(crate) detail: String,
    /// Seconds after which another try makes sense.
    pub(crate) retry_s: Option<u32>,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        let retry_s =
            matches!(kind, ProblemKind::TooMany | ProblemKind::Busy | ProblemKind::NoRouter).then_some(1);
        Self { kind, detail: detail.into(), retry_s }
    }

    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::BadRequest, detail)
    }

    pub(crate) fn failed(why: impl ToString) -> Self {
        Self::new(ProblemKind::Failed, why.to_string())
    }

    /// What the router said.
    pub(crate) fn of_router(kind: RefusalKind, text: String) -> Self {
        let kind = match kind {
            RefusalKind::BadRequest => ProblemKind::BadRequest,
            RefusalKind::Absent => ProblemKind::Absent,
            RefusalKind::NotFound => ProblemKind::NotFound,
            RefusalKind::Refused => ProblemKind::Refused,
            RefusalKind::Busy => ProblemKind::Busy,
        };
        Self::new(kind, text)
    }

    /// The document.
    pub(crate) fn to_json(&self) -> String {
        let status = self.kind.status();
        json!({
            "type": format!("urn:thalweg:problem:{}", self.kind),
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": self.detail,
        })
        .to_string()
    }
}
