//! Reads what a client sends: the path, the query, the fields of a body. All of it is checked against a row of the
//! table of routes, so that a misspelling is an error and not an ignored wish.

use serde_json::{Map, Value};

use crate::problem::Problem;

/// The longest query and path.
const TEXT_MAX: usize = 8 << 10;

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// A whole number.
    Number,
    /// `1`, `true` or nothing: yes; `0` or `false`: no.
    Flag,
}

/// A parameter of a query, or a field of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

pub(crate) const fn text(name: &'static str) -> Param {
    Param { name, kind: Kind::Text }
}

pub(crate) const fn number(name: &'static str) -> Param {
    Param { name, kind: Kind::Number }
}

pub(crate) const fn flag(name: &'static str) -> Param {
    Param { name, kind: Kind::Flag }
}

/// The parameters of a query string, by name.
pub(crate) fn read_query(query: &str, params: &[Param]) -> Result<Map<String, Value>, Problem> {
    if query.len() > TEXT_MAX {
        return Err(Problem::bad("the query is too long"));
    }
    let mut values = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name, true)?, decoded(value, true)?);
        let param = known(params, &name)?;
        // An empty field of a form is one that was left out.
        if value.is_empty() && param.kind != Kind::Flag {
            continue;
        }
        let value = match param.kind {
            Kind::Text => Some(Value::String(value)),
            Kind::Number => value.parse::<u64>().ok().map(Value::from),
            Kind::Flag => match value.as_str() {
                "" | "1" | "true" => Some(Value::Bool(true)),
                "0" | "false" => Some(Value::Bool(false)),
                _ => None,
            },
        };
        let value =
            value.ok_or_else(|| Problem::bad(format!("{name}: expected {}", expected(param.kind))))?;
        if values.insert(name.clone(), value).is_some() {
            return Err(Problem::bad(format!("{name} is given twice")));
        }
    }
    Ok(values)
}

/// The fields of a body, by name.
pub(crate) fn read_body(body: &[u8], params: &[Param]) -> Result<Map<String, Value>, Problem> {
    let fields: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| Problem::bad(format!("the body is not an object in JSON: {error}")))?;
    let mut values = Map::new();
    for (name, value) in fields {
        let param = known(params, &name)?;
        let is_right = match param.kind {
            Kind::Text => value.is_string(),
            Kind::Number => value.is_u64(),
            Kind::Flag => value.is_boolean(),
        };
        match value {
            Value::Null => {}
            value if is_right => {
                values.insert(name, value);
            }
            _ => return Err(Problem::bad(format!("{name}: expected {}", expected(param.kind)))),
        }
    }
    Ok(values)
}

fn known(params: &[Param], name: &str) -> Result<Param, Problem> {
    let found = params.iter().find(|param| param.name == name).copied();
    found.ok_or_else(|| {
        let names: Vec<&str> = params.iter().map(|param| param.name).collect();
        let shown: String = name.chars().take(40).collect();
        Problem::bad(match names.is_empty() {
            true => format!("unknown parameter {shown:?}; there is none here"),
            false => format!("unknown parameter {shown:?}; expected {}", names.join(", ")),
        })
    })
}

fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "a text",
        Kind::Number => "a whole number",
        Kind::Flag => "1 or 0, in JSON true or false",
    }
}

/// Text without percent-encoding; in queries `+` is a space.
fn decoded(text: &str, is_query: bool) -> Result<String, Problem> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit(), digit());
                let code = high.zip(low).map(|(high, low)| high * 16 + low);
                let code = code.and_then(|code| u8::try_from(code).ok());
                code.ok_or_else(|| Problem::bad("a percent sign is followed by two hexadecimal digits"))?
            }
            b'+' if is_query => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| Problem::bad("the address is not UTF-8 behind its percent signs"))
}

/// Matches a path with a pattern. `{name}` in the pattern stands for one part of a path, `{rest}` at its end for one
/// or more. The outer `None`: they do not match; the inner one: the pattern has no such part.
pub(crate) fn match_path(pattern: &str, path: &str) -> Result<Option<Option<String>>, Problem> {
    if path.len() > TEXT_MAX {
        return Err(Problem::bad("the path is too long"));
    }
    let (mut wanted, mut parts) = (pattern.split('/'), path.split('/'));
    let mut found = None;
    loop {
        match (wanted.next(), parts.next()) {
            (None, None) => return Ok(Some(found)),
            (Some("{rest}"), Some(first)) if !first.is_empty() => {
                let rest = parts.fold(first.to_owned(), |rest, part| rest + "/" + part);
                return decoded(&rest, false).map(|rest| Some(Some(rest)));
            }
            (Some("{name}"), Some(part)) if !part.is_empty() => found = Some(decoded(part, false)?),
            (Some(wanted), Some(part)) if wanted == part => {}
            _ => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARAMS: &[Param] = &[text("inside"), number("limit"), flag("best")];

    #[test]
    fn queries_have_names_and_types() {
        let values = read_query("inside=10.0.0.0%2F8&limit=5&best", PARAMS).expect("it is right");
        assert_eq!(
            Value::Object(values),
            serde_json::json!({ "inside": "10.0.0.0/8", "limit": 5, "best": true })
        );
        assert_eq!(read_query("inside=&limit=", PARAMS), Ok(Map::new()));
        assert_eq!(read_query("inside=a+b", PARAMS).expect("it is right")["inside"], "a b");
        for bad in [
            "limit=-1",
            "limit=x",
            "best=2",
            "insid=1",
            "limit=1&limit=2",
            "inside=%g0",
            "inside=%f",
            "inside=%ff",
        ] {
            assert!(read_query(bad, PARAMS).is_err(), "{bad}");
        }
    }

    #[test]
    fn bodies_have_names_and_types() {
        let body = br#"{"inside":"x","limit":7,"best":null}"#;
        assert_eq!(
            Value::Object(read_body(body, PARAMS).expect("it is right")),
            serde_json::json!({ "inside": "x", "limit": 7 })
        );
        for bad in ["", "[]", "{", r#"{"limit":"7"}"#, r#"{"limit":-7}"#, r#"{"other":1}"#, r#"{"best":1}"#] {
            assert!(read_body(bad.as_bytes(), PARAMS).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_match_their_patterns() {
        let matched = |pattern, path| match_path(pattern, path).expect("it can be read");
        assert_eq!(matched("/a/b", "/a/b"), Some(None));
        for other in ["/a", "/a/b/", "/a/c", "/a/b/c", "", "/"] {
            assert_eq!(matched("/a/b", other), None, "{other}");
        }
        assert_eq!(matched("/n/{name}/reset", "/n/r%201/reset"), Some(Some("r 1".to_owned())));
        assert_eq!(matched("/n/{name}", "/n/"), None);
        assert_eq!(matched("/n/{name}", "/n/a/b"), None);
        for path in ["/r/10.0.0.0/8", "/r/10.0.0.0%2f8"] {
            assert_eq!(matched("/r/{rest}", path), Some(Some("10.0.0.0/8".to_owned())), "{path}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC{0,60}", pattern in "(/[a-z]{0,2}|/\\{name\\}){0,3}(/\\{rest\\})?") {
            let _ = (read_query(&text, PARAMS), read_body(text.as_bytes(), PARAMS), match_path(&pattern, &text));
        }

        /// The slow reference: encodes every byte.
        #[test]
        fn what_is_encoded_is_read_as_it_was(text in "\\PC{1,30}") {
            let encoded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let values = read_query(&format!("inside={encoded}"), PARAMS).expect("it is right");
            prop_assert_eq!(values["inside"].as_str(), Some(text.as_str()));
        }
    }
}
