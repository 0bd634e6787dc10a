//! The gate under attack: what a hostile program tries in order to reach what was not granted, what
//! happens when the gate itself is hurt, and real clients that have to work all the same. Every attack is
//! also made where the gate does not stand, and has to succeed there, or it would prove nothing.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod addresses;
mod asking;
mod bulk;
mod clients;
mod clients_opened;
mod connection_ends;
mod faults;
mod floods;
mod held;
mod hosts;
mod limited;
mod metadata;
mod opened;
mod postgres;
mod proxied;
mod rebinding;
mod servers;
mod stores;
mod vault;
mod words;

use isle_e2e as harness;
