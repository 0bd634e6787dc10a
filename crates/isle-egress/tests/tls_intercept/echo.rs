//! A server that sends back the credential of a request, in every way that servers do. It also keeps it, and
//! gives it to whoever asks without one.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use hyper::body::{Frame, Incoming};
use hyper::ext::ReasonPhrase;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;

use crate::world::{Said, said};

pub fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn deflate(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
}

/// A stream of brotli that stores what it says.
fn brotli(text: &[u8]) -> Vec<u8> {
    let head = u32::try_from(text.len() - 1).unwrap() << 4 | 1 << 20;
    [&head.to_le_bytes()[..3], text, &[3]].concat()
}

/// The value in the usual encodings, a line each.
pub fn encodings(value: &str) -> String {
    let all = |each: &dyn Fn(u8) -> String| value.bytes().map(each).collect::<String>();
    let mut lines = vec![
        value.to_owned(),
        value.to_ascii_uppercase(),
        all(&|byte| format!("{byte:02x}")),
        all(&|byte| format!("{byte:02X}")),
        all(&|byte| format!("%{byte:02X}")),
        all(&|byte| format!("&#{byte};")),
        all(&|byte| format!("\\u{byte:04x}")),
        all(&|byte| format!("{}\0", char::from(byte))),
    ];
    for user in ["", "u", "me", "x-access-token:", "me:"] {
        lines.push(STANDARD.encode(format!("{user}{value}")));
        lines.push(URL_SAFE.encode(format!("{user}{value}tail")));
    }
    lines.join("\n")
}

fn pieces(text: &[u8], size: usize) -> Vec<Frame<Bytes>> {
    text.chunks(size).map(|piece| Frame::data(Bytes::copy_from_slice(piece))).collect()
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    [&[first, u8::try_from(payload.len()).unwrap()], payload].concat()
}

pub async fn reflect(
    mut request: Request<Incoming>,
    kept: Arc<Mutex<String>>,
) -> Result<Response<Said>, Infallible> {
    let field = |name: &str| {
        request.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let sent = field("authorization").map(|text| text.replace("Bearer ", "")).or_else(|| field("x-api-key"));
    if let Some(sent) = &sent {
        kept.lock().unwrap().clone_from(sent);
    }
    let value = sent.unwrap_or_else(|| kept.lock().unwrap().clone());
    let body = format!("before {value} after\n");
    let encoded = |name: &'static str, bytes: Vec<u8>| {
        let response = Response::builder().header("content-encoding", name).header("etag", "\"1\"");
        response.header("content-length", bytes.len()).body(said(pieces(&bytes, 7))).unwrap()
    };
    let plain = |text: String| Response::new(said(vec![Frame::data(Bytes::from(text))]));
    let path = request.uri().path().to_owned();
    Ok(match path.as_str() {
        "/headers" => Response::builder()
            .header("x-request-id", &value)
            .header("access-control-allow-origin", format!("https://{value}"))
            .header("set-cookie", format!("session={}; Path=/", STANDARD.encode(format!("me:{value}"))))
            .body(said(Vec::new()))
            .unwrap(),
        "/location" => Response::builder()
            .status(302)
            .header("location", format!("https://other.test/?x={value}"))
            .body(said(Vec::new()))
            .unwrap(),
        "/name" => {
            let name = HeaderName::from_bytes(format!("x-{value}").to_lowercase().as_bytes()).unwrap();
            Response::builder().header(name, "1").body(said(Vec::new())).unwrap()
        }
        "/reason" => {
            let mut response = plain("ok".into());
            response.extensions_mut().insert(ReasonPhrase::try_from(value.into_bytes()).unwrap());
            response
        }
        "/length" => Response::builder()
            .header("content-length", body.len())
            .body(said(pieces(body.as_bytes(), 5)))
            .unwrap(),
        "/bytes" => Response::new(said(pieces(body.as_bytes(), 1))),
        "/encodings" => Response::new(said(pieces(encodings(&value).as_bytes(), 11))),
        "/gzip" => encoded("gzip", gzip(body.as_bytes())),
        "/grpc" => Response::builder()
            .header("grpc-encoding", "gzip")
            .body(said(pieces(&gzip(body.as_bytes()), 7)))
            .unwrap(),
        "/deflate" => encoded("deflate", deflate(body.as_bytes())),
        "/br" => encoded("br", brotli(body.as_bytes())),
        "/zstd" => encoded("zstd", zstd(body.as_bytes())),
        "/unknown" => encoded("exi", gzip(body.as_bytes())),
        "/twice" => encoded("gzip, gzip", gzip(&gzip(body.as_bytes()))),
        "/bomb" => encoded("gzip", gzip(&vec![0; 64 << 20])),
        "/trailers" => {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", HeaderValue::from_str(&value).unwrap());
            let frames = vec![Frame::data(Bytes::from_static(b"said")), Frame::trailers(trailers)];
            Response::builder().header("trailer", "x-sum").body(said(frames)).unwrap()
        }
        "/range" => {
            let wanted = field("range")
                .and_then(|range| range.strip_prefix("bytes=")?.split_once('-')?.0.parse::<usize>().ok());
            match wanted {
                Some(at) => {
                    let byte = value.as_bytes()[at % value.len()];
                    Response::builder()
                        .status(206)
                        .body(said(vec![Frame::data(Bytes::from(vec![byte]))]))
                        .unwrap()
                }
                None => plain(body),
            }
        }
        "/socket" => {
            let upgrading = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let Ok(upgraded) = upgrading.await else { return };
                let mut stream = TokioIo::new(upgraded);
                let mut frames = frame(0x81, body.as_bytes());
                for (at, byte) in value.bytes().enumerate() {
                    let first = if at == 0 {
                        0x01
                    } else if at == value.len() - 1 {
                        0x80
                    } else {
                        0x00
                    };
                    frames.extend(frame(first, &[byte]));
                }
                frames.extend(frame(0x88, &[&[3, 232], value.as_bytes()].concat()));
                stream.write_all(&frames).await.ok();
                stream.shutdown().await.ok();
            });
            let response = Response::builder().status(101).header("connection", "upgrade");
            response.header("upgrade", "websocket").header("x-echo", "kept").body(said(Vec::new())).unwrap()
        }
        _ => {
            let asked = format!("{} {} {:?}\n", request.method(), request.uri(), request.headers());
            plain(format!("{asked}{body}"))
        }
    })
}
