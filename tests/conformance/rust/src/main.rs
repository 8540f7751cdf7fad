//! fe2o3-amqp, a general AMQP 1.0 client, against a bus: one line of JSON for each feature.
//!
//! ```text
//! conformance features [NAME...]
//! conformance load NAME QUEUE
//! ```
//!
//! The bus is named by variables, and tests/conformance/test_sdks.py has made the entities: plain
//! AMQP cannot. What the client could do and no scenario tries is not told, so the table says that
//! it was not run.

mod dialect;
mod features;
mod load;
mod streams;
mod world;

use std::env;
use std::future::Future;

use world::{Done, Told, LIMIT};

const KINDS: [&str; 2] = ["conventional", "partitioned"];
const NO_CALL: &str = "plain AMQP has no such call";
const NOT_OFFERED: [(&str, &str); 4] = [
    ("administration", NO_CALL),
    ("auto-renew", NO_CALL),
    ("session-push", NO_CALL),
    ("push", "the client has no such call"),
];
const TRIED: [&str; 25] = [
    "send",
    "batch",
    "keyed",
    "schedule",
    "receive",
    "settle",
    "deferred",
    "dead-letters",
    "session-accept",
    "session-next",
    "session-state",
    "session-renew",
    "session-list",
    "peek",
    "renew",
    "prefetch",
    "async",
    "rules",
    "rule-manager",
    "transaction",
    "transaction-across",
    "duplicates",
    "large",
    "websocket",
    "tls",
];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.as_slice() {
        [mode, name, queue] if mode == "load" => report(name, load::run(queue).await),
        _ => try_features(words.get(1..).unwrap_or_default()).await,
    }
}

async fn try_features(wanted: &[String]) {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|each| each == name);
    for name in TRIED.into_iter().filter(|name| is_wanted(name)) {
        match tokio::time::timeout(LIMIT, attempt(name)).await {
            Ok(told) => report(name, told),
            Err(_) => tell(name, "failed", "it took too long"),
        }
    }
    for (name, reason) in NOT_OFFERED.into_iter().filter(|(name, _)| is_wanted(name)) {
        tell(name, "not offered", reason);
    }
}

fn report(name: &str, told: Told) {
    match told {
        Ok(detail) => tell(name, "passed", &detail),
        Err(failure) => tell(name, "failed", &format!("{failure:?}")),
    }
}

fn tell(feature: &str, outcome: &str, detail: &str) {
    let quoted = detail.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ");
    println!(r#"{{"feature":"{feature}","outcome":"{outcome}","detail":"{quoted}"}}"#);
}

async fn attempt(name: &str) -> Told {
    match name {
        "send" => on_both(features::send_one).await,
        "batch" => on_both(features::batch).await,
        "keyed" => features::keyed().await,
        "schedule" => on_both(dialect::schedule).await,
        "receive" => on_both(features::receive).await,
        "settle" => on_both(features::settle).await,
        "deferred" => on_both(dialect::deferred).await,
        "dead-letters" => on_both(features::dead_letters).await,
        "session-accept" => on_both(dialect::session_accept).await,
        "session-next" => on_both(dialect::session_next).await,
        "session-state" => on_both(dialect::session_state).await,
        "session-renew" => on_both(dialect::session_renew).await,
        "session-list" => on_both(dialect::session_list).await,
        "peek" => on_both(dialect::peek).await,
        "renew" => on_both(dialect::renew).await,
        "prefetch" => on_both(features::prefetch).await,
        "async" => on_both(features::at_once).await,
        "rules" => features::rules().await,
        "rule-manager" => dialect::rule_manager().await,
        "transaction" => on_both(dialect::transaction).await,
        "transaction-across" => on_both(dialect::across).await,
        "duplicates" => on_both(dialect::duplicates).await,
        "large" => features::large().await,
        "websocket" => streams::websocket().await,
        "tls" => streams::tls().await,
        _ => Err(format!("there is no scenario {name}").into()),
    }
}

async fn on_both<Running>(scenario: impl Fn(&'static str) -> Running) -> Told
where
    Running: Future<Output = Done>,
{
    for kind in KINDS {
        scenario(kind).await?;
    }
    Ok(KINDS.join(" and "))
}
