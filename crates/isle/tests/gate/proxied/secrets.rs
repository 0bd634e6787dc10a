//! Secrets through the proxy: the hosts of a secret see its value in place of the placeholder, wherever a
//! request carries it; everybody else sees the placeholder, and that is told.

use serde_json::json;

use super::LANGUAGES;
use crate::harness::{per_connection, require, until};
use crate::opened::World;
use crate::servers::{Server, allow, make_process, needs};

/// With characters that mean something in headers, addresses and encodings.
const VALUE: &str = "t0k3n/+=&? 4711";

per_connection!(
    a_secret_takes_the_place_of_its_placeholder_through_the_proxy_and_only_on_the_way_to_its_hosts
);

fn a_secret_takes_the_place_of_its_placeholder_through_the_proxy_and_only_on_the_way_to_its_hosts() {
    let world = World::new("right");
    let daemon = &world.daemon;
    require!(make_process(daemon, "plain"));
    require!(needs(daemon, "curl"));
    let plain = Server::lenient();
    let hosts = [
        format!("web.test:{}/tls", world.port),
        format!("web.test:{}/http", plain.port),
        format!("other.test:{}/http", plain.port),
        format!("127.0.0.1:{},{}", world.port, plain.port),
    ];
    allow(daemon, "plain", &hosts);
    daemon.post(
        "/v1/secrets",
        json!({ "name": "TOKEN", "value": VALUE, "hosts": ["web.test"], "places": ["default", "query:key"] }),
    );
    daemon.post("/v1/sandboxes/plain/secrets", json!({ "secrets": ["TOKEN"] }));
    let placeholder = daemon.shell("plain", "printf %s \"$TOKEN\"");
    assert!(placeholder.starts_with("isle-secret-TOKEN-"), "{placeholder}");

    // Encrypted, in every place of a request that may have it; the body may not.
    for flags in &LANGUAGES[1..] {
        let (before, url) =
            (world.heard().len(), format!("https://web.test:{}/a?key=$TOKEN&b=1", world.port));
        let ask =
            format!("curl -sS -m 30 {flags} -u \"me:$TOKEN\" -H \"X-Key: $TOKEN\" -d \"$TOKEN\" \"{url}\"");
        assert_eq!(daemon.shell("plain", &ask), "heard\n", "{flags}");
        until("all of it was heard", || world.heard().split_off(before).concat().contains(&placeholder));
        let heard = world.heard().split_off(before).concat();
        for expected in [
            "POST /a?key=t0k3n%2F%2B%3D%26%3F%204711&b=1 HTTP/1.1\r\n",
            &format!("X-Key: {VALUE}\r\n"),
            "Authorization: Basic bWU6dDBrM24vKz0mPyA0NzEx\r\n",
        ] {
            assert!(heard.to_lowercase().contains(&expected.to_lowercase()), "{expected}: {heard}");
        }
        assert_eq!(heard.matches(&placeholder).count(), 1, "in the body alone: {heard}");
    }

    // Not encrypted, and to another host: the placeholder, and an event.
    for (host, unencrypted) in [("web.test", true), ("other.test", false)] {
        for flags in LANGUAGES {
            let before = plain.heard().len();
            let url = format!("http://{host}:{}/b?key=$TOKEN", plain.port);
            let ask = format!("curl -sS -m 30 {flags} -H \"X-Key: $TOKEN\" \"{url}\"");
            assert_eq!(daemon.shell("plain", &ask), "heard\n", "{host} {flags}");
            let heard = plain.heard().split_off(before).concat();
            assert_eq!(heard.matches(&placeholder).count(), 2, "{host} {flags}: {heard}");
        }
        until("it is told", || {
            let told = daemon.get("/v1/events/history?kind=secret_strayed")["events"].clone();
            told.as_array().unwrap().iter().any(|event| {
                let data = &event["data"];
                data["secret"] == "TOKEN"
                    && data["target"] == format!("{host}:{}", plain.port)
                    && (data["unencrypted"] == true) == unencrypted
            })
        });
    }
    for heard in [world.heard(), plain.heard()] {
        assert!(!heard.iter().any(|one| one.contains("isle-secret") && one.contains("t0k3n")), "{heard:#?}");
    }
    assert!(!plain.heard().concat().contains("t0k3n"), "{:#?}", plain.heard());
    // Nothing of the value is inside.
    let found = daemon.shell("plain", "env; grep -rsF t0k3n /proc/self/environ ~ /workspace /tmp || true");
    assert!(!found.contains("t0k3n"), "{found}");
}
