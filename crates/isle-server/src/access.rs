//! Access control. The Unix socket is protected by the kernel (file mode, peer credentials, see
//! [`crate::accept`]). On TCP every request must name this server (`Host`), must not come from another web
//! origin (`Origin`) and must carry a token; only `/healthz` is open. Checked here for all routes, WebSocket and
//! MCP included, before they handle the request.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION,
    HOST, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use isle_core::{Code, Error};
use isle_engine::{Engine, Tenant};

use crate::reply::{self, Reply};
use crate::token::Token;

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

const API_KEY: &str = "x-api-key";

/// The access rules of one TCP listener.
#[derive(Debug)]
pub(crate) struct AccessControl {
    /// `None` only in fixtures ([`crate::serve_open`]).
    token: Option<Token>,
    /// Checks tokens of tenants; `None` in those fixtures too.
    engine: Option<Engine>,
    hosts: Vec<String>,
    origins: Vec<String>,
    cors_origins: Vec<String>,
}

/// A request that passed the checks.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    /// The tenant, or `None` for the operator.
    pub(crate) tenant: Option<Tenant>,
    /// The allowed CORS origin.
    cors_origin: Option<HeaderValue>,
}

impl AccessControl {
    pub(crate) fn new(
        token: Option<Token>,
        engine: Option<Engine>,
        port: u16,
        allowed_hosts: &[String],
        cors_origins: &[String],
    ) -> Self {
        let mut hosts: Vec<String> = LOOPBACK.iter().map(|name| format!("{name}:{port}")).collect();
        // Browsers omit the default port of the scheme.
        if port == 80 {
            hosts.extend(LOOPBACK.iter().map(|name| (*name).to_owned()));
        }
        let mut origins: Vec<String> = hosts.iter().map(|host| format!("http://{host}")).collect();
        for name in allowed_hosts {
            let written = host_forms(name, port);
            origins.extend(written.iter().map(|host| format!("http://{host}")));
            // A TLS proxy in front of the server has https origins.
            origins.extend(written.iter().map(|host| format!("https://{host}")));
            hosts.extend(written);
        }
        Self { token, engine, hosts, origins, cors_origins: cors_origins.to_vec() }
    }

    /// Checks a request; returns the error response on failure.
    pub(crate) fn check(&self, parts: &Parts) -> Result<Admitted, Box<Reply>> {
        let rejected = |error: Error| Box::new(reply::error(&error));
        self.check_host(parts).map_err(rejected)?;
        let mut admitted = self.check_origin(&parts.headers).map_err(rejected)?;
        if parts.method == Method::OPTIONS && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return Err(Box::new(admitted.preflight()));
        }
        if parts.uri.path() != "/healthz" {
            admitted.tenant = self.check_token(&parts.headers).map_err(|error| {
                let mut answer = reply::error(&error);
                admitted.add_cors_headers(&mut answer);
                Box::new(answer)
            })?;
        }
        Ok(admitted)
    }

    fn check_host(&self, parts: &Parts) -> Result<(), Error> {
        let in_target = parts.uri.authority().map(http::uri::Authority::as_str);
        let mut in_header = parts.headers.get_all(HOST).iter();
        let host = match (in_target, in_header.next(), in_header.next()) {
            (target, Some(header), None) => {
                let header = header.to_str().ok();
                // Two different names: a proxy may have checked the other one.
                if target.is_some() && target != header { None } else { header }
            }
            _ => None,
        };
        if host.is_some_and(|host| self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))) {
            return Ok(());
        }
        Err(Error::new(Code::Forbidden, "Host header not allowed")
            .detail("allowed", self.hosts.clone())
            .next("use one of the host names in `details`")
            .next("or add the name to `allowed_hosts` in the daemon's configuration"))
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<Admitted, Error> {
        let mut origins = headers.get_all(ORIGIN).iter();
        let origin = match (origins.next(), origins.next()) {
            (None, _) => return Ok(Admitted::default()),
            (Some(origin), None) => origin,
            (Some(_), Some(_)) => return Err(foreign_origin()),
        };
        let text = origin.to_str().map_err(|_| foreign_origin())?;
        if self.cors_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(text)) {
            return Ok(Admitted { cors_origin: Some(origin.clone()), tenant: None });
        }
        if self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(text)) {
            return Ok(Admitted::default());
        }
        Err(foreign_origin())
    }

    /// Authenticates the headers: the operator, or a tenant.
    fn check_token(&self, headers: &HeaderMap) -> Result<Option<Tenant>, Error> {
        let Some(token) = &self.token else { return Ok(None) };
        // Two tokens: a proxy may have checked the other one.
        if headers.get_all(AUTHORIZATION).iter().nth(1).is_some()
            || headers.get_all(API_KEY).iter().nth(1).is_some()
        {
            return Err(unauthenticated("duplicate token"));
        }
        let bearer = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let presented = bearer.or_else(|| headers.get(API_KEY).map(HeaderValue::as_bytes));
        match presented {
            Some(presented) if token.matches(presented) => Ok(None),
            Some(presented) => {
                let tenant = self.engine.as_ref().and_then(|engine| engine.recognise(presented));
                tenant.map(Some).ok_or_else(|| unauthenticated("invalid token"))
            }
            None => Err(unauthenticated("missing token")),
        }
    }
}

/// The `Host` header values accepted for a configured name. With a port, exactly that; without, this server's
/// port and those of the schemes, since a proxy forwards the header of its clients.
pub(crate) fn host_forms(name: &str, port: u16) -> Vec<String> {
    let name = name.to_ascii_lowercase();
    let has_port = match name.rsplit_once(':') {
        // The colons of an IPv6 address are inside its brackets.
        Some((_, digits)) => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => false,
    };
    if has_port {
        return vec![name];
    }
    let mut forms = vec![name.clone()];
    for port in [port, 80, 443] {
        let form = format!("{name}:{port}");
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
}

fn unauthenticated(message: &str) -> Error {
    Error::new(Code::Unauthenticated, message)
        .next("send `Authorization: Bearer TOKEN` with the token of your namespace, or with the contents of the `token` file in the daemon's state directory")
}

fn foreign_origin() -> Error {
    Error::new(Code::Forbidden, "origin not allowed")
        .next("add it to `cors_origins` in the daemon's configuration if you trust it")
}

impl Admitted {
    /// Adds CORS headers for an allowed origin.
    pub(crate) fn add_cors_headers(&self, reply: &mut Reply) {
        let Some(origin) = &self.cors_origin else { return };
        let headers = reply.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.append(VARY, HeaderValue::from_static("origin"));
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("mcp-session-id, isle-run-id, isle-mode"),
        );
    }

    /// The response to a CORS preflight request.
    fn preflight(&self) -> Reply {
        let mut reply = Response::new(axum::body::Body::empty());
        *reply.status_mut() = StatusCode::NO_CONTENT;
        self.add_cors_headers(&mut reply);
        if self.cors_origin.is_some() {
            let headers = reply.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, DELETE"));
            headers.insert(
                ACCESS_CONTROL_ALLOW_HEADERS,
                HeaderValue::from_static(
                    "authorization, content-type, accept, last-event-id, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name, x-api-key, isle-namespace",
                ),
            );
            headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        }
        reply
    }
}
