//! Somebody who receives webhooks: remembers every request, and answers as the test wants it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::until;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    pub line: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// What it was answered with.
    pub status: u16,
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map_or_else(|| panic!("no {name}: {self:?}"), |(_, value)| value)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The events in it.
    pub fn events(&self) -> Vec<Value> {
        self.json()["events"].as_array().unwrap().clone()
    }
}

#[derive(Debug, Default)]
struct Desk {
    received: Vec<Received>,
    /// Status and further headers of every answer from now on; nothing: 200.
    answer: Option<(u16, String)>,
}

/// Listens on loopback for as long as the test runs.
#[derive(Debug, Clone)]
pub struct Receiver {
    pub port: u16,
    desk: Arc<Mutex<Desk>>,
}

impl Receiver {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let desk = Arc::new(Mutex::new(Desk::default()));
        let shared = Arc::clone(&desk);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let desk = Arc::clone(&shared);
                thread::spawn(move || serve(stream, &desk));
            }
        });
        Self { port, desk }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook?who=me", self.port)
    }

    /// Answers so from now on.
    pub fn answer(&self, status: u16, headers: &str) {
        self.desk.lock().unwrap().answer = Some((status, headers.to_owned()));
    }

    /// Everything that came, in order.
    pub fn received(&self) -> Vec<Received> {
        self.desk.lock().unwrap().received.clone()
    }

    /// The events it has taken, in the order they came.
    pub fn taken(&self) -> Vec<Value> {
        let taken = self.received().into_iter().filter(|one| one.status == 200);
        taken.flat_map(|one| one.events()).collect()
    }

    /// Waits for an event that it has taken.
    pub fn until_taken(&self, what: &str, fits: impl Fn(&Value) -> bool) {
        until(what, || self.taken().iter().any(&fits));
    }

    pub fn forget(&self) {
        self.desk.lock().unwrap().received.clear();
    }
}

/// One request, one answer. A request that breaks off counts for nothing.
fn serve(stream: TcpStream, desk: &Mutex<Desk>) {
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let mut headers = Vec::new();
    loop {
        let mut text = String::new();
        if reader.read_line(&mut text).unwrap_or(0) == 0 {
            return;
        }
        let Some((name, value)) = text.trim_end().split_once(':') else { break };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let mut desk = desk.lock().unwrap();
    let (status, more) = desk.answer.clone().unwrap_or((200, String::new()));
    let answer = format!("HTTP/1.1 {status} So\r\n{more}Content-Length: 0\r\n\r\n");
    // On record before it is answered: who has the answer can look.
    desk.received.push(Received { line: line.trim_end().to_owned(), headers, body, status });
    drop(desk);
    (&stream).write_all(answer.as_bytes()).ok();
}
