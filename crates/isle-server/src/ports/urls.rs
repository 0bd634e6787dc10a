//! Resolves URLs in responses of a program in a sandbox like a browser does. URLs at the program's own origin
//! are rewritten as paths; all others are dropped.

use url::Url;

/// How a client addressed a port: the base URL of the response.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The checked `Host` header.
    pub host: String,
    /// The port inside the sandbox.
    pub port: u16,
    /// Path and query of the request as forwarded to the program.
    pub target: String,
}

impl Seen {
    /// A URL as a path at this origin; `None` for other origins.
    #[must_use]
    pub fn own_path(&self, reference: &str) -> Option<String> {
        let base = Url::parse(&format!("http://{}{}", self.host, self.target)).ok()?;
        let url = base.join(reference).ok()?;
        let is_http = matches!(url.scheme(), "http" | "https");
        if !is_http || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        let same = |other: &Url| {
            other.host() == url.host() && other.port_or_known_default() == url.port_or_known_default()
        };
        // A TLS proxy in front of the server omits the default port, as browsers do.
        let secure = || Url::parse(&format!("https://{}", self.host)).is_ok_and(|secure| same(&secure));
        if !same(&base) && !secure() && !self.is_programs_own(&url) {
            return None;
        }
        // Two slashes at the beginning would be parsed as a host.
        let mut path = format!("/{}", url.path().trim_start_matches(['/', '\\']));
        for (mark, part) in [('?', url.query()), ('#', url.fragment())] {
            if let Some(part) = part {
                path.push(mark);
                path.push_str(part);
            }
        }
        path.bytes().all(|byte| byte.is_ascii_graphic()).then_some(path)
    }

    /// Whether a URL refers to the program by its local address.
    fn is_programs_own(&self, url: &Url) -> bool {
        let names = ["localhost", "127.0.0.1", "[::1]"];
        url.scheme() == "http"
            && url.port_or_known_default() == Some(self.port)
            && url.host_str().is_some_and(|host| names.contains(&host))
    }
}

/// Whether a text contains something a client could follow: two slashes, or a scheme. Browsers remove tabs before
/// they parse, so tabs are removed here too.
#[must_use]
pub fn contains_url(text: &[u8]) -> bool {
    let text: Vec<u8> = text.iter().copied().filter(|&byte| byte != b'\t').collect();
    let is_slash = |byte: u8| matches!(byte, b'/' | b'\\');
    if text.windows(2).any(|pair| is_slash(pair[0]) && is_slash(pair[1])) {
        return true;
    }
    let of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    text.iter().enumerate().filter(|(_, byte)| **byte == b':').any(|(colon, _)| {
        let length = text[..colon].iter().rev().take_while(|byte| of_scheme(byte)).count();
        let is_scheme = text.get(colon - length).is_some_and(u8::is_ascii_alphabetic);
        let behind = text.get(colon + 1).is_some_and(|&next| next != b' ');
        length > 0 && is_scheme && behind
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "8000-abc.localhost:4000";

    fn seen() -> Seen {
        Seen { host: HOST.into(), port: 8000, target: "/a/b?q".into() }
    }

    #[test]
    fn what_stays_at_the_origin_is_written_as_a_path() {
        for (reference, path) in [
            ("/login?x#y", "/login?x#y"),
            ("c", "/a/c"),
            ("", "/a/b?q"),
            ("?p", "/a/b?p"),
            ("../../../..", "/"),
            ("http://8000-abc.localhost:4000/x", "/x"),
            ("HTTP://8000-ABC.localhost:4000", "/"),
            ("http://localhost:8000/x", "/x"),
            ("http://127.0.0.1:8000", "/"),
            ("http://[::1]:8000/a b", "/a%20b"),
            ("//8000-abc.localhost:4000//evil.example/x", "/evil.example/x"),
            ("/./\\/evil.example", "/evil.example"),
            ("/caf\u{e9}", "/caf%C3%A9"),
        ] {
            assert_eq!(seen().own_path(reference).as_deref(), Some(path), "{reference}");
        }
        let behind_tls = Seen { host: "8000-abc.ports.example".into(), ..seen() };
        assert_eq!(behind_tls.own_path("https://8000-abc.ports.example/x").as_deref(), Some("/x"));
    }

    #[test]
    fn a_text_names_a_place_when_a_client_could_follow_it() {
        for text in [
            "http://evil.example",
            "HTTP:evil",
            "ws:x",
            "see (https://evil.example)",
            "a=\"mailto:x@y\"",
            "//evil.example",
            "\\\\evil\\x",
            "/\\evil.example",
            "ht\ttp:x",
            "h:\tx",
            "x;javascript:1",
            "web+a.b-c:d",
        ] {
            assert!(contains_url(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "Mon, 16 Nov 2026 18:48:33 GMT",
            "2026-11-16T18:48:33Z",
            "text/html; charset=utf-8",
            "Werkzeug/2.0 Python/3.11",
            "bytes 0-5/10",
            "note: text",
            "W/\"abc-1\"",
            ":x",
            "12:30",
        ] {
            assert!(!contains_url(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_leads_elsewhere_is_no_path() {
        for reference in [
            "http://127.0.0.1:7777/v1/tokens",
            "http://localhost:4000/",
            "http://8001-abc.localhost:4000/",
            "http://8000-abc.localhost:8000/",
            "http://8000-abc.localhost/",
            "https://8000-abc.localhost:4001/",
            "https://localhost:8000/",
            "//evil.example/",
            "\\\\evil.example\\",
            "/\\evil.example/",
            "/\t/evil.example/",
            "ht\ttp://evil.example/",
            "http:evil.example",
            "http://user@8000-abc.localhost:4000/",
            "http://8000-abc.localhost:4000@evil.example/",
            "http://evil.example\\@8000-abc.localhost:4000/",
            "http://2130706433:7777/",
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "unix:/run/isle.sock",
        ] {
            let path = seen().own_path(reference);
            // Without an authority of its own it is a path after all, as browsers have it.
            if reference == "http:evil.example" {
                assert_eq!(path.as_deref(), Some("/a/evil.example"));
            } else {
                assert_eq!(path, None, "{reference}");
            }
        }
    }
}
