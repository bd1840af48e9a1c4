//! `thalweg whatif --live`: uses the routes and the configuration of a running router.

use std::path::Path;

use thalweg_config::ConfigSource;
use thalweg_node::control::{ConfigView, Request};
use thalweg_node::received::{Known, Source};
use thalweg_node::whatif::{Change, Live, Report, WhatIf};
use thalweg_text::units::{age, counted};

use super::{bgp_of, decided, line, options, refused};
use crate::Failure;
use crate::cli::WhatIfArgs;
use crate::client::views;
use crate::progress::Steps;
use crate::received::gather;

/// The report, and the neighbors whose routes it lacks.
pub(super) fn report(args: &WhatIfArgs, new: Option<&Path>) -> Result<(Report, Vec<String>), Failure> {
    // Errors of the new configuration are reported without asking the router. The router shows no passwords,
    // so none are compared.
    let new = new.map(|path| ConfigSource::read(path).map_err(Failure::Config)).transpose()?;
    let new = new.map(|source| bgp_of(&source.masked())).transpose()?;
    let view: Option<ConfigView> = views(&args.router.socket, &Request::Config)?.pop();
    let view = view.unwrap_or_default();
    let folder = view.path.parent().unwrap_or(Path::new(""));
    let file = format!("the router's configuration ({})", view.path.display());
    let old = bgp_of(&ConfigSource::of_text(&file, &view.text, folder))?;
    let new = new.unwrap_or_else(|| old.clone());
    let mut what_if = WhatIf::new(old, new, options(args)).map_err(refused)?;

    let steps = Steps::on_terminal();
    let received = gather(&args.router.socket, None, &steps);
    if received.is_err() {
        steps.finish();
    }
    let mut received = received?;
    let neighbors = received.sources();
    if received.routes() == 0 {
        steps.finish();
        let whose: Vec<String> = neighbors.iter().map(of_neighbor).collect();
        return Err(Failure::Run(format!("the router's neighbors have no routes: {}", whose.join("; "))));
    }
    received.drain(|entry| {
        what_if.push(entry);
        Ok::<(), Failure>(())
    })?;
    let wrong = received.failures();
    drop(received);
    let mut report = decided(what_if, args, &steps)?;
    let ConfigView { path: config, age_s: config_age_s, file_differs, .. } = view;
    report.live = Some(Live { config, config_age_s, file_differs, neighbors });
    Ok((report, wrong))
}

fn of_neighbor(source: &Source) -> String {
    let Source { neighbor, known, routes, note, .. } = source;
    let routes = counted(*routes, "route");
    let what = match known {
        Known::AsSent => format!("{neighbor} sent {routes}"),
        Known::AfterImport => {
            format!("{neighbor} offers no route refresh: {routes} of it as import left them")
        }
        Known::Unknown => format!("what {neighbor} would send is not known"),
    };
    note.as_ref().map_or_else(|| what.clone(), |note| format!("{what}: {note}"))
}

/// The origin of the table.
pub(super) fn text(report: &Report) -> String {
    let Some(live) = &report.live else { return String::new() };
    let taken = format!("{}, taken over {} ago", live.config.display(), age(live.config_age_s));
    let mut text = line("router", &taken);
    text += &match live.file_differs {
        Some(false) => String::new(),
        Some(true) => line("", "the file is another one by now; the old configuration is the one in force"),
        None => line("", "the file cannot be read any more; the old configuration is the one in force"),
    };
    let in_words = |source: &&Source| source.known != Known::AsSent || source.note.is_some();
    for each in live.neighbors.iter().filter(in_words) {
        text += &line("", &of_neighbor(each));
    }
    for added in report.neighbors.iter().filter(|each| each.change == Change::Added) {
        text += &line("", &format!("what {} would send is not known: it is new", added.neighbor));
    }
    text
}
