//! Denials: what was denied, why, and what to do about it.

use std::fmt;

use crate::policy::cloud_metadata;
use crate::policy::grant::{Grant, GrantError, RunKey};
use crate::policy::host::Target;

/// Why something was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// No grant covers the host.
    NotGranted,
    /// A grant covers the host, but not this port.
    PortNotGranted,
    /// The host is not valid.
    Malformed,
    /// The name resolves to an address that is not public and was not granted as an address.
    ForbiddenAddress,
    /// The name cannot be resolved.
    Unresolvable,
    /// The grant is for TLS and what was sent is not TLS.
    NotTls,
    /// The TLS connection names another host, or none.
    WrongServerName,
    /// The grant is for HTTP and what was sent is not HTTP/1.
    NotHttp,
    /// The HTTP request names another host or none, or is ambiguous.
    WrongHostHeader,
    /// The host is granted, but this request is not.
    RequestNotGranted,
    /// The request is ambiguous: servers could parse it differently.
    AmbiguousRequest,
    /// Servers interpret the path of the request differently.
    AmbiguousPath,
    /// A header of the request overrides the method, path or host of its request line.
    OverrideHeader,
    /// A cloud metadata address, which serves the credentials of the machine.
    MetadataAddress,
    /// The byte limit of the grant is used up.
    Exhausted,
    /// The grant expired or was revoked while the connection was open.
    Revoked,
    /// The sandbox has the maximum number of connections open.
    TooMany,
    /// The name is that of a sandbox that this one may not reach.
    NotPeer,
    /// A packet was sent to an unknown address without a route.
    NoRoute,
    /// A program tried UDP.
    NotTcp,
    /// A program connected to an address directly instead of using the proxy.
    PastProxy,
    /// A placeholder is where its secret may not be placed.
    SecretMisplaced,
    /// No secret is sent with this method.
    SecretMethod,
    /// A secret is sent to the host, and its response cannot be searched for it.
    UnreadableResponse,
}

impl Reason {
    /// A stable word for programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotGranted => "not_granted",
            Self::PortNotGranted => "port_not_granted",
            Self::Malformed => "malformed_host",
            Self::ForbiddenAddress => "forbidden_address",
            Self::Unresolvable => "unresolvable",
            Self::NotTls => "not_tls",
            Self::WrongServerName => "wrong_server_name",
            Self::NotHttp => "not_http",
            Self::WrongHostHeader => "wrong_host_header",
            Self::RequestNotGranted => "request_not_granted",
            Self::AmbiguousRequest => "ambiguous_request",
            Self::AmbiguousPath => "ambiguous_path",
            Self::OverrideHeader => "override_header",
            Self::MetadataAddress => "metadata_address",
            Self::Exhausted => "bytes_used_up",
            Self::Revoked => "grant_ended",
            Self::TooMany => "too_many_connections",
            Self::NotPeer => "not_a_peer",
            Self::NoRoute => "no_route",
            Self::NotTcp => "not_tcp",
            Self::PastProxy => "past_proxy",
            Self::SecretMisplaced => "secret_misplaced",
            Self::SecretMethod => "secret_method",
            Self::UnreadableResponse => "unreadable_response",
        }
    }
}

/// A denial.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Denial {
    /// What was requested: `host:port`, or a name that was looked up. Printable.
    pub target: String,
    /// Why it was denied.
    pub reason: Reason,
    /// The closest grant, if any.
    pub rule: Option<String>,
    /// More about it, such as the address a name resolves to.
    pub detail: Option<String>,
    /// The grant that would allow it, if there is one.
    pub wanted: Option<String>,
    /// The run whose program it was, if known.
    pub by: Option<RunKey>,
}

impl Denial {
    pub(crate) fn new(target: impl fmt::Display, reason: Reason) -> Self {
        let target = printable(&target.to_string());
        let grantable = matches!(
            reason,
            Reason::NotGranted | Reason::PortNotGranted | Reason::Exhausted | Reason::Revoked
        );
        if grantable && Grant::parse(&target) == Err(GrantError::Metadata) {
            let wanted = Some(format!("{target}/{}", cloud_metadata::WORD));
            return Self {
                target,
                reason: Reason::MetadataAddress,
                rule: None,
                detail: None,
                wanted,
                by: None,
            };
        }
        let wanted = match reason {
            Reason::NotGranted | Reason::PortNotGranted | Reason::Exhausted | Reason::Revoked => {
                Some(target.clone())
            }
            Reason::Malformed
            | Reason::ForbiddenAddress
            | Reason::Unresolvable
            | Reason::NotTls
            | Reason::WrongServerName
            | Reason::NotHttp
            | Reason::WrongHostHeader
            | Reason::RequestNotGranted
            | Reason::AmbiguousRequest
            | Reason::AmbiguousPath
            | Reason::OverrideHeader
            | Reason::MetadataAddress
            | Reason::TooMany
            | Reason::NotPeer
            | Reason::NoRoute
            | Reason::NotTcp
            | Reason::PastProxy
            | Reason::SecretMisplaced
            | Reason::SecretMethod
            | Reason::UnreadableResponse => None,
        };
        Self { target, reason, rule: None, detail: None, wanted, by: None }
    }

    /// A packet was sent without a route; the kernel of the sandbox does not report its address.
    #[must_use]
    pub fn no_route() -> Self {
        Self::new("an address", Reason::NoRoute)
    }

    pub(crate) fn of(target: &Target, reason: Reason) -> Self {
        Self::new(target, reason).by(target.by.clone())
    }

    /// Sets the run whose program it was.
    #[must_use]
    pub fn by(self, by: Option<RunKey>) -> Self {
        Self { by, ..self }
    }

    pub(crate) fn wanted(mut self, grant: impl fmt::Display) -> Self {
        self.wanted = Some(grant.to_string());
        self
    }

    pub(crate) fn rule(mut self, rule: impl fmt::Display) -> Self {
        self.rule = Some(rule.to_string());
        self
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(printable(&detail.into()));
        self
    }

    /// What can be done about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        let target = &self.target;
        match self.reason {
            Reason::NotGranted | Reason::PortNotGranted => format!("ask for a grant of {target}"),
            Reason::Malformed => "use a plain host name or IP address".into(),
            Reason::ForbiddenAddress => match &self.wanted {
                Some(address) => format!("grant the address explicitly: ask for a grant of {address}"),
                None => "grant the address explicitly".into(),
            },
            Reason::Unresolvable => "check the name, and that this machine can resolve it".into(),
            Reason::NotTls => "use TLS, or ask for a grant of the port with `/tcp`".into(),
            Reason::WrongServerName => "send the granted host name in the TLS handshake (SNI)".into(),
            Reason::NotHttp => "use HTTP/1.1, or ask for a grant of the port with `/tcp`".into(),
            Reason::WrongHostHeader => "send the granted host in the Host header".into(),
            Reason::RequestNotGranted => match &self.wanted {
                Some(request) => format!("ask for a grant of `{request}`"),
                None => "use a path without dot segments, empty segments or encoded slashes".into(),
            },
            Reason::AmbiguousRequest => {
                "send each header on a line of its own that ends in CR LF, one Host, and one Content-Length or exactly `Transfer-Encoding: chunked`".into()
            }
            Reason::AmbiguousPath => {
                "send the path in its plain form, without dot segments, empty segments, backslashes, semicolons, or encoded dots, slashes and control characters; or ask for a grant of the whole host".into()
            }
            Reason::OverrideHeader => {
                "remove this header and send the method and the path in the request line only; or ask for a grant of the whole host".into()
            }
            Reason::MetadataAddress => match &self.wanted {
                Some(grant) => format!(
                    "it serves the credentials of this machine; if that is intended, the operator can grant `{grant}`"
                ),
                None => "it serves the credentials of this machine; if that is intended, the operator can grant the address followed by `/metadata`".into(),
            },
            Reason::Exhausted => "ask for a new grant".into(),
            Reason::Revoked => format!("ask for a grant of {target} again"),
            Reason::TooMany => "close connections that are no longer needed".into(),
            Reason::NotPeer => "the operator can let sandboxes of one family reach each other with `peer_ports` of their spawn policy".into(),
            Reason::NoRoute => "use TCP to a granted host: a sandbox has no other network access".into(),
            Reason::NotTcp => "use TCP: a sandbox has no other network access".into(),
            Reason::PastProxy => {
                "use the proxy set in `HTTPS_PROXY`: granted hosts are reached through it".into()
            }
            // The rule is set where a placement would allow it.
            Reason::SecretMisplaced | Reason::SecretMethod => match &self.rule {
                Some(places) => format!("set the secret with `{places}` to allow this"),
                None => "send the placeholder where the secret may be placed: see `isle secret list`".into(),
            },
            Reason::UnreadableResponse => {
                "have the server respond without this encoding, or with gzip, deflate, br or zstd".into()
            }
        }
    }

    /// The reason as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let target = &self.target;
        let mut text = match self.reason {
            Reason::NotGranted => format!("{target} is not granted to this sandbox"),
            Reason::PortNotGranted => format!("this port of {target} is not granted to this sandbox"),
            Reason::Malformed => format!("{target} is not a valid host"),
            Reason::ForbiddenAddress => {
                format!("{target} resolves to a private address")
            }
            Reason::Unresolvable => format!("{target} could not be resolved"),
            Reason::NotTls => format!("{target} is granted for TLS, but the connection does not use TLS"),
            Reason::WrongServerName => format!("the TLS handshake to {target} names another host, or none"),
            Reason::NotHttp => {
                format!("{target} is granted for HTTP, but the connection does not use HTTP/1")
            }
            Reason::WrongHostHeader => {
                format!("the HTTP request to {target} names another host or none, or is ambiguous")
            }
            Reason::RequestNotGranted => format!("{target} is granted, but this request is not"),
            Reason::AmbiguousRequest => format!("the HTTP request to {target} is ambiguous"),
            Reason::AmbiguousPath => {
                format!("{target} is granted for some paths, and servers interpret this one differently")
            }
            Reason::OverrideHeader => format!(
                "{target} is granted for some requests, and a header of this one overrides its method, path or host"
            ),
            Reason::MetadataAddress => format!("{target} is or resolves to a cloud metadata address"),
            Reason::Exhausted => format!("the byte limit of the grant for {target} is used up"),
            Reason::Revoked => format!("the grant for {target} has expired or was revoked"),
            Reason::TooMany => format!("too many connections are open; {target} was not connected"),
            Reason::NotPeer => format!("{target} is not a sandbox that this one may reach"),
            Reason::NoRoute => format!("packets were sent to {target}, but a sandbox has no network route"),
            Reason::NotTcp => format!("UDP to {target} is not available"),
            Reason::PastProxy => {
                format!(
                    "{target} was connected to directly, but this sandbox has network access only through its proxy"
                )
            }
            Reason::SecretMisplaced => {
                format!("the request to {target} has a placeholder where its secret may not be placed")
            }
            Reason::SecretMethod => {
                format!("the request to {target} has a method with which no secret is sent")
            }
            Reason::UnreadableResponse => {
                format!("the response of {target} has an encoding in which secrets cannot be masked")
            }
        };
        if let Some(detail) = &self.detail {
            text.push_str(&format!(" ({detail})"));
        }
        text
    }

    /// The body of an HTTP response that reports the denial.
    pub(crate) fn http_body(&self) -> String {
        let rule = self.rule.as_ref().map_or(String::new(), |rule| format!("rule: {rule}\n"));
        format!(
            "Denied by the sandbox's network policy: {}.\nreason: {}\n{rule}remedy: {}\n",
            self.sentence(),
            self.reason.as_str(),
            self.remedy()
        )
    }

    /// The HTTP response that reports the denial.
    #[must_use]
    pub fn http_response(&self) -> String {
        let body = self.http_body();
        format!(
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nX-Isle-Denied: {}\r\nConnection: close\r\n\r\n{body}",
            body.len(),
            self.reason.as_str()
        )
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}; {}", self.sentence(), self.remedy())
    }
}

/// Untrusted text, safe to print and of bounded length.
pub(crate) fn printable(text: &str) -> String {
    const LONGEST: usize = 300;
    let mut out = String::new();
    for character in text.chars() {
        if out.len() >= LONGEST {
            out.push('…');
            break;
        }
        if character.is_ascii_graphic() || character == ' ' {
            out.push(character);
        } else {
            out.extend(character.escape_default());
        }
    }
    out
}

#[cfg(test)]
#[path = "denial_tests.rs"]
mod tests;
