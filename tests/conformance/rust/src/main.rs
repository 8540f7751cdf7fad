//! fe2o3-amqp, a general AMQP 1.0 client, against a bus: one line of JSON for each feature.
//!
//! ```text
//! conformance features [NAME...]
//! ```
//!
//! The bus is named by variables, and tests/conformance/test_sdks.py has made the entities: plain
//! AMQP cannot. What the client could do and no scenario tries is not told, so the table says that
//! it was not run.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::SenderSettleMode;
use fe2o3_amqp::types::messaging::{
    ApplicationProperties, Data, Message, MessageAnnotations, Modified, Properties,
};
use fe2o3_amqp::types::primitives::{Binary, Value};
use fe2o3_amqp::{Connection, Receiver, Sender, Session};

type Told = Result<String, Box<dyn Error>>;

const LIMIT: Duration = Duration::from_secs(60);
const KINDS: [&str; 2] = ["conventional", "partitioned"];
const BOTH: &str = "conventional and partitioned";
const NOT_OFFERED: [&str; 3] = ["administration", "auto-renew", "session-push"];
const TRIED: [&str; 8] = [
    "send",
    "keyed",
    "receive",
    "settle",
    "dead-letters",
    "prefetch",
    "rules",
    "large",
];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let wanted: Vec<String> = env::args().skip(2).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|each| each == name);
    for name in TRIED.into_iter().filter(|name| is_wanted(name)) {
        match tokio::time::timeout(LIMIT, attempt(name)).await {
            Ok(Ok(detail)) => tell(name, "passed", &detail),
            Ok(Err(failure)) => tell(name, "failed", &format!("{failure:?}")),
            Err(_) => tell(name, "failed", "it took too long"),
        }
    }
    for name in NOT_OFFERED.into_iter().filter(|name| is_wanted(name)) {
        tell(name, "not offered", "plain AMQP has no such call");
    }
}

fn tell(feature: &str, outcome: &str, detail: &str) {
    let quoted = detail.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ");
    println!(r#"{{"feature":"{feature}","outcome":"{outcome}","detail":"{quoted}"}}"#);
}

async fn attempt(name: &str) -> Told {
    match name {
        "keyed" => return keyed().await,
        "rules" => return rules().await,
        "large" => return large().await,
        _ => {}
    }
    for kind in KINDS {
        match name {
            "send" => send_one(kind).await?,
            "receive" => receive(kind).await?,
            "settle" => settle(kind).await?,
            "dead-letters" => dead_letters(kind).await?,
            _ => prefetch(kind).await?,
        }
    }
    Ok(BOTH.to_string())
}

/// A connection that shows the key of a connection string itself, and a session.
struct Ends {
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
    links: usize,
}

impl Ends {
    async fn open(variable: &str) -> Result<Ends, Box<dyn Error>> {
        let text = env::var(variable)?;
        let fields: BTreeMap<&str, &str> =
            text.split(';').filter_map(|field| field.split_once('=')).collect();
        let address = fields["Endpoint"].replace("sb://", "amqp://");
        let mut connection = Connection::builder()
            .container_id("rust")
            .sasl_profile(SaslProfile::Plain {
                username: fields["SharedAccessKeyName"].to_string(),
                password: fields["SharedAccessKey"].to_string(),
            })
            .open(address.trim_end_matches('/'))
            .await?;
        let session = Session::begin(&mut connection).await?;
        Ok(Ends { connection, session, links: 0 })
    }

    fn link_name(&mut self) -> String {
        self.links += 1;
        format!("link-{}", self.links)
    }

    async fn send(
        &mut self,
        address: &str,
        messages: Vec<Message<Data>>,
    ) -> Result<(), Box<dyn Error>> {
        let name = self.link_name();
        let mut sender = Sender::attach(&mut self.session, name, address).await?;
        for message in messages {
            sender.send(message).await?.accepted_or_else(|state| format!("{state:?}"))?;
        }
        sender.close().await?;
        Ok(())
    }

    /// A receiver that gets as many messages as it asks for.
    async fn receiver(
        &mut self,
        address: &str,
        mode: SenderSettleMode,
        credit: CreditMode,
    ) -> Result<Receiver, Box<dyn Error>> {
        let name = self.link_name();
        Ok(Receiver::builder()
            .name(name)
            .source(address)
            .sender_settle_mode(mode)
            .credit_mode(credit)
            .attach(&mut self.session)
            .await?)
    }

    async fn locking(&mut self, address: &str) -> Result<Receiver, Box<dyn Error>> {
        self.receiver(address, SenderSettleMode::Unsettled, CreditMode::Manual).await
    }

    async fn close(mut self) -> Result<(), Box<dyn Error>> {
        self.session.end().await?;
        self.connection.close().await?;
        Ok(())
    }
}

fn entity(kind: &str) -> String {
    format!("{}-{kind}", env::var("SHARDBUS_PREFIX").unwrap_or_default())
}

fn text(body: &str) -> Message<Data> {
    Message::from(Data(Binary::from(body.as_bytes().to_vec())))
}

async fn one(receiver: &mut Receiver) -> Result<Delivery<Data>, Box<dyn Error>> {
    receiver.set_credit(1).await?;
    Ok(receiver.recv::<Data>().await?)
}

fn body(delivery: &Delivery<Data>) -> String {
    String::from_utf8_lossy(&delivery.body().0).into_owned()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what}: {found:?} instead of {wanted:?}"))
}

fn deliveries(found: &Delivery<Data>) -> u32 {
    found.message().header.as_ref().map_or(0, |header| header.delivery_count)
}

async fn send_one(kind: &str) -> Result<(), Box<dyn Error>> {
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    let mut message = text("hello");
    message.properties =
        Some(Properties::builder().message_id("id-1".to_string()).subject("subject").build());
    ends.send(&entity(kind), vec![message]).await?;
    let mut receiver = ends.locking(&entity(kind)).await?;
    let found = one(&mut receiver).await?;
    receiver.accept(&found).await?;
    same("body", body(&found), "hello".to_string())?;
    let properties = found.message().properties.clone().ok_or("no properties")?;
    same("subject", properties.subject, Some("subject".to_string()))?;
    ends.close().await
}

async fn keyed() -> Told {
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    let mut messages = Vec::new();
    for number in 0..12 {
        let mut message = text(&format!("{} {number}", number % 3));
        let mut annotations = MessageAnnotations::default();
        annotations
            .insert("x-opt-partition-key".into(), Value::String((number % 3).to_string()));
        message.message_annotations = Some(annotations);
        messages.push(message);
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

async fn receive(kind: &str) -> Result<(), Box<dyn Error>> {
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
async fn settle(kind: &str) -> Result<(), Box<dyn Error>> {
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    ends.send(&entity(kind), vec![text("x")]).await?;
    let mut receiver = ends.locking(&entity(kind)).await?;
    let first = one(&mut receiver).await?;
    receiver.release(&first).await?;
    let released = one(&mut receiver).await?;
    same("deliveries", deliveries(&released), 0)?;
    let failed =
        Modified { delivery_failed: Some(true), undeliverable_here: None, message_annotations: None };
    receiver.modify(&released, failed).await?;
    let modified = one(&mut receiver).await?;
    same("deliveries", deliveries(&modified), 1)?;
    receiver.accept(&modified).await?;
    ends.close().await
}

async fn dead_letters(kind: &str) -> Result<(), Box<dyn Error>> {
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

async fn prefetch(kind: &str) -> Result<(), Box<dyn Error>> {
    let mut ends = Ends::open("SHARDBUS_CONNECTION_STRING").await?;
    let messages = (0..20).map(|number| text(&number.to_string())).collect();
    ends.send(&entity(kind), messages).await?;
    let mut receiver = ends
        .receiver(&entity(kind), SenderSettleMode::Unsettled, CreditMode::Auto(20))
        .await?;
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

async fn rules() -> Told {
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

async fn large() -> Told {
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
