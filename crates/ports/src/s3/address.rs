//! Where a bucket is, in one line: `s3://BUCKET/PREFIX?endpoint=URL&region=NAME&credentials_file=FILE`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::S3Error;

/// Where distributions' tools look first.
const REGION_DEFAULT: &str = "us-east-1";
const OPTIONS: &str =
    "endpoint=URL, region=NAME, style=path or host, credentials_file=FILE, profile=NAME, tls_ca=FILE";

/// Where objects are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Address {
    pub bucket: String,
    /// Without a slash at either end; may be empty.
    pub prefix: String,
    /// `http://` or `https://`; by default Amazon's.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// The bucket is in the path and not in the host's name. By default for all but Amazon's endpoints.
    pub is_in_path: Option<bool>,
    /// In the form of `~/.aws/credentials`; by default the environment.
    pub credentials_file: Option<PathBuf>,
    pub profile: Option<String>,
    /// Authorities of the endpoint's certificate, in PEM; by default the system's.
    pub authorities: Option<PathBuf>,
}

impl S3Address {
    /// Whether a text is meant to be one.
    pub fn is_meant_by(text: &str) -> bool {
        text.starts_with("s3:")
    }

    /// The file that credentials come from because the environment names it, and neither the address nor the environment
    /// has others.
    pub fn credentials_file_of_environment(&self) -> Option<PathBuf> {
        match Source::of(self, &|name| std::env::var(name).ok()) {
            Source::VariableFile(path) => Some(path),
            _ => None,
        }
    }
}

impl FromStr for S3Address {
    type Err = S3Error;

    fn from_str(text: &str) -> Result<Self, S3Error> {
        let wrong = |what: &str| S3Error::Address { text: text.to_owned(), what: what.to_owned() };
        let rest = text.strip_prefix("s3://").ok_or_else(|| wrong("expected s3://BUCKET/PREFIX"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if bucket.is_empty() || !bucket.chars().all(is_name) {
            return Err(wrong("expected the name of a bucket behind s3://: letters, digits, - and ."));
        }
        let prefix = prefix.trim_matches('/');
        if prefix.split('/').any(|part| part == "." || part == "..") || prefix.contains("//") {
            return Err(wrong("expected a prefix like site/flows, without empty parts, . and .."));
        }
        let mut address = Self {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            endpoint: None,
            region: None,
            is_in_path: None,
            credentials_file: None,
            profile: None,
            authorities: None,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if value.is_empty() {
                return Err(wrong(&format!("`{pair}`: expected {OPTIONS}")));
            }
            match name {
                "endpoint" if value.starts_with("http://") || value.starts_with("https://") => {
                    address.endpoint = Some(value.trim_end_matches('/').to_owned());
                }
                "endpoint" => return Err(wrong("endpoint: expected http://HOST:PORT or https://HOST")),
                "region" => address.region = Some(value.to_owned()),
                "style" if ["path", "host"].contains(&value) => address.is_in_path = Some(value == "path"),
                "credentials_file" => address.credentials_file = Some(value.into()),
                "profile" => address.profile = Some(value.to_owned()),
                "tls_ca" => address.authorities = Some(value.into()),
                _ => return Err(wrong(&format!("`{pair}`: expected {OPTIONS}"))),
            }
        }
        Ok(address)
    }
}

/// What comes from the environment unless the address says it.
pub(super) struct Settings {
    pub(super) endpoint: String,
    pub(super) region: String,
    pub(super) is_in_path: bool,
    pub(super) credentials: Credentials,
}

#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) access_key: String,
    pub(super) secret_key: String,
    pub(super) token: Option<String>,
}

impl Settings {
    pub(super) fn of(
        address: &S3Address,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, S3Error> {
        let first =
            |names: &[&str]| names.iter().find_map(|name| variable(name).filter(|text| !text.is_empty()));
        let region = address.region.clone().or_else(|| first(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
        let region = region.unwrap_or_else(|| REGION_DEFAULT.to_owned());
        let given = address.endpoint.clone().or_else(|| first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]));
        let is_in_path = address.is_in_path.unwrap_or(given.is_some() || address.bucket.contains('.'));
        let endpoint = given.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let credentials = match Source::of(address, variable) {
            Source::AddressFile(path) => {
                Credentials::of_file(&path, address.profile.as_deref().unwrap_or("default"))?
            }
            Source::Keys(access_key, secret_key) => {
                Credentials { access_key, secret_key, token: first(&["AWS_SESSION_TOKEN"]) }
            }
            Source::VariableFile(path) => {
                let profile = address.profile.clone().or_else(|| first(&["AWS_PROFILE"]));
                Credentials::of_file(&path, profile.as_deref().unwrap_or("default"))?
            }
            Source::Nowhere => return Err(S3Error::NoCredentials),
        };
        Ok(Self { endpoint, region, is_in_path, credentials })
    }
}

/// Where credentials come from.
enum Source {
    AddressFile(PathBuf),
    /// The access key and the secret key in the environment.
    Keys(String, String),
    VariableFile(PathBuf),
    Nowhere,
}

impl Source {
    fn of(address: &S3Address, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| variable(name).filter(|text| !text.is_empty());
        if let Some(path) = &address.credentials_file {
            return Self::AddressFile(path.clone());
        }
        if let Some((access_key, secret_key)) = value("AWS_ACCESS_KEY_ID").zip(value("AWS_SECRET_ACCESS_KEY"))
        {
            return Self::Keys(access_key, secret_key);
        }
        value("AWS_SHARED_CREDENTIALS_FILE").map_or(Self::Nowhere, |path| Self::VariableFile(path.into()))
    }
}

impl Credentials {
    fn of_file(path: &Path, profile: &str) -> Result<Self, S3Error> {
        let wrong = |what: String| S3Error::CredentialsFile { path: path.to_path_buf(), what };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::of_text(&text, profile).ok_or_else(|| {
            wrong(format!("expected aws_access_key_id and aws_secret_access_key below [{profile}]"))
        })
    }

    fn of_text(text: &str, profile: &str) -> Option<Self> {
        let (mut is_ours, mut access_key, mut secret_key, mut token) = (false, None, None, None);
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                is_ours = name.trim() == profile;
            } else if let Some((name, value)) = line.split_once('=').filter(|_| is_ours) {
                match name.trim() {
                    "aws_access_key_id" => access_key = Some(value.trim().to_owned()),
                    "aws_secret_access_key" => secret_key = Some(value.trim().to_owned()),
                    "aws_session_token" => token = Some(value.trim().to_owned()),
                    _ => {}
                }
            }
        }
        Some(Self { access_key: access_key?, secret_key: secret_key?, token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> S3Address {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_read_or_told_what_is_wrong() {
        let plain = address("s3://flows/site-a/edge1/");
        assert_eq!((plain.bucket.as_str(), plain.prefix.as_str()), ("flows", "site-a/edge1"));
        let full = address(
            "s3://flows?endpoint=http://192.0.2.1:9000/&region=eu-1&style=host&credentials_file=/etc/c",
        );
        assert_eq!(full.endpoint.as_deref(), Some("http://192.0.2.1:9000"));
        assert_eq!((full.prefix.as_str(), full.is_in_path), ("", Some(false)));
        for (text, expected) in [
            ("s3:flows", "s3://BUCKET/PREFIX"),
            ("s3://", "name of a bucket"),
            ("s3://a b/c", "name of a bucket"),
            ("s3://a/../c", "without empty parts"),
            ("s3://a/b?endpoint=minio:9000", "http://HOST:PORT"),
            ("s3://a/b?keys=1", "credentials_file=FILE"),
        ] {
            let error = text.parse::<S3Address>().expect_err(text).to_string();
            assert!(error.contains(expected) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn settings_come_from_the_address_and_then_from_the_environment() {
        let variables = |name: &str| {
            let value = match name {
                "AWS_ACCESS_KEY_ID" => "key",
                "AWS_SECRET_ACCESS_KEY" => "secret",
                "AWS_SESSION_TOKEN" => "token",
                "AWS_REGION" => "eu-central-1",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let settings = Settings::of(&address("s3://flows/a"), &variables).unwrap();
        assert_eq!(settings.endpoint, "https://s3.eu-central-1.amazonaws.com");
        assert_eq!((settings.is_in_path, settings.credentials.token.as_deref()), (false, Some("token")));
        let own = address("s3://flows/a?region=r&endpoint=https://minio.example.net");
        let settings = Settings::of(&own, &variables).unwrap();
        assert_eq!((settings.region.as_str(), settings.is_in_path), ("r", true));
        let none = Settings::of(&own, &|_| None).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(none.contains("AWS_ACCESS_KEY_ID"), "{none}");
        let text =
            "[other]\naws_access_key_id=o\n[default]\naws_access_key_id = k\naws_secret_access_key = s\n";
        let found = Credentials::of_text(text, "default").map(|found| (found.access_key, found.secret_key));
        assert_eq!(found, Some(("k".to_owned(), "s".to_owned())));
        assert!(Credentials::of_text(text, "other").is_none());
    }
}
