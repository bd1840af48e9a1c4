//! How a router is, as people read it.

use thalweg_node::control::{ConfigView, StatusView, UpDown};
use thalweg_text::units::{age, bytes, count};

pub(super) fn status(view: &StatusView) -> String {
    let up_down = |of: UpDown| format!("{} up, {} down", count(of.up), count(of.down));
    let mut rows = vec![
        ("version", format!("thalweg {}", view.version)),
        ("process", format!("{}, {} threads", view.pid, count(view.threads))),
        ("up for", age(view.uptime_s)),
        ("configuration", format!("{}, taken over {} ago", view.config.display(), age(view.config_age_s))),
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

pub(super) fn config(view: &ConfigView) -> String {
    let (path, since) = (view.path.display(), age(view.age_s));
    let end = if view.text.ends_with('\n') { "" } else { "\n" };
    format!("# {path}, in force since {since} ago; passwords are masked\n{}{end}", view.text)
}

/// Names and values, values one below the other.
pub(super) fn facts(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}
