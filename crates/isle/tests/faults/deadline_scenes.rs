//! Scenes about how long sandboxes live.

use isle_fail::Point;
use serde_json::{Value, json};

use crate::ground::{Ground, Told, assert_usable};
use crate::scenes::Scene;

fn brief(ground: &Ground) -> Value {
    ground.daemon.get("/v1/status?sandbox=box")["sandboxes"][0].clone()
}

fn make(ground: &mut Ground, settings: Value) {
    ground.daemon.post("/v1/sandboxes", settings);
}

pub(crate) const EXTEND: Scene = Scene {
    name: "extend",
    prepare: |ground| make(ground, json!({"sandbox": "box", "ttl": "1d"})),
    act: |ground| ground.ask("POST /v1/sandboxes/box/extend", Some(&json!({"by": "20d"}))),
    settle: |_| {},
    check: |ground, told| {
        // The days of the month are the same only when nothing was moved: 21 days are no month.
        let (made, expires) = (brief(ground)["created_at"].clone(), brief(ground)["expires_at"].clone());
        let day = |time: &Value| time.as_str().unwrap()[8..10].parse::<i64>().unwrap();
        let moved = !(1..=2).contains(&(day(&expires) - day(&made)).rem_euclid(28));
        assert!(moved || !matches!(told, Told::Done(_)), "it was acknowledged and is lost: {made} {expires}");
        assert_usable(ground, "box");
    },
    last: Point::ExtendRecorded,
    keeps: &[],
};

/// A look at its files is use, which the sweeper writes down.
pub(crate) const USE: Scene = Scene {
    name: "use of a sandbox with an idle time",
    prepare: |ground| make(ground, json!({"sandbox": "box", "idle": "1h"})),
    act: |ground| ground.ask("GET /v1/sandboxes/box/files/list?path=.", None),
    settle: |_| {},
    check: |ground, _| {
        assert!(brief(ground)["idle_expires_at"].is_string(), "{}", brief(ground));
        assert_usable(ground, "box");
    },
    last: Point::SweepUseRecorded,
    keeps: &[],
};
