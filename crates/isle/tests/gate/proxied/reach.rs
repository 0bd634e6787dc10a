//! Clients that work through the proxy as they are, bulk data included, and read why they are denied.

use serde_json::{Value, json};

use super::{TUNNEL, ground, pages, reaching, stdout};
use crate::harness::{per_connection, require, sh, skip_part, until};
use crate::servers::{Server, allow, has, python};

per_connection!(curl_reaches_what_is_granted_by_every_language_of_the_proxy_and_reads_why_it_is_denied);

fn curl_reaches_what_is_granted_by_every_language_of_the_proxy_and_reads_why_it_is_denied() {
    let daemon = require!(ground());
    let (_directory, _server, port) = pages();
    let curl = |host: &str, flags: &str| format!("curl -sS -m 30 {flags} http://{host}:{port}/page");
    // Nothing is granted: there is neither a proxy nor a socket.
    let run = daemon.exec("plain", json!({ "command": curl("web.test", "") }));
    assert_eq!(run["state"], "failed", "{run}");
    assert_eq!(stdout(&daemon, "echo \"${HTTPS_PROXY-none} ${http_proxy-none}\""), "none none\n");

    allow(&daemon, "plain", &reaching(port));
    let proxy = "http://127.0.0.1:3128";
    assert_eq!(
        stdout(&daemon, "echo $HTTP_PROXY $https_proxy $ALL_PROXY $NODE_USE_ENV_PROXY"),
        format!("{proxy} {proxy} {proxy} 1\n")
    );
    let socks = |kind: &str| format!("-x {kind}://127.0.0.1:3128");
    for flags in
        ["", "--proxytunnel", &socks("socks5h"), "-x http://[::1]:3128", "-x http://[::ffff:127.0.0.1]:3128"]
    {
        assert_eq!(stdout(&daemon, &curl("web.test", flags)), "the page\n", "{flags}");
        assert_eq!(stdout(&daemon, &curl("WEB.test.", flags)), "the page\n", "{flags}");
    }
    // An address that was granted is reached as one, too.
    assert_eq!(stdout(&daemon, &curl("127.0.0.1", &socks("socks5h"))), "the page\n");

    // A name that is not granted: readable over HTTP, by number over SOCKS, and in the result.
    let denied = daemon.exec("plain", json!({ "command": curl("other.test", "-w %{http_code}") }));
    let text = denied["stdout"].as_str().unwrap();
    assert!(text.ends_with("403") && text.contains("reason: not_granted"), "{denied}");
    let violations = denied["violations"].to_string();
    assert!(violations.contains("other.test") && violations.contains("isle allow plain"), "{denied}");
    let denied = daemon.exec("plain", json!({ "command": curl("other.test", "--proxytunnel -i") }));
    assert!(denied["stdout"].as_str().unwrap().contains("X-Isle-Denied: not_granted"), "{denied}");
    let denied = daemon.exec("plain", json!({ "command": curl("other.test", &socks("socks5h")) }));
    assert_eq!(denied["exit_code"], 97, "{denied}");
    assert!(denied["stderr"].as_str().unwrap().contains("(2)"), "{denied}");
    // Nobody there: a word of the proxy's own.
    let nobody = crate::servers::free_port();
    allow(&daemon, "plain", &reaching(nobody));
    let gone = |flags: &str| {
        let command = format!("curl -sS -m 30 {flags} http://web.test:{nobody}/");
        daemon.exec("plain", json!({ "command": command }))
    };
    assert!(gone("-i").to_string().contains("502 Bad Gateway"));
    assert!(gone("--proxytunnel").to_string().contains("502"));
    assert!(gone(&socks("socks5h"))["stderr"].as_str().unwrap().contains("(5)"));

    // It is written down as everywhere, and taking it back is felt at once.
    let net = daemon.get("/v1/sandboxes/plain/net");
    assert!(net.to_string().contains(&format!("web.test:{port}")), "{net}");
    daemon.succeeds(&["revoke", "plain", &format!("web.test:{port}")]);
    let run = daemon.exec("plain", json!({ "command": curl("web.test", "") }));
    assert!(run["stdout"].as_str().unwrap().contains("reason: "), "{run}");
}

per_connection!(bulk_data_passes_the_proxy_whole_both_ways_and_is_counted);

fn bulk_data_passes_the_proxy_whole_both_ways_and_is_counted() {
    let daemon = require!(ground());
    let echo = Server::echo();
    allow(&daemon, "plain", &reaching(echo.port));
    // Far more than any buffer has, and no two portions alike.
    let script = format!(
        "{TUNNEL}\n\
         import hashlib, json, threading\n\
         one = tunnel({})\n\
         sent, heard = hashlib.sha256(), hashlib.sha256()\n\
         def send():\n\
         \u{20} for number in range(40):\n\
         \u{20}  piece = hashlib.sha256(b'%d' % number).digest() * 32768\n\
         \u{20}  one.sendall(piece); sent.update(piece)\n\
         \u{20} one.shutdown(socket.SHUT_WR)\n\
         thread = threading.Thread(target=send); thread.start()\n\
         while piece := one.recv(1 << 20): heard.update(piece)\n\
         thread.join()\n\
         print(json.dumps(sent.hexdigest() == heard.hexdigest()))",
        echo.port
    );
    assert_eq!(python(&daemon, "plain", &script, &[]), true);
    let size = 40 * 32 * 32768;
    until("it was counted", || {
        let grants = daemon.get("/v1/sandboxes/plain/grants");
        let counted = |grant: &Value| grant["sent_bytes"] == size && grant["received_bytes"] == size;
        grants["grants"].as_array().unwrap().iter().any(counted)
    });
}

per_connection!(package_clients_and_libraries_work_through_the_proxy_as_they_are);

fn package_clients_and_libraries_work_through_the_proxy_as_they_are() {
    let daemon = require!(ground());
    let (directory, _server, port) = pages();
    sh(
        directory.path(),
        "git init -q source; cd source; echo granted > file; git add file\n\
         git -c user.name=a -c user.email=a@b.test commit -qm first; cd ..\n\
         git clone -q --bare source repo.git; git -C repo.git update-server-info",
    );
    allow(&daemon, "plain", &reaching(port));
    let clone = format!("git clone -q http://web.test:{port}/repo.git && cat repo/file");
    assert_eq!(stdout(&daemon, &clone), "granted\n");
    let url = format!("http://web.test:{port}/page");
    let urllib = format!(
        "import urllib.request; print(urllib.request.urlopen('{url}', timeout=60).read().decode(), end='')"
    );
    let client = format!(
        "import http.client\n\
         connection = http.client.HTTPConnection('127.0.0.1', 3128, timeout=60)\n\
         connection.set_tunnel('web.test', {port}); connection.request('GET', '/page')\n\
         print(connection.getresponse().read().decode(), end='')"
    );
    let requests = format!("import requests; print(requests.get('{url}', timeout=60).text, end='')");
    let aiohttp = format!(
        "import aiohttp, asyncio\n\
         async def main():\n\
         \u{20} async with aiohttp.ClientSession(trust_env=True) as session:\n\
         \u{20}\u{20} async with session.get('{url}') as answer: print(await answer.text(), end='')\n\
         asyncio.run(main())"
    );
    for (module, script) in
        [("urllib", urllib), ("http", client), ("requests", requests), ("aiohttp", aiohttp)]
    {
        let there = json!({ "argv": ["/usr/bin/python3", "-c", format!("import {module}")] });
        if daemon.exec("plain", there)["exit_code"] != 0 {
            skip_part!("this host has no Python with {module} where a sandbox could see it");
            continue;
        }
        let run =
            daemon.exec("plain", json!({ "argv": ["/usr/bin/python3", "-c", script], "timeout": "120s" }));
        assert_eq!(run["stdout"], "the page\n", "{module}: {run}");
    }
    if has(&daemon, "node") {
        // By hand: only later versions heed the variables by themselves.
        let ask = format!(
            "require('http').get({{ host: '127.0.0.1', port: 3128, path: '{url}', headers: {{ Host: 'web.test:{port}' }} }}, answer => answer.pipe(process.stdout))"
        );
        let run = daemon.exec("plain", json!({ "argv": ["node", "-e", ask], "timeout": "120s" }));
        assert_eq!(run["stdout"], "the page\n", "{run}");
    }
}
