//! `thalweg check` of a file for `thalweg web` alone: where it would serve, and from what.

use std::fmt::Write;

use serde_json::json;
use thalweg_config::{ConfigSource, WebSetup};
use thalweg_daemon::{RunError, rights as process_rights};

use super::rights::{reads_json, render_reads, try_what_is_forbidden};
use super::served_at;
use crate::cli::{CheckArgs, Format};
use crate::tables::remark;
use crate::{Failure, print};

pub(super) fn check(source: &ConfigSource, args: &CheckArgs, format: Format) -> Result<(), Failure> {
    // The caller saw the section.
    let Some(setup) = source.web().map_err(Failure::Config)? else { return Ok(()) };
    if args.sandbox {
        process_rights::take_to_serve(&setup.files, &args.config, setup.store.as_deref())
            .map_err(|error| Failure::Router(RunError::Rights(error)))?;
        return try_what_is_forbidden();
    }
    let WebSetup { web, control_socket, store, files } = setup;
    if format == Format::Json {
        let document = json!({
            "valid": true,
            "web": {
                "listen": web.listen, "socket": web.socket, "looking_glass": web.looking_glass,
                "control_socket": control_socket, "store": store, "reads": reads_json(&files.read),
            },
        });
        return print(&format!("{document:#}\n"));
    }
    let mut text =
        format!("{}: a valid configuration for `thalweg web`, without a router\n\n", args.config.display());
    let _ = writeln!(text, "It serves HTTP at {}.", served_at(&web));
    let _ = writeln!(text, "It asks the router at {}, or where `--socket` says.", control_socket.display());
    let _ = match store {
        Some(store) => writeln!(text, "It shows the flow records of {}.", store.display()),
        None => writeln!(text, "It shows no flow records: see `store` in [flows]."),
    };
    if !args.offline {
        text.push('\n');
        render_reads(&mut text, &files.read);
    }
    print(&remark(text.trim_end_matches('\n')))
}
