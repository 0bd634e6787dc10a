//! Where a placeholder is never replaced: in names, in one of several credentials, and with methods that
//! return the request.

use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;

use crate::http::override_headers::{Override, override_of};
use crate::policy::denial::printable;
use crate::secret_substitution::basic_auth::decode_basic;
use crate::secret_substitution::substitute::Substituter;
use crate::secret_substitution::{SecretSubstitution, SecretUse, SubstitutionError};

impl Substituter<'_> {
    /// Rejects placeholders in the method and in header names, which arrive in lower case.
    pub(super) fn check_names(&self, parts: &Parts) -> Result<(), SubstitutionError> {
        let names = parts.headers.keys().map(|name| ("the name of a header", name.as_str()));
        for (place, text) in std::iter::once(("the method", parts.method.as_str())).chain(names) {
            let stands = |swap: &&SecretSubstitution| {
                let needle = swap.placeholder.as_bytes();
                !needle.is_empty()
                    && swap.is_for(self.host)
                    && text.as_bytes().windows(needle.len()).any(|part| part.eq_ignore_ascii_case(needle))
            };
            if let Some(swap) = self.secrets.iter().find(stands) {
                return Err(swap.misplaced(place.into(), None));
            }
        }
        Ok(())
    }

    /// Rejects placeholders in one of several Authorization headers: servers differ in which one they use,
    /// and some return the other.
    pub(super) fn check_alone(&self, value: &[u8]) -> Result<(), SubstitutionError> {
        let decoded = decode_basic(value);
        for text in [Some(value), decoded.as_ref().map(|text| &text[..])].into_iter().flatten() {
            let stands = |swap: &&SecretSubstitution| {
                swap.is_for(self.host) && memchr::memmem::find(text, swap.placeholder.as_bytes()).is_some()
            };
            if let Some(swap) = self.secrets.iter().find(stands) {
                return Err(swap.misplaced("one of several Authorization headers".into(), None));
            }
        }
        Ok(())
    }

    /// Rejects methods that return the request, also in override headers.
    pub(super) fn check_methods(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<(), SubstitutionError> {
        let used = |used: &&SecretUse| self.secrets.iter().find(|swap| swap.placeholder == used.placeholder);
        for swap in self.done.used.iter().filter_map(|one| used(&one)) {
            let refused = |method: String| {
                let (placeholder, allowed) = (swap.placeholder.clone(), swap.places.clone());
                Err(SubstitutionError::Method { placeholder, method, allowed })
            };
            if !swap.places.takes_method(method) {
                return refused(method.to_string());
            }
            let asking =
                |(name, _): &(&HeaderName, &HeaderValue)| override_of(name.as_str()) == Override::Method;
            for (_, field) in headers.iter().filter(asking) {
                let text = String::from_utf8_lossy(field.as_bytes()).trim().to_ascii_uppercase();
                let taken =
                    Method::from_bytes(text.as_bytes()).is_ok_and(|method| swap.places.takes_method(&method));
                if !taken {
                    return refused(printable(&text));
                }
            }
        }
        Ok(())
    }
}
