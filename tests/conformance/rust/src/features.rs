//! What every AMQP client does: sending, receiving, settling.

use std::collections::BTreeMap;

use fe2o3_amqp::link::delivery::{Delivery, Sendable};
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::types::definitions::SenderSettleMode;
use fe2o3_amqp::types::messaging::message::__private::Serializable;
use fe2o3_amqp::types::messaging::{
    ApplicationProperties, Batch, Data, Message, Modified, Properties,
};
use fe2o3_amqp::types::primitives::{Binary, Value};

use crate::world::{annotated, body, entity, one, same, text, with_properties, Done, Ends, Told};

const BATCH_FORMAT: u32 = 0x8001_3700;
const AT_ONCE: usize = 20;

fn deliveries(found: &Delivery<Data>) -> u32 {
    found.message().header.as_ref().map_or(0, |header| header.delivery_count)
}

pub async fn send_one(kind: &str) -> Done {
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    let properties = Properties::builder().message_id("id-1".to_string()).subject("subject");
    ends.send(&entity(kind), vec![with_properties("hello", properties.build())]).await?;
    let mut receiver = ends.locking(&entity(kind)).await?;
    let found = one(&mut receiver).await?;
    receiver.accept(&found).await?;
    same("body", body(&found), "hello".to_string())?;
    let properties = found.message().properties.clone().ok_or("no properties")?;
    same("subject", properties.subject, Some("subject".to_string()))?;
    ends.close().await
}

/// Each message is a section of data in one transfer of another format.
pub async fn batch(kind: &str) -> Done {
    let bodies = ["one", "three", "two"];
    let sections = bodies.iter().map(|each| {
        let bytes = serde_amqp::to_vec(&Serializable(text(each)))?;
        Ok::<_, serde_amqp::Error>(Data(Binary::from(bytes)))
    });
    let message: Message<Batch<Data>> =
        Message::builder().body(Batch::from(sections.collect::<Result<Vec<_>, _>>()?)).build();
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    let mut sender = ends.sender(&entity(kind)).await?;
    let whole = Sendable::builder().message(message).message_format(BATCH_FORMAT).build();
    sender.send(whole).await?.accepted_or_else(|state| format!("{state:?}"))?;
    let mut receiver = ends.locking(&entity(kind)).await?;
    let mut found = Vec::new();
    for _ in bodies {
        let each = one(&mut receiver).await?;
        receiver.accept(&each).await?;
        found.push(body(&each));
    }
    found.sort();
    same("bodies", found, bodies.map(str::to_string).to_vec())?;
    ends.close().await
}

/// Many messages are sent before the first is answered; two receivers take them at the same time.
pub async fn at_once(kind: &str) -> Done {
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    let mut sender = ends.sender(&entity(kind)).await?;
    let mut answers = Vec::new();
    for number in 0..AT_ONCE {
        answers.push(sender.send_batchable(text(&number.to_string())).await?);
    }
    for answer in answers {
        answer.await?.accepted_or_else(|state| format!("{state:?}"))?;
    }
    let mut left = ends.locking(&entity(kind)).await?;
    let mut right = ends.locking(&entity(kind)).await?;
    let mut found = Vec::new();
    for _ in 0..AT_ONCE / 2 {
        let (first, second) = tokio::join!(one(&mut left), one(&mut right));
        let (first, second) = (first?, second?);
        left.accept(&first).await?;
        right.accept(&second).await?;
        found.extend([body(&first).parse::<usize>()?, body(&second).parse::<usize>()?]);
    }
    found.sort();
    same("bodies", found, (0..AT_ONCE).collect())?;
    ends.close().await
}

pub async fn keyed() -> Told {
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    let mut messages = Vec::new();
    for number in 0..12 {
        let key = Value::String((number % 3).to_string());
        messages.push(annotated(&format!("{} {number}", number % 3), "x-opt-partition-key", key));
    }
    ends.send(&entity("partitioned"), messages).await?;
    let mut receiver = ends.locking(&entity("partitioned")).await?;
    let mut last: BTreeMap<String, i32> = BTreeMap::new();
    for _ in 0..12 {
        let found = one(&mut receiver).await?;
        receiver.accept(&found).await?;
        let told = body(&found);
        let (key, number) = told.split_once(' ').ok_or("no key")?;
        let number: i32 = number.parse()?;
        let before = last.insert(key.to_string(), number).unwrap_or(-1);
        if before >= number {
            return Err(format!("{number} of {key} comes after {before}").into());
        }
    }
    ends.close().await?;
    Ok("one order for each key".to_string())
}

pub async fn receive(kind: &str) -> Done {
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    ends.send(&entity(kind), vec![text("locked")]).await?;
    let mut locking = ends.locking(&entity(kind)).await?;
    let found = one(&mut locking).await?;
    locking.accept(&found).await?;
    same("body", body(&found), "locked".to_string())?;
    locking.close().await?;
    ends.send(&entity(kind), vec![text("deleted")]).await?;
    let mut deleting =
        ends.receiver(&entity(kind), SenderSettleMode::Settled, CreditMode::Manual).await?;
    same("body", body(&one(&mut deleting).await?), "deleted".to_string())?;
    ends.close().await
}

/// Released and modified messages come again; an accepted one does not.
pub async fn settle(kind: &str) -> Done {
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    ends.send(&entity(kind), vec![text("x")]).await?;
    let mut receiver = ends.locking(&entity(kind)).await?;
    let first = one(&mut receiver).await?;
    receiver.release(&first).await?;
    let released = one(&mut receiver).await?;
    same("deliveries", deliveries(&released), 0)?;
    let failed = Modified {
        delivery_failed: Some(true),
        undeliverable_here: None,
        message_annotations: None,
    };
    receiver.modify(&released, failed).await?;
    let modified = one(&mut receiver).await?;
    same("deliveries", deliveries(&modified), 1)?;
    receiver.accept(&modified).await?;
    ends.close().await
}

pub async fn dead_letters(kind: &str) -> Done {
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    ends.send(&entity(kind), vec![text("bad")]).await?;
    let mut receiver = ends.locking(&entity(kind)).await?;
    let found = one(&mut receiver).await?;
    receiver.reject(&found, None).await?;
    let mut dead = ends.locking(&format!("{}/$DeadLetterQueue", entity(kind))).await?;
    let letter = one(&mut dead).await?;
    dead.accept(&letter).await?;
    same("body", body(&letter), "bad".to_string())?;
    ends.close().await
}

pub async fn prefetch(kind: &str) -> Done {
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    let messages = (0..20).map(|number| text(&number.to_string())).collect();
    ends.send(&entity(kind), messages).await?;
    let mut receiver =
        ends.receiver(&entity(kind), SenderSettleMode::Unsettled, CreditMode::Auto(20)).await?;
    let mut found = Vec::new();
    for _ in 0..20 {
        let delivery = receiver.recv::<Data>().await?;
        receiver.accept(&delivery).await?;
        found.push(body(&delivery).parse::<i32>()?);
    }
    found.sort();
    same("bodies", found, (0..20).collect())?;
    ends.close().await
}

pub async fn rules() -> Told {
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    let mut messages = Vec::new();
    for colour in ["red", "blue", "red"] {
        let mut message = text(colour);
        message.application_properties =
            Some(ApplicationProperties::builder().insert("colour", colour).build());
        messages.push(message);
    }
    ends.send(&entity("topic"), messages).await?;
    let mut receiver = ends.locking(&format!("{}/Subscriptions/red", entity("topic"))).await?;
    for _ in 0..2 {
        let found = one(&mut receiver).await?;
        receiver.accept(&found).await?;
        same("body", body(&found), "red".to_string())?;
    }
    ends.close().await?;
    Ok("what a rule of the subscription selects".to_string())
}

pub async fn large() -> Told {
    let mut ends = Ends::open("SHARDBUS_PREMIUM_CONNECTION_STRING").await?;
    let message = Message::from(Data(Binary::from(vec![0u8; 10 << 20])));
    ends.send(&entity("large"), vec![message]).await?;
    let mut receiver = ends.locking(&entity("large")).await?;
    let found = one(&mut receiver).await?;
    receiver.accept(&found).await?;
    same("bytes", found.body().0.len(), 10 << 20)?;
    ends.close().await?;
    Ok("10 MiB in Premium".to_string())
}
