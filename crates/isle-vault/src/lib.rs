//! Secrets at rest, and masking. A value is sealed with a key that comes from the environment, a program, a keyring or
//! a file; it is opened only while it is used. In output, values of secrets and personal data are replaced, in
//! whatever pieces the output arrives. Which sandbox has which secret is in `isle-engine`.

mod find;
mod key;
mod keyring;
mod mask;
mod pii;
mod program;
mod request;
mod scope;
mod seal;
mod stream;

pub use find::Values;
pub use key::{ExposePolicy, ExternalSecret, IfMissing, KeyText, VaultConfig};
pub use keyring::DesktopKeyring;
pub use mask::Masker;
pub use pii::PiiKinds;
pub use request::{RequestedSecrets, SecretHost, SecretRequest};
pub use scope::{Scope, parse_places};
pub use seal::{AssociatedData, Key};
pub use stream::MaskedStream;
