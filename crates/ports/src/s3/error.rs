//! What a store of objects refuses, in words that say what to do.

use std::io;
use std::path::PathBuf;

use crate::webhook::WebhookError;

/// The longest reason of a store that is passed on.
const REASON_MAX: usize = 200;

/// Why a request to a bucket failed.
#[derive(Debug, thiserror::Error)]
pub enum S3Error {
    #[error("{text}: {what}")]
    Address { text: String, what: String },
    #[error(
        "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add ?credentials_file=FILE to the \
         address"
    )]
    NoCredentials,
    #[error("{}: {what}", .path.display())]
    CredentialsFile { path: PathBuf, what: String },
    #[error("the endpoint of S3: {0}")]
    Endpoint(#[from] WebhookError),
    /// No answer: the store may be back later.
    #[error("{server} does not answer: {source}")]
    Silent { server: String, source: io::Error },
    #[error("{bucket}: {}", refusal(*.status, .code, .text))]
    Refused {
        /// With the prefix.
        bucket: String,
        status: u16,
        /// The store's word for it, if it has one.
        code: String,
        text: String,
    },
    #[error(
        "{0}: an object of this name has another content: does another dataset use the same prefix? Each needs its own"
    )]
    Taken(String),
    #[error("{key}: the store has {found}, not what was sent ({sent}): it will be sent again")]
    Differs { key: String, found: String, sent: String },
    #[error("cannot read {}: {source}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{0}: the answer is not S3's")]
    Strange(String),
}

impl S3Error {
    /// Whether there is no such object.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { status: 404, code, .. } if code != "NoSuchBucket")
    }

    /// Whether the same request may succeed in a moment.
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::Silent { .. } => true,
            Self::Refused { status, code, .. } => {
                *status >= 500 || *status == 429 || code == "RequestTimeout"
            }
            _ => false,
        }
    }
}

/// The reason and what to do.
fn refusal(status: u16, code: &str, text: &str) -> String {
    let advice = match (status, code) {
        (_, "RequestTimeTooSkewed") => "this host's clock is wrong, or the store's: set it (NTP)",
        (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch") => {
            "the credentials are wrong: see AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or credentials_file"
        }
        (_, "ExpiredToken" | "InvalidToken") => "the session's token has ended: get a new AWS_SESSION_TOKEN",
        (_, "NoSuchBucket") => "there is no such bucket: make it, or correct the address",
        (301 | 307, _) | (_, "PermanentRedirect" | "AuthorizationHeaderMalformed") => {
            "the bucket is elsewhere: give its region (?region=NAME) or endpoint"
        }
        (403, _) => {
            "not allowed: the credentials need s3:ListBucket, s3:GetObject and, to archive, s3:PutObject (to remove, too, \
             s3:DeleteObject) for this bucket; if they do, look at the host's clock"
        }
        (404, _) => "there is no such object",
        (429 | 503, _) => "the store is busy",
        (500.., _) => "the store has a problem of its own",
        _ => "the store refuses",
    };
    let name = if code.is_empty() { format!("status {status}") } else { format!("{code}, status {status}") };
    let short: String = text.chars().take(REASON_MAX).collect();
    if short.is_empty() { format!("{advice} ({name})") } else { format!("{advice} ({name}: {short})") }
}
