//! The containment suite: the attacks of `isle-probe`, run without a sandbox (where they must get
//! through, or they prove nothing), in other people's sandboxes, and in every tier through the real
//! program. What gets out of a tier must be what its report says, no more and no less.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod doctor;
mod gates;
mod others;
mod proof;
mod range;
mod table;

use isle_e2e as harness;
