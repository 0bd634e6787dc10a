//! Who gets a place, who waits, who is turned away.

use super::*;
use crate::context::{CallerRole, Door};

fn of(namespace: &str) -> CallContext {
    CallContext::new(Door::Library, "test").within(namespace.parse().unwrap(), CallerRole::Tenant)
}

fn line(running: usize, waiting: usize) -> Arc<Admission> {
    weighted(running, waiting, &[])
}

fn weighted(running: usize, waiting: usize, weights: &[(&str, u32)]) -> Arc<Admission> {
    let weights = weights.iter().map(|(name, weight)| (name.parse().unwrap(), *weight)).collect();
    Arc::new(Admission::new(Capacity { running, waiting }, weights))
}

/// Callers that come back as soon as they were served, as many of each as named; so many turns in all.
/// Gives how many turns each had.
async fn contest(admission: &Arc<Admission>, callers: &[(&'static str, usize)], turns: usize) -> Vec<usize> {
    let served = Arc::new(Mutex::new(HashMap::<&'static str, usize>::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for &(namespace, many) in callers {
        for _ in 0..many {
            let (admission, served) = (Arc::clone(admission), Arc::clone(&served));
            tasks.spawn(async move {
                let context = of(namespace);
                loop {
                    let place = admission.permit(&context).await.unwrap();
                    {
                        let mut served = crate::lock(&served);
                        if served.values().sum::<usize>() >= turns {
                            return;
                        }
                        *served.entry(namespace).or_default() += 1;
                    }
                    tokio::task::yield_now().await;
                    drop(place);
                }
            });
        }
    }
    while tasks.join_next().await.is_some() {}
    let served = crate::lock(&served);
    callers.iter().map(|(namespace, _)| served.get(namespace).copied().unwrap_or(0)).collect()
}

#[tokio::test]
async fn a_full_house_and_a_full_line_mean_busy() {
    let admission = line(1, 1);
    let inside = admission.permit(&of("a")).await.unwrap();
    let context = of("a");
    let waiting = admission.permit(&context);
    tokio::pin!(waiting);
    assert!(futures::poll!(&mut waiting).is_pending());
    let error = admission.permit(&of("a")).await.unwrap_err();
    assert_eq!(error.code, Code::Busy);
    assert!(error.code.retryable() && error.details["retry_after_seconds"].as_u64().unwrap() >= 1);
    assert_eq!(admission.load(), Load { running: 1, waiting: 1, admitted: 1, refused: 1 });
    drop(inside);
    assert!(waiting.await.is_ok());
    assert_eq!((admission.load().running, admission.load().waiting), (0, 0));
}

#[tokio::test]
async fn who_leaves_the_line_gives_its_place_back() {
    let admission = line(1, 1);
    let inside = admission.permit(&of("a")).await.unwrap();
    let leaving = of("a");
    leaving.cancelled.cancel();
    assert_eq!(admission.permit(&leaving).await.unwrap_err().code, Code::Cancelled);
    {
        // A caller that is dropped in the middle of waiting.
        let context = of("a");
        let waiting = admission.permit(&context);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        assert_eq!(admission.load().waiting, 1);
    }
    assert_eq!((admission.load().running, admission.load().waiting), (1, 0));
    {
        // One that is told of its turn and never looks.
        let context = of("a");
        let waiting = admission.permit(&context);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(inside);
        assert_eq!(admission.load().running, 1);
    }
    assert_eq!((admission.load().running, admission.load().waiting), (0, 0));
}

#[tokio::test]
async fn equal_weights_mean_equal_shares_though_one_sends_ten_times_as_much() {
    for places in [1, 2, 4] {
        let shares = contest(&line(places, 1000), &[("loud", 100), ("quiet", 10)], 4000).await;
        let quiet = shares[1] as f64 / 4000.0;
        assert!((0.4..=0.6).contains(&quiet), "{places} places: {shares:?}");
    }
}

#[tokio::test]
async fn shares_follow_the_weights() {
    let admission = weighted(2, 1000, &[("heavy", 3)]);
    let shares = contest(&admission, &[("heavy", 40), ("light", 40)], 4000).await;
    let heavy = shares[0] as f64 / 4000.0;
    assert!((0.65..=0.85).contains(&heavy), "{shares:?}");
}

#[tokio::test]
async fn a_full_line_of_one_is_no_wall_for_another() {
    let admission = line(1, 4);
    let _inside = admission.permit(&of("loud")).await.unwrap();
    let context = of("loud");
    let mut loud: Vec<_> = (0..4).map(|_| Box::pin(admission.permit(&context))).collect();
    for waiting in &mut loud {
        assert!(futures::poll!(waiting).is_pending());
    }
    let other = of("quiet");
    let mut quiet = Box::pin(admission.permit(&other));
    assert!(futures::poll!(&mut quiet).is_pending(), "it waits, and the last of the loud one is sent away");
    let turned_away = loud.pop().unwrap().await.unwrap_err();
    assert_eq!(turned_away.code, Code::Busy);
    assert_eq!(admission.load_of(&other.namespace).waiting, 1);
    assert_eq!(admission.load_of(&context.namespace).waiting, 3);
    // With half of the line each it stays as it is.
    let mut second = Box::pin(admission.permit(&other));
    assert!(futures::poll!(&mut second).is_pending());
    assert_eq!(admission.permit(&other).await.unwrap_err().code, Code::Busy);
}

#[tokio::test]
async fn more_room_lets_those_who_wait_in_and_less_sends_nobody_away() {
    let admission = line(1, 10);
    let inside = admission.permit(&of("a")).await.unwrap();
    let context = of("a");
    let mut waiting = Box::pin(admission.permit(&context));
    assert!(futures::poll!(&mut waiting).is_pending());
    admission.set_capacity(Capacity { running: 2, waiting: 10 });
    let second = waiting.await.unwrap();
    admission.set_capacity(Capacity { running: 1, waiting: 10 });
    assert_eq!(admission.load().running, 2);
    drop(inside);
    let mut waiting = Box::pin(admission.permit(&context));
    assert!(futures::poll!(&mut waiting).is_pending(), "there is one place, and it is taken");
    drop(second);
    drop(waiting.await.unwrap());
    let _inside = admission.permit(&context).await.unwrap();
    let mut waiting = Box::pin(admission.permit(&context));
    assert!(futures::poll!(&mut waiting).is_pending());
    admission.close();
    assert_eq!(waiting.await.unwrap_err().code, Code::DaemonUnavailable);
    assert_eq!(admission.permit(&context).await.unwrap_err().code, Code::DaemonUnavailable);
}
