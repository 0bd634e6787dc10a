//! Access control of proxied ports: a request must name a host of this listener, must not come from another
//! origin, and must carry a ticket for its port. Programs send a header; browsers exchange the ticket in the URL
//! for a cookie of that host.

use axum::body::Body;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION, ORIGIN,
    REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use isle_core::{Code, Error, Result};
use isle_engine::engine::PortPass;

use super::Ports;
use super::headers::{HostIs, Seen, TICKET_COOKIE, TICKET_HEADER, ticket_cookies};
use crate::query;
use crate::reply::{self, Reply};

/// Host names of a listener.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// Those of the listener itself, with a port.
    own: Vec<String>,
    /// Suffixes of the host names of ports, in every form.
    endings: Vec<String>,
}

/// What a `Host` header refers to.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    /// The listener; the ticket determines the port.
    Listener,
    /// One port of one sandbox.
    Port { port: u16, label: String },
}

impl Hosts {
    pub(super) fn new(port: u16, domain: &str, allowed: &[String]) -> Self {
        let mut own: Vec<String> =
            ["localhost", "127.0.0.1", "[::1]"].iter().map(|name| format!("{name}:{port}")).collect();
        own.extend(allowed.iter().flat_map(|name| crate::access::host_forms(name, port)));
        let domain = domain.to_ascii_lowercase();
        // A proxy in front of the server omits the default port of its scheme.
        let forms: &[String] = match domain.as_str() {
            "localhost" => &[format!(":{port}")],
            _ => &[format!(":{port}"), ":80".into(), ":443".into(), String::new()],
        };
        let endings = forms.iter().map(|form| format!(".{domain}{form}")).collect();
        Self { own, endings }
    }

    fn named(&self, host: &str) -> Option<Named> {
        let host = host.to_ascii_lowercase();
        if self.own.contains(&host) {
            return Some(Named::Listener);
        }
        let name = self.endings.iter().find_map(|ending| host.strip_suffix(ending.as_str()))?;
        let (port, label) = name.split_once('-')?;
        let plain = !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let number = port.parse::<u16>().ok().filter(|number| number.to_string() == port);
        Some(Named::Port { port: number.filter(|_| plain)?, label: label.to_owned() })
    }
}

/// A request that may be forwarded.
pub(super) struct Passing {
    pub(super) pass: PortPass,
    pub(super) seen: Seen,
    pub(super) host: HostIs,
}

/// What to do with a request that has a valid ticket.
pub(super) enum Admitted {
    Pass(Box<Passing>),
    /// Exchange the ticket for a cookie.
    Answer(Box<Reply>),
}

/// The error response of this listener.
pub(super) fn error_reply(error: &Error) -> Reply {
    let mut reply = reply::error(error);
    let headers = reply.headers_mut();
    headers.remove(WWW_AUTHENTICATE);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

pub(super) fn admit(ports: &Ports, parts: &Parts) -> Result<Admitted> {
    if matches!(parts.method, Method::CONNECT | Method::TRACE) {
        return Err(Error::new(Code::InvalidArgument, format!("method {} is not forwarded", parts.method))
            .next("use another method, or forward the TCP port with `expose`"));
    }
    let host = host_of(parts)?;
    let named = ports.hosts.named(host).ok_or_else(foreign_host)?;
    check_origin(&parts.headers, host)?;
    let path = parts.uri.path();
    let path = if path.starts_with('/') { path } else { "/" };
    let (in_query, query) = split_ticket(parts.uri.query())?;
    let target = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    if ports.contains_token(target.as_bytes()) {
        return Err(Error::new(
            Code::InvalidArgument,
            "the URL contains an Isle token or ticket, which the program in the sandbox would receive",
        )
        .next("remove it; only the ticket in the Isle-Ticket header or cookie is needed"));
    }
    let (pass, traded) = match (header_ticket(&parts.headers)?, &named, &in_query) {
        (Some(ticket), _, _) => (found(ports, ticket)?, None),
        (None, Named::Listener, _) => return Err(no_ticket("missing ticket")),
        (None, Named::Port { .. }, Some(ticket)) if matches!(parts.method, Method::GET | Method::HEAD) => {
            (found(ports, ticket.as_bytes())?, Some(ticket))
        }
        (None, Named::Port { .. }, Some(_)) => {
            return Err(no_ticket("a ticket in the URL is accepted for GET and HEAD only"));
        }
        (None, Named::Port { .. }, None) => {
            same_site(&parts.headers)?;
            match ticket_cookies(&parts.headers).as_slice() {
                [ticket] => (found(ports, ticket)?, None),
                [] => return Err(no_ticket("missing ticket")),
                _ => return Err(no_ticket("duplicate ticket")),
            }
        }
    };
    if let Named::Port { port, label } = &named
        && (pass.port != *port || pass.label != *label)
    {
        return Err(no_ticket("invalid or expired ticket"));
    }
    let seen = Seen { host: host.to_owned(), port: pass.port, target };
    if let Some(ticket) = traded {
        return Ok(Admitted::Answer(Box::new(exchange(&parts.headers, ticket, &pass, &seen))));
    }
    let host = if named == Named::Listener { HostIs::Shared } else { HostIs::Own };
    Ok(Admitted::Pass(Box::new(Passing { pass, seen, host })))
}

/// The host of a request.
fn host_of(parts: &Parts) -> Result<&str> {
    let in_target = parts.uri.authority().map(http::uri::Authority::as_str);
    let mut in_header = parts.headers.get_all(HOST).iter();
    match (in_header.next().map(HeaderValue::to_str), in_header.next()) {
        (Some(Ok(host)), None) if in_target.is_none_or(|target| target == host) => Ok(host),
        _ => Err(foreign_host()),
    }
}

fn foreign_host() -> Error {
    Error::new(Code::Forbidden, "Host header does not refer to a sandbox port of this listener")
        .next("use the URL returned by `port_url` (`isle url NAME PORT`)")
}

/// Rejects requests from other origins, even with a ticket.
fn check_origin(headers: &HeaderMap, host: &str) -> Result<()> {
    let mut origins = headers.get_all(ORIGIN).iter();
    let own = match (origins.next().map(HeaderValue::to_str), origins.next()) {
        (None, _) => return Ok(()),
        (Some(Ok(origin)), None) => ["http://", "https://"]
            .iter()
            .any(|scheme| origin.strip_prefix(scheme).is_some_and(|from| from.eq_ignore_ascii_case(host))),
        _ => false,
    };
    if own {
        return Ok(());
    }
    Err(Error::new(Code::Forbidden, "requests from another origin are not allowed")
        .next("call it from a page of the same origin, or send the header Isle-Ticket from a program"))
}

/// A cookie is accepted only for requests of the same origin or of the user (Sec-Fetch-Site).
fn same_site(headers: &HeaderMap) -> Result<()> {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    match (sites.next().map(HeaderValue::as_bytes), sites.next()) {
        (None, _) | (Some(b"same-origin" | b"none"), None) => Ok(()),
        _ => Err(Error::new(Code::Forbidden, "cross-site requests cannot use the cookie of this port")
            .next("open the URL returned by `port_url` (`isle url NAME PORT`)")),
    }
}

fn header_ticket(headers: &HeaderMap) -> Result<Option<&[u8]>> {
    let mut given = headers.get_all(TICKET_HEADER).iter();
    match (given.next(), given.next()) {
        (ticket, None) => Ok(ticket.map(HeaderValue::as_bytes)),
        _ => Err(no_ticket("duplicate ticket")),
    }
}

fn found(ports: &Ports, ticket: &[u8]) -> Result<PortPass> {
    ports.engine.port_pass(ticket).ok_or_else(|| no_ticket("invalid or expired ticket"))
}

fn no_ticket(message: &str) -> Error {
    Error::new(Code::Unauthenticated, message)
        .next("create a ticket with POST /v1/sandboxes/{sandbox}/ports/{port}/url or `isle url NAME PORT`")
        .next("open its URL in a browser, or send the ticket in the header Isle-Ticket")
}

/// The ticket in a query, and the query without it, otherwise unchanged.
fn split_ticket(query: Option<&str>) -> Result<(Option<String>, Option<String>)> {
    let Some(query) = query else { return Ok((None, None)) };
    let (mut ticket, mut rest) = (None, Vec::new());
    for pair in query.split('&') {
        // Pairs that cannot be decoded are forwarded to the program.
        let read = query::pairs(pair).ok().and_then(|mut pairs| pairs.pop());
        match read {
            Some((name, value)) if name.eq_ignore_ascii_case(TICKET_COOKIE) => {
                if ticket.replace(value).is_some() {
                    return Err(no_ticket("duplicate ticket"));
                }
            }
            _ => rest.push(pair),
        }
    }
    let rest = (!rest.is_empty() || ticket.is_none()).then(|| rest.join("&"));
    Ok((ticket, rest))
}

/// Sets the cookie and redirects to the same URL without the ticket.
fn exchange(headers: &HeaderMap, ticket: &str, pass: &PortPass, seen: &Seen) -> Reply {
    let place =
        seen.own_path(&format!("http://{}{}", seen.host, seen.target)).unwrap_or_else(|| "/".to_owned());
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    // After a link on another site, the browser would follow a redirect without the SameSite=Strict cookie; a
    // page of this host sends it.
    let mut reply = match site {
        None | Some(b"none" | b"same-origin") => {
            let mut reply = Response::new(Body::empty());
            *reply.status_mut() = StatusCode::SEE_OTHER;
            if let Ok(place) = HeaderValue::from_str(&place) {
                reply.headers_mut().insert(LOCATION, place);
            }
            reply
        }
        Some(_) => {
            let place = place
                .replace('&', "&amp;")
                .replace('"', "&quot;")
                .replace('\'', "&#39;")
                .replace('<', "&lt;");
            let page = format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={place}\">\n");
            let mut reply = Response::new(Body::from(page));
            let headers = reply.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
            reply
        }
    };
    let seconds = pass.time_left().as_secs();
    let cookie = format!("{TICKET_COOKIE}={ticket}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict");
    let headers = reply.headers_mut();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        headers.insert(SET_COOKIE, cookie);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_names_the_listener_or_one_port() {
        let hosts = Hosts::new(4000, "localhost", &["box.example".to_owned()]);
        for own in ["localhost:4000", "127.0.0.1:4000", "[::1]:4000", "LocalHost:4000", "box.example:4000"] {
            assert_eq!(hosts.named(own), Some(Named::Listener), "{own}");
        }
        let port = Named::Port { port: 8000, label: "abc1".to_owned() };
        assert_eq!(hosts.named("8000-ABC1.localhost:4000"), Some(port));
        for wrong in [
            "evil.example:4000",
            "8000-abc1.localhost",
            "8000-abc1.localhost:4001",
            "8000-abc1.localhost.evil:4000",
            "x.8000-abc1.localhost:4000",
            "8000-abc1.x.localhost:4000",
            "08000-abc1.localhost:4000",
            "+8000-abc1.localhost:4000",
            "65536-abc1.localhost:4000",
            "8000-.localhost:4000",
            "8000.localhost:4000",
            "8000-a-b.localhost:4000",
            "localhost",
            "127.0.0.1",
            "",
        ] {
            assert_eq!(hosts.named(wrong), None, "{wrong}");
        }
        let hosts = Hosts::new(4000, "Ports.example", &[]);
        for form in ["", ":443", ":80", ":4000"] {
            assert!(hosts.named(&format!("80-x.ports.example{form}")).is_some(), "{form}");
        }
        assert_eq!(hosts.named("80-x.localhost:4000"), None);
    }

    #[test]
    fn the_ticket_is_taken_out_of_a_query_and_the_rest_stays_as_written() {
        for (query, ticket, rest) in [
            ("isle_ticket=t", Some("t"), None),
            ("a=%20+b&isle_ticket=t&c", Some("t"), Some("a=%20+b&c")),
            ("isle%5Fticket=t&x=%ff", Some("t"), Some("x=%ff")),
            ("ISLE_TICKET=t", Some("t"), None),
            ("a=b", None, Some("a=b")),
            ("", None, Some("")),
        ] {
            let (found, left) = split_ticket(Some(query)).unwrap();
            assert_eq!((found.as_deref(), left.as_deref()), (ticket, rest), "{query}");
        }
        assert!(split_ticket(Some("isle_ticket=a&isle_ticket=b")).is_err());
    }
}
