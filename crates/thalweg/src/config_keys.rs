//! `thalweg config keys`: lists all configuration keys.

use serde_json::json;
use thalweg_config::{KeyInfo, SectionInfo, keys};

use crate::cli::{ConfigKeysArgs, Format};
use crate::tables::table;
use crate::{Failure, print};

pub(crate) fn run(args: &ConfigKeysArgs, format: Format) -> Result<(), Failure> {
    let mut sections = keys();
    if let Some(wanted) = &args.section {
        sections.retain(|section| section.section == wanted || section.title == wanted);
        if sections.is_empty() {
            let names: Vec<&str> =
                keys().iter().map(|section| section.section).filter(|n| !n.is_empty()).collect();
            let message = format!("there is no section `{wanted}`; there are {}", names.join(", "));
            return Err(Failure::Usage(message));
        }
    }
    match format {
        Format::Human => print(&sections.iter().map(render).collect::<Vec<_>>().join("\n")),
        Format::Json => print(&format!("{:#}\n", json!(sections))),
    }
}

fn render(section: &SectionInfo) -> String {
    let row = |key: &KeyInfo| {
        vec![
            key.key.to_owned(),
            key.value.to_string(),
            plain(&key.default_words()),
            key.reload_words().to_owned(),
            plain(key.help),
        ]
    };
    let header = ["key", "value", "default", "reload", "meaning"];
    format!("{}\n{}", section.title, table(&header, &[], section.keys.iter().map(row)))
}

/// Markdown without links and code marks.
pub(crate) fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](") {
        let (opened, name) = before.rsplit_once('[').unwrap_or(("", before));
        text += opened;
        text += name;
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    (text + rest).replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_their_names() {
        assert_eq!(plain("the [access list](#acl) for `a`; see [b](b.md)"), "the access list for a; see b");
        assert_eq!(
            plain("prefixes: `[\"ef\", 46]`, see [policy](policy.md)."),
            "prefixes: [\"ef\", 46], see policy."
        );
    }
}
