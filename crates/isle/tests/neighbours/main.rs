//! Daemons beside each other: the same paths in another mount namespace, a shared runtime directory, a
//! copied state directory, many starters at once. None of them may touch what another one made.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod adopted;
mod copies;
mod files;
mod finding;
mod homes;
mod namespaces;
mod starting;
mod subordinate;

use isle_e2e as harness;
