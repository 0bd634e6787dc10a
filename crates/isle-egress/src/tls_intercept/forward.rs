//! Forwarding a request to its server: policy, secrets, sending, and masking of the response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::Either;
use hyper::body::Incoming;
use tokio::sync::Notify;

use crate::http::override_headers::override_header;
use crate::http::trailers::FilteredBody;
use crate::masking::response::{ResponseMasker, request_readable_response};
use crate::policy::RequestLine;
use crate::policy::denial::{Denial, Reason};
use crate::policy::grant::Protocol;
use crate::policy::host::Target;
use crate::policy::network_request::permit;
use crate::secret_substitution::placement::{Placement, Placements};
use crate::secret_substitution::{self, ResponseMasking, SubstitutionError, report_stray_placeholders};
use crate::tls_intercept::connection::InterceptedConnection;
use crate::tls_intercept::reply::{Answer, RequestFailure};
use crate::tls_intercept::upstream::{Transport, UpstreamConnection, UpstreamError};

/// Maximum number of interim responses (1xx) to one request.
pub(super) const MOST_INTERIM: u32 = 32;

/// Why a request whose secrets could not be substituted is not sent.
pub(super) fn substitution_failure(target: &Target, error: &SubstitutionError) -> RequestFailure {
    let denied = |reason, allowed: &Placements, wanted: Option<String>| {
        let mut denial = Denial::of(target, reason).detail(error.to_string());
        if let Some(wanted) = wanted {
            let places = allowed.texts().into_iter().chain([wanted]);
            denial =
                denial.rule(places.map(|place| format!("--place {place}")).collect::<Vec<_>>().join(" "));
        }
        RequestFailure::Denied(denial)
    };
    match error {
        SubstitutionError::Misplaced { remedy, allowed, .. } => {
            denied(Reason::SecretMisplaced, allowed, remedy.as_ref().map(ToString::to_string))
        }
        SubstitutionError::Method { method, allowed, .. } => {
            let wanted = format!("method:{method}").parse::<Placement>().ok();
            denied(Reason::SecretMethod, allowed, wanted.map(|wanted| wanted.to_string()))
        }
        SubstitutionError::Unfit(_) | SubstitutionError::Target => {
            UpstreamError::Failed(format!("the request to {target} was not sent: {error}")).into()
        }
    }
}

/// Counts the interim responses to an HTTP/1 request; notifies when there are too many.
pub(super) fn count_interim(request: &mut Request<FilteredBody>) -> Arc<Notify> {
    let too_many = Arc::new(Notify::new());
    let (notify, count) = (Arc::clone(&too_many), AtomicU32::new(0));
    hyper::ext::on_informational(request, move |_| {
        if count.fetch_add(1, Ordering::Relaxed) >= MOST_INTERIM {
            notify.notify_one();
        }
    });
    too_many
}

/// Removes Content-Length from a chunked response, so that its length is not ambiguous.
pub(super) fn remove_second_length(headers: &mut HeaderMap) {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
}

impl InterceptedConnection {
    pub(super) async fn forward(&self, request: Request<Incoming>) -> Result<Answer, RequestFailure> {
        let (mut parts, body) = request.into_parts();
        self.check_parsers_agree(&parts)?;
        let target = &self.outside.target;
        // The single request of an unencrypted connection was checked before its first byte was passed on.
        if self.outside.transport == Transport::Tls {
            self.check_host(&parts)?;
            let (method, path) = (parts.method.as_str(), parts.uri.path());
            let override_header = override_header(parts.headers.keys().map(HeaderName::as_str));
            let request = RequestLine { target, protocol: Protocol::Tls, method, path, override_header };
            permit(&self.outside.state, request, self.outside.by).await?;
            self.substitute_secrets(&mut parts)?;
        }
        let reflections = self.response_masker()?;
        if reflections.is_some() {
            request_readable_response(&mut parts);
        }
        let upgrades = self.remove_hop_by_hop_headers(&mut parts);
        parts.uri = self.upstream_uri(&parts.uri)?;
        let method = parts.method.clone();
        let mut request = Request::from_parts(parts, FilteredBody(body));
        let interim = count_interim(&mut request);
        let mut response = tokio::select! {
            response = self.send(request) => response?,
            () = interim.notified() => {
                *self.connected.lock().await = Ok(None);
                return Err(UpstreamError::Failed(format!("{target} sends too many interim responses")).into());
            }
        };
        remove_second_length(response.headers_mut());
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            if !upgrades {
                return Err(
                    UpstreamError::Failed(format!("{target} switched protocols without a request")).into()
                );
            }
            let upgraded = hyper::upgrade::on(&mut response).await.map_err(|error| {
                UpstreamError::Failed(format!("{target} switched protocols and disconnected: {error}"))
            })?;
            *self.upgraded.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                Some((upgraded, reflections.clone()));
            self.guard.lock().switch();
        }
        match reflections {
            None => Ok(response.map(Either::Left)),
            Some(reflections) => {
                Ok(reflections.mask(response, &method)?.map(|body| Either::Right(Either::Right(body))))
            }
        }
    }

    /// Replaces placeholders by values, and reports uses and stray placeholders.
    pub(super) fn substitute_secrets(&self, parts: &mut Parts) -> Result<(), RequestFailure> {
        let Some(secrets) = &self.secrets else { return Ok(()) };
        let target = &self.outside.target;
        let swapped = secret_substitution::substitute(parts, &target.host, &secrets.current())
            .map_err(|error| substitution_failure(target, &error))?;
        for used in &swapped.used {
            secrets.secret_used(used, target);
        }
        report_stray_placeholders(&**secrets, swapped.strayed, target, false);
        Ok(())
    }

    /// What masks the responses of the host, if a secret is sent there.
    pub(super) fn response_masker(&self) -> Result<Option<ResponseMasker>, UpstreamError> {
        let Some(secrets) = &self.secrets else { return Ok(None) };
        let target = &self.outside.target;
        match secrets.masking(&target.host) {
            ResponseMasking::NotNeeded | ResponseMasking::TooShort => Ok(None),
            ResponseMasking::Mask(finder) => {
                Ok(Some(ResponseMasker { finder, secrets: Arc::clone(secrets), target: target.clone() }))
            }
            ResponseMasking::Locked => Err(UpstreamError::Failed(format!(
                "a secret of this sandbox is sent to {target}, and the secrets are locked, so responses cannot be masked"
            ))),
        }
    }

    /// Sends a request, over a new connection if the old one is closed.
    pub(super) async fn send(
        &self,
        mut request: Request<FilteredBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let target = &self.outside.target;
        for _ in 0..2 {
            let sending = {
                let mut connected = self.connected.lock().await;
                let way = match &mut *connected {
                    Ok(way) => way,
                    Err(unreached) => return Err(unreached.clone()),
                };
                let alive = match way {
                    Some(connected) => connected.is_ready().await,
                    None => false,
                };
                if !alive {
                    *way = None;
                    *way = Some(self.reconnect().await?);
                }
                match way {
                    Some(connected) => connected.send(request),
                    None => return Err(UpstreamError::Failed(format!("{target} could not be reached"))),
                }
            };
            match sending.await {
                Ok(response) => return Ok(response),
                Err(unsent) => match unsent.request {
                    Some(again) => request = *again,
                    None => {
                        return Err(UpstreamError::Failed(format!(
                            "{target} did not respond: {}",
                            unsent.why
                        )));
                    }
                },
            }
        }
        Err(UpstreamError::Failed(format!("{target} closes every connection before it reads a request")))
    }

    pub(super) async fn reconnect(&self) -> Result<UpstreamConnection, UpstreamError> {
        let (connected, http_version) = self.outside.connect(&[self.http_version]).await;
        if http_version.is_some_and(|http_version| http_version != self.http_version) {
            return Err(UpstreamError::Failed(format!(
                "{} switched to another HTTP version",
                self.outside.target
            )));
        }
        connected
    }
}
