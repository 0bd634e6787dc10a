//! Basic authentication: decoded to find a placeholder in it, and encoded again with the value.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose::STANDARD};
use http::header::AUTHORIZATION;
use zeroize::Zeroizing;

use crate::secret_substitution::SubstitutionError;
use crate::secret_substitution::placement::{BasicPart, Placement};
use crate::secret_substitution::substitute::{Substituter, ValueEncoding};

/// Base64 as clients send it, with or without padding.
pub(super) const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The decoded `Basic` credentials in a head.
pub(super) fn basic_in_text(bytes: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    bytes
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let (name, value) = line.split_at_checked(line.iter().position(|&byte| byte == b':')?)?;
            if !name.eq_ignore_ascii_case(AUTHORIZATION.as_str().as_bytes()) {
                return None;
            }
            decode_basic(value.get(1..)?.trim_ascii())
        })
        .collect()
}

/// Decodes the value of a `Basic` Authorization header.
pub(super) fn decode_basic(value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, rest) = value.split_at_checked(value.iter().position(|&byte| byte == b' ')?)?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    LENIENT.decode(rest.trim_ascii()).ok().map(Zeroizing::new)
}

impl Substituter<'_> {
    /// `Basic` credentials with values substituted; `None` for another scheme, or without a placeholder.
    pub(super) fn basic(&mut self, value: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, SubstitutionError> {
        let Some(decoded) = decode_basic(value) else { return Ok(None) };
        let colon = memchr::memchr(b':', &decoded).unwrap_or(decoded.len());
        let (user, password) = decoded.split_at(colon);
        let password = password.strip_prefix(b":");
        let new_user = self.text(user, ValueEncoding::Header, |swap| {
            let placed = swap.places.in_basic(BasicPart::User, user, &swap.placeholder);
            placed.ok_or_else(|| {
                swap.misplaced("the user of basic authentication".into(), Some(Placement::BasicUser))
            })
        })?;
        let new_password = match password {
            None => None,
            Some(password) => self.text(password, ValueEncoding::Header, |swap| {
                let placed = swap.places.in_basic(BasicPart::Password, password, &swap.placeholder);
                placed.ok_or_else(|| {
                    swap.misplaced(
                        "a part of the password of basic authentication".into(),
                        Some(Placement::Header(AUTHORIZATION)),
                    )
                })
            })?,
        };
        if new_user.is_none() && new_password.is_none() {
            return Ok(None);
        }
        let mut new = new_user.unwrap_or_else(|| Zeroizing::new(user.to_vec()));
        if let Some(password) = password {
            new.push(b':');
            new.extend_from_slice(new_password.as_ref().map_or(password, |new| &new[..]));
        }
        let encoded = Zeroizing::new(STANDARD.encode(&*new));
        Ok(Some(Zeroizing::new([b"Basic ", encoded.as_bytes()].concat())))
    }
}
