//! Denials: what was denied, why, and what to do about it.

use std::fmt;

use crate::host::Target;

/// Why something was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// No grant covers the host.
    NotGranted,
    /// A grant covers the host, but not this port.
    PortNotGranted,
    /// The host is none.
    Malformed,
    /// The name leads to an address that is not public and was not granted as an address.
    ForbiddenAddress,
    /// The name leads nowhere.
    Unresolvable,
    /// The grant is for TLS and what was sent is not TLS.
    NotTls,
    /// The TLS connection names another host, or none.
    WrongServerName,
    /// The grant is for HTTP and what was sent is not HTTP/1.
    NotHttp,
    /// The HTTP request names another host, or none, or can be read in two ways.
    WrongHostHeader,
    /// The host is granted, and this request of it is not.
    RequestNotGranted,
    /// The grant's bytes are used up.
    Exhausted,
    /// The grant has expired or was taken back while the connection was open.
    Revoked,
    /// The sandbox has as many connections open as it may have.
    TooMany,
    /// The name is that of a sandbox, and none this one may reach.
    NotPeer,
    /// Something was sent to an address; which one is not known.
    NoRoute,
    /// A program wanted to reach it with single packets.
    NotTcp,
    /// A program connected to an address itself, where only its proxy leads anywhere.
    PastProxy,
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
            Self::Exhausted => "bytes_used_up",
            Self::Revoked => "grant_ended",
            Self::TooMany => "too_many_connections",
            Self::NotPeer => "not_a_peer",
            Self::NoRoute => "no_route",
            Self::NotTcp => "not_tcp",
            Self::PastProxy => "past_proxy",
        }
    }
}

/// A denial.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Denial {
    /// What was asked for: `host:port`, or the name alone where only that was asked. Printable.
    pub target: String,
    /// Why it was denied.
    pub reason: Reason,
    /// The grant that came closest, if one did.
    pub rule: Option<String>,
    /// More about it, such as the address a name led to.
    pub detail: Option<String>,
    /// The grant that would have allowed it, where one would.
    pub wanted: Option<String>,
}

impl Denial {
    pub(crate) fn new(target: impl fmt::Display, reason: Reason) -> Self {
        let target = printable(&target.to_string());
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
            | Reason::TooMany
            | Reason::NotPeer
            | Reason::NoRoute
            | Reason::NotTcp
            | Reason::PastProxy => None,
        };
        Self { target, reason, rule: None, detail: None, wanted }
    }

    /// Something was sent to an address; which one the kernel of the sandbox does not tell.
    #[must_use]
    pub fn no_route() -> Self {
        Self::new("an address", Reason::NoRoute)
    }

    pub(crate) fn of(target: &Target, reason: Reason) -> Self {
        Self::new(target, reason)
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
            Reason::Malformed => "write the host as a plain name or a plain address".into(),
            Reason::ForbiddenAddress => match &self.wanted {
                Some(address) => format!("if it is meant, also ask for a grant of {address}"),
                None => "if it is meant, also ask for a grant of the address".into(),
            },
            Reason::Unresolvable => "check the name, and that the host of the sandbox can resolve it".into(),
            Reason::NotTls => "use TLS, or ask for a grant of the port with `/tcp`".into(),
            Reason::WrongServerName => "name the granted host in the TLS handshake (SNI)".into(),
            Reason::NotHttp => "speak HTTP/1.1, or ask for a grant of the port with `/tcp`".into(),
            Reason::WrongHostHeader => "send requests with the granted host in their Host header".into(),
            Reason::RequestNotGranted => match &self.wanted {
                Some(request) => format!("ask for a grant of `{request}`"),
                None => "write the path without dots, empty parts and encoded slashes".into(),
            },
            Reason::Exhausted => "ask for a new grant".into(),
            Reason::Revoked => format!("ask for a grant of {target} again"),
            Reason::TooMany => "close connections that are no longer needed".into(),
            Reason::NotPeer => "the operator lets sandboxes of one family reach each other, with `peer_ports` of their spawn policy".into(),
            Reason::NoRoute => "only TCP leaves a sandbox: connect to what is granted with it".into(),
            Reason::NotTcp => "use TCP, which is all that leaves a sandbox".into(),
            Reason::PastProxy => {
                "use the proxy that `HTTPS_PROXY` and its like name: granted hosts are reached through it".into()
            }
        }
    }

    /// Why, as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let target = &self.target;
        let mut text = match self.reason {
            Reason::NotGranted => format!("{target} is not granted to this sandbox"),
            Reason::PortNotGranted => format!("this port of {target} is not granted to this sandbox"),
            Reason::Malformed => format!("{target} is not a host"),
            Reason::ForbiddenAddress => {
                format!("{target} leads to an address that a name alone does not open")
            }
            Reason::Unresolvable => format!("{target} could not be resolved"),
            Reason::NotTls => format!("{target} is granted for TLS, and what was sent is not TLS"),
            Reason::WrongServerName => format!("the TLS handshake to {target} names another host, or none"),
            Reason::NotHttp => format!("{target} is granted for HTTP, and what was sent is not HTTP/1"),
            Reason::WrongHostHeader => {
                format!("the HTTP request to {target} names another host, none, or can be read in two ways")
            }
            Reason::RequestNotGranted => format!("{target} is granted, and this request of it is not"),
            Reason::Exhausted => format!("the bytes granted for {target} are used up"),
            Reason::Revoked => format!("the grant for {target} has ended"),
            Reason::TooMany => format!("no more connections, {target} included: too many are open"),
            Reason::NotPeer => format!("{target} is no sandbox that this one may reach"),
            Reason::NoRoute => format!("packets were sent to {target}, and a sandbox has no route to any"),
            Reason::NotTcp => format!("{target} was tried with UDP"),
            Reason::PastProxy => {
                format!(
                    "{target} was connected to directly, and only the proxy of this sandbox leads anywhere"
                )
            }
        };
        if let Some(detail) = &self.detail {
            text.push_str(&format!(" ({detail})"));
        }
        text
    }

    /// What a program that speaks HTTP is told.
    pub(crate) fn http_body(&self) -> String {
        let rule = self.rule.as_ref().map_or(String::new(), |rule| format!("rule: {rule}\n"));
        format!(
            "Denied by the sandbox's network policy: {}.\nreason: {}\n{rule}remedy: {}\n",
            self.sentence(),
            self.reason.as_str(),
            self.remedy()
        )
    }

    /// The answer to a program that speaks HTTP.
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

/// What a stranger sent, safe to print and of bounded length.
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
mod tests {
    use super::*;

    #[test]
    fn a_denial_cannot_be_made_to_say_something_else() {
        let denial = Denial::new("evil\r\nX: y\u{1b}[31m\u{202e}", Reason::Malformed).detail("a\nb");
        let response = denial.http_response();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(
            !head.contains("X: y") && head.contains(&format!("Content-Length: {}", body.len())),
            "{response}"
        );
        assert!(body.is_ascii() && !body.contains('\u{1b}'), "{body}");
    }

    #[test]
    fn a_long_target_is_cut() {
        assert!(Denial::new("a".repeat(100_000), Reason::Malformed).target.len() < 400);
    }
}
