//! Values by name on the command line: the format of results, and enums of other crates.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use thalweg_exec::ModelKind;
use thalweg_exec::control_plane::SchedulingKind;

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Human,
    Json,
}

/// A name, its help (empty if the name suffices), and the value.
pub(crate) type Choice<T> = (&'static str, &'static str, T);

/// Parses one of these names.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let shown = |(name, help, _): &Choice<T>| match *help {
        "" => PossibleValue::new(*name),
        help => PossibleValue::new(*name).help(help),
    };
    PossibleValuesParser::new(choices.iter().map(shown)).try_map(|name| {
        let chosen = choices.iter().find(|choice| choice.0 == name);
        chosen.map(|choice| choice.2).ok_or("not one of the names")
    })
}

pub(crate) const MODELS: &[Choice<ModelKind>] = &ModelKind::CHOICES;

pub(crate) const SCHEDULINGS: &[Choice<SchedulingKind>] = &[
    ("serial", "One thread does everything: the reference", SchedulingKind::Serial),
    ("per-peer", "One thread per neighbor", SchedulingKind::PerPeer),
    ("dynamic", "A pool of threads serves neighbors that are ready", SchedulingKind::Dynamic),
    (
        "sharded",
        "Each neighbor, shard of the routing table and update group has a thread that owns it",
        SchedulingKind::Sharded,
    ),
];
