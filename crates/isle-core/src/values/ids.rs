//! Identifiers Isle makes. They sort by time of making and cannot be guessed.

use std::fmt;
use std::str::FromStr;

use crate::clock::wall_clock_ms;

use crate::error::{Code, Error};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// 48 bits of milliseconds, then 80 random bits, as 26 characters.
fn fresh() -> String {
    let millis = u128::try_from(wall_clock_ms()).unwrap_or(0);
    let mut random = [0u8; 16];
    // Without randomness nothing here may be handed out; the kernel's source does not fail after boot.
    getrandom::fill(&mut random).unwrap_or_else(|error| panic!("the kernel gave no randomness: {error}"));
    let mut bits = (millis << 80) | (u128::from_be_bytes(random) & ((1 << 80) - 1));
    let mut text = [0u8; 26];
    for slot in text.iter_mut().rev() {
        *slot = ALPHABET[usize::try_from(bits & 31).unwrap_or(0)];
        bits >>= 5;
    }
    text.iter().map(|&byte| char::from(byte)).collect()
}

macro_rules! identifier {
    ($type:ident, $prefix:literal, $code:expr, $what:literal, $description:literal) => {
        #[doc = $description]
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(String);

        impl $type {
            /// A new one.
            #[must_use]
            pub fn fresh() -> Self {
                Self(format!(concat!($prefix, "{}"), fresh()))
            }

            /// The identifier as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let body = text.strip_prefix($prefix).unwrap_or("");
                if body.len() == 26 && body.bytes().all(|byte| ALPHABET.contains(&byte)) {
                    return Ok(Self(text.to_owned()));
                }
                Err(Error::new($code, format!(concat!("{:?} is not ", $what), text)).next(concat!(
                    "use an id that Isle gave you; it starts with `",
                    $prefix,
                    "`"
                )))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        super::text_value!($type, stringify!($type), $description);
    };
}

identifier!(RunId, "run_", Code::InvalidArgument, "a run id", "Id of a run.");
identifier!(AskId, "ask_", Code::InvalidArgument, "the id of a request", "Id of a request for network.");
identifier!(TokenId, "tok_", Code::InvalidArgument, "a token id", "Id of a token.");
identifier!(WebhookId, "hook_", Code::InvalidArgument, "a webhook id", "Id of a webhook.");
identifier!(
    SandboxId,
    "sb_",
    Code::InvalidArgument,
    "a sandbox id",
    "Id of one incarnation of a sandbox; a new one after every rebuild."
);
