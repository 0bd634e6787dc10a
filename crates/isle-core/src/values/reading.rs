//! How values are read from arguments. Numbers are accepted where a text with digits is due, and
//! the typed refusal of a value survives serde, which only knows messages.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::Deserializer;
use serde::de::Visitor;

use crate::error::Error;

thread_local! {
    /// The last refusal on this thread. Arguments are read in one go without awaiting, so whoever
    /// sees the reading fail finds its reason here.
    static REFUSED: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// Takes the last refusal of this thread.
pub fn take_refused() -> Option<Error> {
    REFUSED.with_borrow_mut(Option::take)
}

/// Keeps a refusal for [`take_refused`] and says its message.
pub fn refuse<E: serde::de::Error>(error: Error) -> E {
    let said = E::custom(&error.message);
    REFUSED.with_borrow_mut(|refused| *refused = Some(error));
    said
}

/// Reads a value from text, or from a number as if it were written as text.
pub fn text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = Error>,
{
    deserializer.deserialize_any(TextVisitor(PhantomData))
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err = Error>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<T, E> {
        value.parse().map_err(refuse)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }
}
