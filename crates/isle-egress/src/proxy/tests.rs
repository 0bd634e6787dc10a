//! What programs say to a proxy, read byte by byte and wrongly.

use super::*;

fn whole(said: Result<ProxyRequest, ProxyError>) -> (String, ProxyProtocol, usize) {
    match said {
        Ok(ProxyRequest::Whole(target, front, used)) => (target.to_string(), front, used),
        other => panic!("{other:?}"),
    }
}

fn status(said: Result<ProxyRequest, ProxyError>) -> String {
    match said {
        Err(ProxyError::Reply(words)) => {
            String::from_utf8_lossy(&words).lines().next().unwrap_or_default().into()
        }
        other => panic!("{other:?}"),
    }
}

fn socks(command: u8, kind: u8, host: &[u8], port: u16) -> Vec<u8> {
    [&[5, command, 0, kind], host, &port.to_be_bytes()].concat()
}

fn named(name: &str) -> Vec<u8> {
    [&[u8::try_from(name.len()).unwrap()], name.as_bytes()].concat()
}

#[test]
fn connect_names_a_host_and_a_port_and_consumes_its_head() {
    let head =
        "CONNECT Example.COM.:443 HTTP/1.1\r\nHost: elsewhere.example\r\nProxy-Authorization: x\r\n\r\n";
    let said = [head.as_bytes(), b"\x16\x03\x01"].concat();
    assert_eq!(whole(http_request(&said)), ("example.com:443".into(), ProxyProtocol::Connect, head.len()));
    for end in 1..head.len() {
        assert_eq!(http_request(&head.as_bytes()[..end]), Ok(ProxyRequest::Partial), "{end}");
    }
    let six = "CONNECT [fd00::5]:22 HTTP/1.0\r\n\r\n";
    assert_eq!(whole(http_request(six.as_bytes())).0, "[fd00::5]:22");
}

#[test]
fn a_request_with_an_absolute_uri_is_read_again() {
    for (line, target) in [
        ("GET http://example.com/a?b=http://evil.example/ HTTP/1.1\r\n", "example.com:80"),
        ("POST http://example.com:8080 HTTP/1.1\r\n", "example.com:8080"),
        ("GET http://example.com?q HTTP/1.0\r\nHost: ", "example.com:80"),
    ] {
        assert_eq!(
            whole(http_request(line.as_bytes())),
            (target.into(), ProxyProtocol::Request, 0),
            "{line}"
        );
    }
}

#[test]
fn an_invalid_host_is_a_denial() {
    for line in [
        "CONNECT example.com HTTP/1.1\r\n\r\n",
        "CONNECT example.com:0 HTTP/1.1\r\n\r\n",
        "CONNECT example.com:443@evil.example:443 HTTP/1.1\r\n\r\n",
        "CONNECT user@example.com:443 HTTP/1.1\r\n\r\n",
        "CONNECT 0x7f.1:80 HTTP/1.1\r\n\r\n",
        "CONNECT 2130706433:80 HTTP/1.1\r\n\r\n",
        "CONNECT fd00::5:22 HTTP/1.1\r\n\r\n",
        "CONNECT http://example.com:80 HTTP/1.1\r\n\r\n",
        "GET http:///path HTTP/1.1\r\n",
        "GET http://user@example.com/ HTTP/1.1\r\n",
        "GET http://example.com#@evil.example/ HTTP/1.1\r\n",
        "GET http://example.com\\@evil.example/ HTTP/1.1\r\n",
        "GET http://[fe80::1%25eth0]/ HTTP/1.1\r\n",
    ] {
        assert!(matches!(http_request(line.as_bytes()), Err(ProxyError::Host(..))), "{line}");
    }
    for (kind, host) in [
        (3, named("")),
        (3, named("exa\0mple.com")),
        (3, named("example.com:22")),
        (3, named("[::1]")),
        (3, named("0177.1")),
        (3, [&[3][..], b"\xff\xfe\xfd"].concat()),
    ] {
        let said = socks_request(&socks(1, kind, &host, 443));
        assert!(matches!(said, Err(ProxyError::Host(ProxyProtocol::Socks, ..))), "{host:?}: {said:?}");
    }
    assert!(matches!(socks_request(&socks(1, 1, &[10, 0, 0, 5], 0)), Err(ProxyError::Host(..))));
}

#[test]
fn a_bad_proxy_request_gets_an_error_response() {
    for line in [
        "GET / HTTP/1.1\r\n",
        "GET https://example.com/ HTTP/1.1\r\n",
        "GET HTTP://example.com/ HTTP/1.1\r\n",
        "GET ftp://example.com/ HTTP/1.1\r\n",
        "GET  http://example.com/ HTTP/1.1\r\n",
        "GET http://example.com/ HTTP/2.0\r\n",
        "GET http://example.com/\r\n",
        "G{}T http://example.com/ HTTP/1.1\r\n",
        "GET http://example.com/ HTTP/1.1\n",
        "\r\n",
    ] {
        assert_eq!(status(http_request(line.as_bytes())), "HTTP/1.1 400 Bad Request", "{line:?}");
    }
    assert_eq!(http_request(b"\x16\x03\x01\x02\x00"), Err(ProxyError::Closed));
    let long = vec![b'A'; strict_head::LONGEST + 1];
    assert_eq!(status(http_request(&long)), "HTTP/1.1 400 Bad Request");
    let headers = [b"CONNECT example.com:443 HTTP/1.1\r\n".to_vec(), long].concat();
    assert_eq!(status(http_request(&headers)), "HTTP/1.1 400 Bad Request");
}

#[test]
fn socks_accepts_names_and_both_address_families() {
    for (kind, host, target) in [
        (3, named("Example.com."), "example.com:443"),
        (1, vec![10, 0, 0, 5], "10.0.0.5:443"),
        (4, Ipv6Addr::from([0xfd00, 0, 0, 0, 0, 0, 0, 5]).octets().to_vec(), "[fd00::5]:443"),
        // An IPv4 address in disguise is one.
        (4, Ipv6Addr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 5]).octets().to_vec(), "10.0.0.5:443"),
    ] {
        let said = socks(1, kind, &host, 443);
        let with_more = [&said[..], b"more"].concat();
        assert_eq!(whole(socks_request(&with_more)), (target.into(), ProxyProtocol::Socks, said.len()));
        for end in 0..said.len() {
            assert_eq!(socks_request(&said[..end]), Ok(ProxyRequest::Partial), "{end} of {target}");
        }
    }
}

#[test]
fn socks_supports_connect_without_authentication_only() {
    assert_eq!(socks_methods(&[5]), Ok(None));
    assert_eq!(socks_methods(&[5, 2, 2]), Ok(None));
    assert_eq!(socks_methods(&[5, 2, 2, 0, 9]), Ok(Some(4)));
    assert_eq!(socks_methods(&[5, 1, 2]), Err(ProxyError::Reply(vec![5, 0xff])));
    assert_eq!(socks_methods(&[5, 0]), Err(ProxyError::Reply(vec![5, 0xff])));
    for command in [0, 2, 3, 255] {
        let said = socks_request(&socks(command, 3, &named("example.com"), 443));
        assert_eq!(said, Err(ProxyError::Reply(SocksReply::NoSuchCommand.bytes())));
    }
    for kind in [0, 2, 5, 255] {
        let said = socks_request(&socks(1, kind, &named("example.com"), 443));
        assert_eq!(said, Err(ProxyError::Reply(SocksReply::NoSuchAddress.bytes())));
    }
}

#[test]
fn parsing_does_not_depend_on_later_bytes() {
    for said in [
        b"CONNECT example.com:443 HTTP/1.1\r\nA: b\r\n\r\nabc".to_vec(),
        b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n".to_vec(),
        [&[5, 1, 0][..], &socks(1, 3, &named("example.com"), 443), b"abc"].concat(),
    ] {
        let all = parse_proxy_request(&said).unwrap();
        for end in 0..said.len() {
            assert!(parse_proxy_request(&said[..end]).is_none_or(|some| some == all), "{end} of {said:?}");
        }
    }
}

#[tokio::test]
async fn a_proxy_request_times_out() {
    let gate = Gate::new(std::sync::Arc::default());
    for words in
        [&b""[..], b"CONNECT example.com:443 HTTP/1.1\r\nX: ", b"GET http://exam", &[5], &[5, 1, 0, 5, 1]]
    {
        let (mut program, other) = tokio::net::UnixStream::pair().unwrap();
        program.write_all(words).await.unwrap();
        let mut inside = SandboxStream::new(other.into_std().unwrap().into()).unwrap();
        let hears = async {
            let heard = gate.read_proxy_request_within(Duration::from_millis(30), &mut inside).await;
            drop(inside);
            heard
        };
        let mut answer = Vec::new();
        let reads = async {
            program.read_to_end(&mut answer).await.unwrap();
            drop(program);
        };
        let (heard, ()) = tokio::join!(hears, reads);
        assert_eq!(heard, Err(None));
        assert!(answer.ends_with(b"the request timed out.\n"), "{}", String::from_utf8_lossy(&answer));
    }
}

#[tokio::test]
async fn early_bytes_are_kept_and_descriptors_are_dropped() {
    use std::io::IoSlice;
    use std::os::fd::AsFd;

    let gate = Gate::new(std::sync::Arc::default());
    let (program, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = rustix::net::SendAncillaryBuffer::new(&mut space);
    let sent = [writer.as_fd()];
    beside.push(rustix::net::SendAncillaryMessage::ScmRights(&sent));
    let words = b"CONNECT example.com:443 HTTP/1.1\r\n\r\nearly";
    let flags = rustix::net::SendFlags::empty();
    rustix::net::sendmsg(&program, &[IoSlice::new(words)], &mut beside, flags).unwrap();
    drop(writer);
    let mut inside = SandboxStream::new(other.into()).unwrap();
    assert_eq!(gate.read_proxy_request(&mut inside).await.unwrap().to_string(), "example.com:443");
    let mut early = [0; 5];
    inside.read_exact(&mut early).await.unwrap();
    assert_eq!(&early, b"early");
    assert_eq!(rustix::io::read(&reader, &mut [0; 1]).unwrap(), 0, "nobody has the other end");
}
