//! Enums in which each value has a word. One row gives the value and its word; lists, names and text follow
//! from the rows.

/// Defines an enum from rows `Value => "word"`, with `ALL`, `NAMES` (the words with their values), `name`,
/// and a `Display` that writes the word. The enum must be `Copy`.
///
/// ```
/// thalweg_base::words! {
///     /// A color.
///     #[derive(Clone, Copy, Debug, PartialEq, Eq)]
///     pub enum Color {
///         Green => "green",
///         Red => "red",
///     }
/// }
/// assert_eq!(Color::ALL.map(Color::name), ["green", "red"]);
/// assert_eq!(Color::NAMES[1], ("red", Color::Red));
/// assert_eq!(format!("{:>6}", Color::Red), "   red");
/// ```
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* $visible:vis enum $name:ident {
        $($(#[$note:meta])* $value:ident $(= $number:literal)? => $word:literal),* $(,)?
    }) => {
        $(#[$about])*
        $visible enum $name {
            $($(#[$note])* $value $(= $number)?),*
        }

        impl $name {
            /// All values, in order.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$value),*];
            /// The words with their values, in order.
            pub const NAMES: [(&'static str, Self); [$($word),*].len()] = [$(($word, Self::$value)),*];

            /// The word of this value.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $word),*
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
