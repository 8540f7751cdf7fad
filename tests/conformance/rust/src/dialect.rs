//! What the dialect adds to AMQP: annotations, filters, requests and transactions.

use std::time::Duration;

use fe2o3_amqp::transaction::{
    OwnedTransaction, TransactionDischarge, TransactionPosting, TransactionRetirement,
};
use fe2o3_amqp::types::messaging::annotations::OwnedKey;
use fe2o3_amqp::types::messaging::{Data, Message, Modified, Properties};
use fe2o3_amqp::types::primitives::{Array, Binary, OrderedMap, Timestamp, Value};

use crate::world::{
    annotated, annotation, body, entity, longs, messages_in, now_ms, number_of, one, same, shown,
    text, with_properties, Answer, Done, Ends, Requests, Told,
};

const BUS: &str = "SHARDBUS_CONNECTION_STRING";
const SCHEDULED: &str = "x-opt-scheduled-enqueue-time";
/// By which the bus lists the sessions that have messages or a state.
const ALL_SESSIONS_MS: i64 = 253_402_300_800_000;
const PAGE: i32 = 2;

fn after(milliseconds: i64) -> Value {
    Value::Timestamp(Timestamp::from_milliseconds(now_ms() + milliseconds))
}

/// By the annotation; `$management` shows the number, by which it is cancelled.
pub async fn schedule(kind: &str) -> Done {
    let mut ends = Ends::open(BUS).await?;
    let never = annotated("never", SCHEDULED, after(3_600_000));
    ends.send(&entity(kind), vec![never, annotated("soon", SCHEDULED, after(1000))]).await?;
    let mut requests = Requests::open(&mut ends, &entity(kind)).await?;
    let pending = requests.peek(0, 10).await?;
    let never =
        pending.iter().find(|each| shown(&each.body.0) == "never").ok_or("it is not shown")?;
    same("state", annotation(never, "x-opt-message-state")?, Value::Int(2))?;
    let numbers = longs(&[number_of(never)?]);
    requests.ask("cancel-scheduled-message", vec![("sequence-numbers", numbers)], None).await?;
    let mut receiver = ends.locking(&entity(kind)).await?;
    let found = one(&mut receiver).await?;
    receiver.accept(&found).await?;
    same("body", body(&found), "soon".to_string())?;
    requests.wait_until_empty().await?;
    ends.close().await
}

pub async fn deferred(kind: &str) -> Done {
    let mut ends = Ends::open(BUS).await?;
    ends.send(&entity(kind), vec![text("later")]).await?;
    let mut receiver = ends.locking(&entity(kind)).await?;
    let found = one(&mut receiver).await?;
    let number = number_of(found.message())?;
    let later = Modified {
        delivery_failed: None,
        undeliverable_here: Some(true),
        message_annotations: None,
    };
    receiver.modify(&found, later).await?;
    let asked =
        vec![("sequence-numbers", longs(&[number])), ("receiver-settle-mode", Value::Uint(0))];
    let mut requests = Requests::open(&mut ends, &entity(kind)).await?;
    let answer = requests.ask("receive-by-sequence-number", asked, None).await?;
    let bodies: Vec<String> = messages_in(answer)?.iter().map(|each| shown(&each.body.0)).collect();
    same("bodies", bodies, vec!["later".to_string()])?;
    ends.close().await
}

pub async fn peek(kind: &str) -> Done {
    let wanted = ["a", "b", "c", "d", "e"];
    let mut ends = Ends::open(BUS).await?;
    ends.send(&entity(kind), wanted.iter().map(|each| text(each)).collect()).await?;
    let mut requests = Requests::open(&mut ends, &entity(kind)).await?;
    let (mut found, mut start) = (Vec::new(), 0);
    loop {
        let page = requests.peek(start, PAGE).await?;
        let Some(last) = page.last() else { break };
        same("a page that is too long", page.len() > PAGE as usize, false)?;
        start = number_of(last)? + 1;
        found.extend(page.iter().map(|each| shown(&each.body.0)));
    }
    found.sort();
    same("bodies", found, wanted.map(str::to_string).to_vec())?;
    let mut receiver = ends.locking(&entity(kind)).await?;
    for _ in wanted {
        let each = one(&mut receiver).await?;
        receiver.accept(&each).await?;
    }
    ends.close().await
}

pub async fn renew(kind: &str) -> Done {
    let mut ends = Ends::open(BUS).await?;
    ends.send(&entity(kind), vec![text("x")]).await?;
    let mut receiver = ends.locking(&entity(kind)).await?;
    let found = one(&mut receiver).await?;
    let annotations = found.message().delivery_annotations.as_ref().ok_or("no token")?;
    let token = annotations.iter().find_map(|(key, value)| match key {
        OwnedKey::Symbol(symbol) if symbol.as_str() == "x-opt-lock-token" => Some(value.clone()),
        _ => None,
    });
    let tokens = Value::Array(Array::from(vec![token.ok_or("no token")?]));
    let mut requests = Requests::open(&mut ends, &entity(kind)).await?;
    let answer = requests.ask("renew-lock", vec![("lock-tokens", tokens)], None).await?;
    let Value::Timestamp(before) = annotation(found.message(), "x-opt-locked-until")? else {
        return Err("no moment".into());
    };
    let Some(Value::Array(times)) = answer.get("expirations") else {
        return Err(format!("{answer:?}").into());
    };
    let is_later = matches!(times.first(), Some(Value::Timestamp(until)) if until.milliseconds() > before.milliseconds());
    same("a later moment", is_later, true)?;
    receiver.accept(&found).await?;
    ends.close().await
}

fn of_session(body: &str, session: &str) -> Message<Data> {
    with_properties(body, Properties::builder().group_id(session.to_string()).build())
}

pub async fn session_accept(kind: &str) -> Done {
    let queue = entity(&format!("sessions-{kind}"));
    let mut ends = Ends::open(BUS).await?;
    ends.send(&queue, vec![of_session("of one", "one"), of_session("of two", "two")]).await?;
    for name in ["two", "one"] {
        let (mut receiver, session) = ends.accepted(&queue, Some(name)).await?;
        same("session", session.as_str(), name)?;
        let found = one(&mut receiver).await?;
        receiver.accept(&found).await?;
        same("body", body(&found), format!("of {name}"))?;
        receiver.close().await?;
    }
    ends.close().await
}

pub async fn session_next(kind: &str) -> Done {
    let queue = entity(&format!("sessions-{kind}"));
    let mut ends = Ends::open(BUS).await?;
    ends.send(&queue, vec![of_session("x", "any")]).await?;
    let (mut receiver, session) = ends.accepted(&queue, None).await?;
    same("session", session.as_str(), "any")?;
    let found = one(&mut receiver).await?;
    receiver.accept(&found).await?;
    same("body", body(&found), "x".to_string())?;
    ends.close().await
}

pub async fn session_state(kind: &str) -> Done {
    let queue = entity(&format!("sessions-{kind}"));
    let mut ends = Ends::open(BUS).await?;
    let (receiver, _) = ends.accepted(&queue, Some("state")).await?;
    let mut requests = Requests::open(&mut ends, &queue).await?;
    let session = || ("session-id", Value::from("state"));
    let half = Value::Binary(Binary::from(b"half".to_vec()));
    let kept = vec![session(), ("session-state", half.clone())];
    requests.ask("set-session-state", kept, Some(&receiver)).await?;
    let answer = requests.ask("get-session-state", vec![session()], Some(&receiver)).await?;
    same("state", answer.get("session-state"), Some(&half))?;
    let none = vec![session(), ("session-state", Value::Null)];
    requests.ask("set-session-state", none, Some(&receiver)).await?;
    ends.close().await
}

fn expiration(answer: &Answer) -> Result<i64, String> {
    match answer.get("expiration") {
        Some(Value::Timestamp(moment)) => Ok(moment.milliseconds()),
        other => Err(format!("the expiration is {other:?}")),
    }
}

pub async fn session_renew(kind: &str) -> Done {
    let queue = entity(&format!("sessions-{kind}"));
    let mut ends = Ends::open(BUS).await?;
    let (receiver, _) = ends.accepted(&queue, Some("renewed")).await?;
    let mut requests = Requests::open(&mut ends, &queue).await?;
    let session = || vec![("session-id", Value::from("renewed"))];
    let first = expiration(&requests.ask("renew-session-lock", session(), Some(&receiver)).await?)?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let second =
        expiration(&requests.ask("renew-session-lock", session(), Some(&receiver)).await?)?;
    same("a later moment", second > first && first > now_ms(), true)?;
    ends.close().await
}

pub async fn session_list(kind: &str) -> Done {
    let queue = entity(&format!("sessions-{kind}"));
    let name = format!("listed-{}", now_ms());
    let mut ends = Ends::open(BUS).await?;
    ends.send(&queue, vec![of_session("x", &name)]).await?;
    let mut requests = Requests::open(&mut ends, &queue).await?;
    let asked = vec![
        ("last-updated-time", Value::Timestamp(Timestamp::from_milliseconds(ALL_SESSIONS_MS))),
        ("skip", Value::Int(0)),
        ("top", Value::Int(100)),
    ];
    let answer = requests.ask("get-message-sessions", asked, None).await?;
    let names = Value::Array(Array::from(vec![Value::from(name.as_str())]));
    same("sessions", answer.get("sessions-ids"), Some(&names))?;
    let (mut receiver, _) = ends.accepted(&queue, Some(&name)).await?;
    let found = one(&mut receiver).await?;
    receiver.accept(&found).await?;
    ends.close().await
}

pub async fn rule_manager() -> Told {
    let mut ends = Ends::open(BUS).await?;
    let subscription = format!("{}/Subscriptions/red", entity("topic"));
    let mut requests = Requests::open(&mut ends, &subscription).await?;
    let map = |name: &str, value: Value| {
        let mut found = OrderedMap::new();
        found.insert(Value::from(name), value);
        Value::Map(found)
    };
    let filter = map("sql-filter", map("expression", Value::from("colour = 'green'")));
    let rule = vec![("rule-name", Value::from("green")), ("rule-description", filter)];
    requests.ask("add-rule", rule, None).await?;
    same("rules", count_rules(&mut requests).await?, 2)?;
    requests.ask("remove-rule", vec![("rule-name", Value::from("green"))], None).await?;
    same("rules", count_rules(&mut requests).await?, 1)?;
    ends.close().await?;
    Ok("rules added, listed and removed by requests".to_string())
}

async fn count_rules(requests: &mut Requests) -> Result<usize, Box<dyn std::error::Error>> {
    let asked = vec![("skip", Value::Int(0)), ("top", Value::Int(100))];
    match requests.ask("enumerate-rules", asked, None).await?.remove("rules") {
        Some(Value::List(rules)) => Ok(rules.len()),
        other => Err(format!("the rules are {other:?}").into()),
    }
}

pub async fn duplicates(kind: &str) -> Done {
    let queue = entity(&format!("ids-{kind}"));
    let mut ends = Ends::open(BUS).await?;
    let sent = ["same", "same", "other"]
        .map(|id| with_properties(id, Properties::builder().message_id(id.to_string()).build()));
    ends.send(&queue, sent.into()).await?;
    let mut receiver = ends.locking(&queue).await?;
    let mut found = Vec::new();
    for _ in 0..2 {
        let each = one(&mut receiver).await?;
        receiver.accept(&each).await?;
        found.push(body(&each));
    }
    found.sort();
    same("bodies", found, vec!["other".to_string(), "same".to_string()])?;
    Requests::open(&mut ends, &queue).await?.wait_until_empty().await?;
    ends.close().await
}

/// One message taken and another sent, all or nothing.
async fn move_one(source: &str, target: &str, is_commit: bool) -> Done {
    // In a transaction, a partitioned entity wants one key.
    let keyed = |body: &str| annotated(body, "x-opt-partition-key", Value::from("one"));
    let mut ends = Ends::open(BUS).await?;
    ends.send(source, vec![keyed("old")]).await?;
    let mut receiver = ends.locking(source).await?;
    let mut sender = ends.sender(target).await?;
    let taken = one(&mut receiver).await?;
    let transaction = OwnedTransaction::declare(&mut ends.session, "coordinator", None).await?;
    transaction.post(&mut sender, keyed("new")).await?;
    transaction.accept(&mut receiver, &taken).await?;
    if is_commit {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    ends.close().await?;
    // Another connection: one that has sent in a transaction may not receive from its target.
    let mut ends = Ends::open(BUS).await?;
    let (left, wanted) = if is_commit { (target, "new") } else { (source, "old") };
    let mut receiver = ends.locking(left).await?;
    let found = one(&mut receiver).await?;
    same("body", body(&found), wanted.to_string())?;
    receiver.accept(&found).await?;
    for name in [source, target] {
        Requests::open(&mut ends, name).await?.wait_until_empty().await?;
    }
    ends.close().await
}

pub async fn transaction(kind: &str) -> Done {
    for is_commit in [true, false] {
        move_one(&entity(kind), &entity(kind), is_commit).await?;
    }
    Ok(())
}

pub async fn across(kind: &str) -> Done {
    for is_commit in [true, false] {
        move_one(&entity(kind), &entity("results"), is_commit).await?;
    }
    Ok(())
}
