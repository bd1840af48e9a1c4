//! Masks secrets in a configuration, so that it can be displayed.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// Replaces a secret.
const MASK: &str = "\"********\"";

/// The text of a configuration with `"********"` in place of passwords. A text that is not TOML is left out
/// as a whole, because passwords cannot be found in it.
pub fn masked(text: &str) -> String {
    let Ok(document) = DeTable::parse(text) else {
        return "# this is not TOML, and not shown because it may hold passwords\n".to_owned();
    };
    let mut secrets = Vec::new();
    in_table(document.get_ref(), &mut secrets);
    secrets.sort_by_key(|span| std::cmp::Reverse(span.start));
    let mut shown = text.to_owned();
    for span in secrets {
        shown.replace_range(span, MASK);
    }
    shown
}

fn in_table(table: &DeTable<'_>, secrets: &mut Vec<Range<usize>>) {
    for (key, value) in table.iter() {
        if is_secret(key.get_ref()) {
            secrets.push(value.span());
        } else {
            in_value(value.get_ref(), secrets);
        }
    }
}

fn in_value(value: &DeValue<'_>, secrets: &mut Vec<Range<usize>>) {
    match value {
        DeValue::Table(table) => in_table(table, secrets),
        DeValue::Array(items) => items.iter().for_each(|item| in_value(item.get_ref(), secrets)),
        _ => {}
    }
}

fn is_secret(key: &str) -> bool {
    ["password", "secret", "passphrase"].iter().any(|word| key.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked_wherever_they_stand_and_nothing_else_is() {
        let text = "# office\n[bgp]\nas = 64500 # ours\n[[bgp.neighbor]]\nname = \"a\"\npassword = \"s3cret\" # say\n\
                    [[bgp.neighbor]]\nname = \"b\"\npassword = '''two\nlines'''\n[bgp.group]\nx = { password = \"inline\" }\n";
        let shown = masked(text);
        for secret in ["s3cret", "two", "lines", "inline"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert_eq!(shown.matches("\"********\"").count(), 3);
        assert!(shown.contains("as = 64500 # ours") && shown.contains("\"********\" # say"), "{shown}");
        assert!(!masked("password = \"half").contains("half"));
    }
}
