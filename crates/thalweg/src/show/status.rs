//! The status of a router, for people.

use std::path::Path;

use serde_json::json;
use thalweg_node::control::{ConfigView, Request, StatusView, UpDown};
use thalweg_text::units::{age, bytes, count};

use super::{Does, Print, Show};
use crate::client::{parse_all, views};
use crate::{Failure, Format};

pub(super) const SHOW: &[Show] = &[
    Show::asks(
        "status",
        "Overall state: problems, ports and neighbors up and down, NAT, memory",
        Request::Status,
        Print::Page(|items| Ok(parse_all(items)?.iter().map(status).collect())),
    ),
    Show {
        name: "version",
        aliases: &[],
        help: "Versions of this program and of the running router",
        does: Does::Runs(version),
    },
    Show::asks(
        "config",
        "Configuration in use, with passwords masked",
        Request::Config,
        Print::Page(|items| Ok(parse_all(items)?.iter().map(config).collect())),
    ),
];

fn status(view: &StatusView) -> String {
    let up_down = |of: UpDown| format!("{} up, {} down", count(of.up), count(of.down));
    let mut rows = vec![
        ("version", format!("thalweg {}", view.version)),
        ("process", format!("{}, {} threads", view.pid, count(view.threads))),
        ("up for", age(view.uptime_s)),
        ("configuration", format!("{}, loaded {} ago", view.config.display(), age(view.config_age_s))),
    ];
    rows.extend(view.ports.map(|ports| ("ports", up_down(ports))));
    rows.extend(view.bgp_neighbors.map(|neighbors| ("BGP neighbors", up_down(neighbors))));
    rows.extend(view.installed.map(|routes| {
        ("BGP routes installed", format!("{} IPv4, {} IPv6", count(routes.ipv4), count(routes.ipv6)))
    }));
    rows.extend(
        view.nat
            .map(|nat| ("NAT sessions", format!("{} of {}", count(nat.sessions), count(nat.sessions_max)))),
    );
    let (now, peak) = (bytes(view.memory_bytes), bytes(view.memory_peak_bytes));
    rows.push(("memory", format!("{now}, at most {peak} so far")));
    let mut text = facts(&rows);
    if view.problems.is_empty() {
        text += "\nnothing is wrong\n";
    } else {
        text += "\nwrong:\n";
        view.problems.iter().for_each(|problem| text += &format!("  {problem}\n"));
    }
    text
}

fn config(view: &ConfigView) -> String {
    let (path, since) = (view.path.display(), age(view.age_s));
    let end = if view.text.ends_with('\n') { "" } else { "\n" };
    let file = match view.file_differs {
        Some(false) => "",
        Some(true) => "\n# the file is another one by now: `thalweg reload` takes it over",
        None => "\n# the file cannot be read any more",
    };
    format!("# {path}, in force since {since} ago; passwords are masked{file}\n{}{end}", view.text)
}

/// The versions of this program and of the router, which may differ after an update.
fn version(socket: &Path, format: Format) -> Result<String, Failure> {
    let program = env!("CARGO_PKG_VERSION");
    let router = views(socket, &Request::Status)?.pop().map(|status: StatusView| status.version);
    Ok(match format {
        Format::Json => format!("{}\n", json!({ "program": program, "router": router })),
        Format::Human => {
            let router = router.unwrap_or_default();
            let hint = if router == program { "" } else { "  (restart it to run this program's)" };
            format!("program  thalweg {program}\nrouter   thalweg {router}{hint}\n")
        }
    })
}

/// Names and values, aligned.
pub(super) fn facts(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}
