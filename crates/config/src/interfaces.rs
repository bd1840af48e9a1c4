//! Names of interfaces, as ports have them: their own and those of their mirrors. Each name belongs to one port.

use std::ops::Range;

use crate::diagnostic::ErrorKind;
use crate::reader::{At, Item, Reader};

/// The longest name that Linux gives an interface (IFNAMSIZ, less the byte that ends it).
const INTERFACE_NAME_MAX: usize = 15;

/// What a port has under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The interface that it opens.
    Interface,
    /// The interface of the system that stands for it.
    Mirror,
}

impl Use {
    fn name(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::Mirror => "mirror",
        }
    }
}

/// The names that are taken.
#[derive(Default)]
pub(crate) struct InterfaceNames(Vec<(Use, String, At<String>)>);

impl InterfaceNames {
    /// Gives a port a name, or says whose it is.
    pub(crate) fn take(
        &mut self,
        reader: &mut Reader,
        what: Use,
        port: &str,
        name: &str,
        span: &Range<usize>,
    ) {
        let Some((other, holder, first)) = self.0.iter().find(|(.., at)| at.value == name) else {
            let at = At { value: name.to_owned(), span: span.clone() };
            return self.0.push((what, port.to_owned(), at));
        };
        let message = match (what, other) {
            (Use::Interface, Use::Interface) => format!("two ports have interface {name}"),
            _ => format!("{} {name} of port {port} is {} {name} of port {holder}", what.name(), other.name()),
        };
        let expected = format!("a name other than that on {}", reader.line(&first.span));
        let finding = reader.error(ErrorKind::Duplicate, span, message, expected);
        if (what, *other) == (Use::Interface, Use::Interface) {
            finding.help = Some(format!(
                "several VLANs of {name} are ports with `parent = \"{holder}\"` and `vlan`; several networks are \
                 several `addresses` of one port"
            ));
        }
    }

    /// Reads the name of the mirror that is wanted, if one is.
    pub(crate) fn mirror(&mut self, reader: &mut Reader, item: &Item<'_>, port: &str) -> Option<String> {
        let name = match item.value {
            toml::de::DeValue::Boolean(false) => return None,
            toml::de::DeValue::Boolean(true) => format!("tw-{port}"),
            _ => reader.parse(item, interface_name)?.value,
        };
        if name.len() > INTERFACE_NAME_MAX {
            let message = format!("mirror `{name}` would have a name of {} bytes", name.len());
            let expected =
                format!("a name of its own, of at most {INTERFACE_NAME_MAX} bytes: `mirror = \"tw-..\"`");
            reader.error(ErrorKind::BadValue, &item.span, message, expected);
            return None;
        }
        self.take(reader, Use::Mirror, port, &name, &item.span);
        Some(name)
    }
}

/// The name of an interface.
pub(crate) fn interface_name(text: &str) -> Result<String, &'static str> {
    let allowed = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
    let fits = (1..=INTERFACE_NAME_MAX).contains(&text.len()) && text != "." && text != "..";
    if fits && text.chars().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err("the name of an interface: 1 to 15 characters without blanks, `/` and `:`")
    }
}
