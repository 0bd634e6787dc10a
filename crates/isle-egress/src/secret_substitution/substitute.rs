//! Replacing the placeholders of one request by their values: in header fields, in basic authentication and
//! in the query. Nothing is changed if one placeholder is misplaced.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use zeroize::Zeroizing;

use crate::policy::denial::printable;
use crate::policy::host::Host;
use crate::secret_substitution::placement::Placement;
use crate::secret_substitution::{SecretSubstitution, SecretUse, Substituted, SubstitutionError};

/// How a value is encoded.
#[derive(Clone, Copy)]
pub(super) enum ValueEncoding {
    /// Raw, in a header or in basic authentication.
    Header,
    /// Percent-encoded, in a query.
    Query,
}

/// Replaces the placeholders of a request to `host` by their values, where they may be placed. The request is
/// not changed on failure.
pub fn substitute(
    parts: &mut Parts,
    host: &Host,
    secrets: &[SecretSubstitution],
) -> Result<Substituted, SubstitutionError> {
    let mut substituter = Substituter { host, secrets, done: Substituted::default() };
    if secrets.is_empty() {
        return Ok(substituter.done);
    }
    substituter.check_names(parts)?;
    let mut headers = parts.headers.clone();
    let credentials = headers.get_all(AUTHORIZATION).iter().count();
    for (name, value) in &mut headers {
        if name == AUTHORIZATION && credentials > 1 {
            substituter.check_alone(value.as_bytes())?;
        }
        let basic = if name == AUTHORIZATION { substituter.basic(value.as_bytes())? } else { None };
        let new = match basic {
            Some(new) => Some(new),
            None => substituter.header(name, value.as_bytes())?,
        };
        if let Some(new) = new {
            let mut new =
                HeaderValue::from_bytes(&new).map_err(|_| SubstitutionError::Unfit(name.to_string()))?;
            // Excluded from HPACK indexing and from debug output.
            new.set_sensitive(true);
            *value = new;
        }
    }
    let uri = substituter.uri(&parts.uri)?;
    substituter.check_methods(&parts.method, &headers)?;
    parts.headers = headers;
    if let Some(uri) = uri {
        parts.uri = uri;
    }
    Ok(substituter.done)
}

pub(super) struct Substituter<'s> {
    pub(super) host: &'s Host,
    pub(super) secrets: &'s [SecretSubstitution],
    pub(super) done: Substituted,
}

/// A percent-encoded value.
pub(super) fn percent_encoded(value: &str) -> String {
    let mut out = String::with_capacity(3 * value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

impl SecretSubstitution {
    /// The encoded value; `None` if it is not valid there.
    pub(super) fn written(&self, encoding: ValueEncoding) -> Option<Cow<'_, str>> {
        match encoding {
            // A header ends at a line break, some servers end it at NUL, and other control characters are not
            // valid.
            ValueEncoding::Header => {
                let fits = !self.value.contains(|character: char| character.is_ascii_control());
                fits.then_some(Cow::Borrowed(self.value.as_str()))
            }
            ValueEncoding::Query => Some(Cow::Owned(percent_encoded(&self.value))),
        }
    }

    pub(super) fn misplaced(&self, place: String, remedy: Option<Placement>) -> SubstitutionError {
        SubstitutionError::Misplaced {
            placeholder: self.placeholder.clone(),
            place,
            remedy,
            allowed: self.places.clone(),
        }
    }
}

impl<'s> Substituter<'s> {
    /// The text with values substituted, or `None` when it is unchanged. Substituted text is not searched
    /// again: a value that looks like a placeholder is not replaced.
    pub(super) fn text(
        &mut self,
        bytes: &[u8],
        encoding: ValueEncoding,
        placed: impl Fn(&SecretSubstitution) -> Result<Placement, SubstitutionError>,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, SubstitutionError> {
        let mut out: Option<Zeroizing<Vec<u8>>> = None;
        let mut from = 0;
        while let Some((at, found)) = self.first(&bytes[from..]) {
            let end = from + at + found.placeholder.len();
            let before = &bytes[from..from + at];
            if found.is_for(self.host) {
                let used = SecretUse { placeholder: found.placeholder.clone(), place: placed(found)? };
                let value = found
                    .written(encoding)
                    .ok_or_else(|| SubstitutionError::Unfit(found.placeholder.clone()))?;
                let out = out.get_or_insert_with(|| Zeroizing::new(bytes[..from].to_vec()));
                out.extend_from_slice(before);
                out.extend_from_slice(value.as_bytes());
                if !self.done.used.contains(&used) {
                    self.done.used.push(used);
                }
            } else {
                if let Some(out) = &mut out {
                    out.extend_from_slice(&bytes[from..end]);
                }
                if !self.done.strayed.contains(&found.placeholder) {
                    self.done.strayed.push(found.placeholder.clone());
                }
            }
            from = end;
        }
        if let Some(out) = &mut out {
            out.extend_from_slice(&bytes[from..]);
        }
        Ok(out)
    }

    /// The first placeholder in bytes.
    pub(super) fn first(&self, bytes: &[u8]) -> Option<(usize, &'s SecretSubstitution)> {
        let find = |swap: &'s SecretSubstitution| {
            Some((memchr::memmem::find(bytes, swap.placeholder.as_bytes())?, swap))
        };
        // Of placeholders at the same position the longest one counts.
        self.secrets
            .iter()
            .filter(|swap| !swap.placeholder.is_empty())
            .filter_map(find)
            .min_by_key(|(at, swap)| (*at, usize::MAX - swap.placeholder.len()))
    }

    /// A header with values substituted.
    pub(super) fn header(
        &mut self,
        name: &HeaderName,
        value: &[u8],
    ) -> Result<Option<Zeroizing<Vec<u8>>>, SubstitutionError> {
        self.text(value, ValueEncoding::Header, |swap| {
            swap.places.in_header(name, value, &swap.placeholder).ok_or_else(|| {
                swap.misplaced(format!("the header {name}"), format!("header:{name}").parse().ok())
            })
        })
    }

    /// The URI with values substituted in its query.
    pub(super) fn uri(&mut self, uri: &Uri) -> Result<Option<Uri>, SubstitutionError> {
        // Paths are logged and returned in responses more than anything else.
        self.text(uri.path().as_bytes(), ValueEncoding::Query, |swap| {
            Err(swap.misplaced("the path".into(), None))
        })?;
        let Some(query) = uri.query() else { return Ok(None) };
        let mut new: Option<Zeroizing<Vec<u8>>> = None;
        let mut done = 0;
        for pair in query.as_bytes().split(|&byte| byte == b'&') {
            let at = done;
            done += pair.len() + 1;
            let equals = memchr::memchr(b'=', pair).unwrap_or(pair.len());
            let (name, value) = (&pair[..equals], pair.get(equals + 1..).unwrap_or_default());
            let swapped = self.text(pair, ValueEncoding::Query, |swap| {
                swap.places.in_query(name, value, &swap.placeholder).ok_or_else(|| {
                    let name = String::from_utf8_lossy(name);
                    swap.misplaced(
                        format!("the query parameter {}", printable(&name)),
                        format!("query:{name}").parse().ok().filter(|_| !name.contains(&swap.placeholder)),
                    )
                })
            })?;
            if swapped.is_some() && new.is_none() {
                new = Some(Zeroizing::new(query.as_bytes()[..at].to_vec()));
            }
            if let Some(new) = &mut new {
                new.extend_from_slice(swapped.as_ref().map_or(pair, |swapped| &swapped[..]));
                new.push(b'&');
            }
        }
        let Some(mut new) = new else { return Ok(None) };
        new.pop();
        let mut parts = uri.clone().into_parts();
        let whole = Zeroizing::new([uri.path().as_bytes(), b"?", &new].concat());
        parts.path_and_query =
            Some(PathAndQuery::try_from(&whole[..]).map_err(|_| SubstitutionError::Target)?);
        Uri::from_parts(parts).map(Some).map_err(|_| SubstitutionError::Target)
    }
}
