//! Structs of counters, of which a row each gives the field and its meaning.

/// Defines a struct of counters with their sum and their names.
///
/// ```
/// thalweg_base::counters! {
///     /// What a door saw.
///     Door {
///         opened: "How often it was opened.";
///         closed: "How often it was closed.";
///     }
/// }
/// let mut door = Door { opened: 2, closed: 1 };
/// door.add(&Door { opened: 0, closed: 1 });
/// assert!(door.rows().eq([("opened", 2), ("closed", 2)]));
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$doc:meta])* $type:ident { $($name:ident: $meaning:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type { $(#[doc = $meaning] pub $name: u64,)* }

        impl $type {
            /// Adds what was counted elsewhere.
            pub fn add(&mut self, other: &Self) { $(self.$name += other.$name;)* }

            /// Every counter's name and value, in order.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}
