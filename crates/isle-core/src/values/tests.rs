//! Values at their borders.

use std::time::Duration;

use super::*;
use crate::error::Code;

#[test]
fn names_follow_one_rule() {
    let longest = "a".repeat(63);
    let deepest = format!("{longest}/b/c");
    for good in ["a", "9", "my-box_1.2", "a/b", "a/b/c", &longest, &deepest] {
        assert_eq!(good.parse::<SandboxName>().unwrap().as_str(), good);
    }
    let too_long = "a".repeat(64);
    for bad in [
        "", ".", "-a", "_a", "../x", "a/../b", "a/", "/a", "a//b", "a/b/c/d", "a b", "a\n", "ä", "a\0",
        &too_long,
    ] {
        let error = bad.parse::<SandboxName>().unwrap_err();
        assert_eq!(error.code, Code::InvalidName, "{bad:?}");
        assert!(!error.next_steps.is_empty());
    }
}

#[test]
fn durations_are_read_and_shown_the_same_way() {
    for (text, millis) in
        [("250ms", 250), ("30", 30_000), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000)]
    {
        assert_eq!(text.parse::<Span>().unwrap().0, Duration::from_millis(millis), "{text}");
    }
    assert_eq!("90s".parse::<Span>().unwrap().to_string(), "90s");
    assert_eq!("120s".parse::<Span>().unwrap().to_string(), "2m");
    for bad in ["", "s", "1x", "-1s", "1.5s", "99999999999999999999s", "30 s"] {
        assert_eq!(bad.parse::<Span>().unwrap_err().code, Code::InvalidDuration, "{bad:?}");
    }
}

#[test]
fn sizes_are_read_and_shown_the_same_way() {
    for (text, bytes) in [("512M", 512 << 20), ("2G", 2 << 30), ("64KiB", 64 << 10), ("1kb", 1024), ("7", 7)]
    {
        assert_eq!(text.parse::<ByteSize>().unwrap().0, bytes, "{text}");
    }
    assert_eq!(ByteSize::mib(1024).to_string(), "1G");
    for bad in ["", "12X", "-1M", "1.5G", "M", "99999999999999T"] {
        assert_eq!(bad.parse::<ByteSize>().unwrap_err().code, Code::InvalidSize, "{bad:?}");
    }
}

#[test]
fn arguments_may_be_numbers_where_text_with_digits_is_due() {
    assert_eq!(serde_json::from_str::<Span>("30").unwrap(), Span::seconds(30));
    assert_eq!(serde_json::from_str::<ByteSize>("1048576").unwrap(), ByteSize::mib(1));
    assert!(serde_json::from_str::<Span>("-1").is_err());
    assert!(serde_json::from_str::<Span>("true").is_err());
}

#[test]
fn guest_paths_never_climb() {
    for good in ["a", "a/b", "/etc/passwd", ".", "a..b", "..."] {
        assert!(good.parse::<GuestPath>().is_ok(), "{good:?}");
    }
    let too_long = "a".repeat(4096);
    for bad in ["", "..", "../x", "a/../b", "/a/..", "a\0b", &too_long] {
        assert_eq!(bad.parse::<GuestPath>().unwrap_err().code, Code::InvalidPath, "{bad:?}");
    }
    assert_eq!("a/b".parse::<GuestPath>().unwrap().absolute(), "/workspace/a/b");
    assert_eq!(GuestPath::workspace().absolute(), "/workspace");
    assert!(GuestPath::parse_absolute("tmp").is_err());
}

#[test]
fn ids_are_fresh_sorted_by_time_and_read_back() {
    let (first, second) = (RunId::fresh(), RunId::fresh());
    assert_ne!(first, second);
    assert_eq!(first.as_str().parse::<RunId>().unwrap(), first);
    assert!("run_x".parse::<RunId>().is_err());
    assert!(
        SandboxId::fresh().as_str().parse::<SandboxName>().is_ok(),
        "an id can stand where a name is due"
    );
}

#[test]
fn a_run_is_named_by_its_id_or_by_its_job() {
    let id = RunId::fresh();
    assert_eq!(id.as_str().parse::<RunOrJob>().unwrap(), RunOrJob::Run(id));
    for (text, shown) in [("web", "default:web"), ("box:web", "box:web"), ("a.b:c_d-1", "a.b:c_d-1")] {
        assert_eq!(text.parse::<RunOrJob>().unwrap().to_string(), shown);
    }
    for wrong in ["", ":", "a:", ":a", "a:b:c", "run_x", "../a", "a b", "box:run_x"] {
        let error = wrong.parse::<RunOrJob>().unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument, "{wrong:?}");
        assert!(!error.next_steps.is_empty());
    }
}

#[test]
fn the_name_of_a_job_cannot_be_taken_for_the_id_of_a_run() {
    assert!("web-1.log".parse::<JobName>().is_ok());
    for wrong in ["", "run_web", "-a", "a:b", "a/b", &"x".repeat(64)] {
        assert_eq!(wrong.parse::<JobName>().unwrap_err().code, Code::InvalidName, "{wrong:?}");
    }
}
