//! TLS: the ClientHello of a connection, the certificate authority of a sandbox, the CA files programs
//! read, and the CAs the gate trusts.

pub(crate) mod ca_stores;
pub(crate) mod certificate_authority;
pub(crate) mod client_hello;
pub(crate) mod trusted_cas;
