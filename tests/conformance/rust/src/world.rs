//! What the scenarios share: connections, links, messages and requests to `$management`.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::SenderSettleMode;
use fe2o3_amqp::types::messaging::annotations::OwnedKey;
use fe2o3_amqp::types::messaging::message::__private::Deserializable;
use fe2o3_amqp::types::messaging::{
    AmqpValue, ApplicationProperties, Body, Data, Message, MessageAnnotations, Properties, Source,
    Target,
};
use fe2o3_amqp::types::primitives::{Array, Binary, OrderedMap, SimpleValue, Symbol, Value};
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use tokio::io::{AsyncRead, AsyncWrite};

pub type Done = Result<(), Box<dyn Error>>;
pub type Told = Result<String, Box<dyn Error>>;

pub const LIMIT: Duration = Duration::from_secs(60);
pub const SESSION_FILTER: &str = "com.microsoft:session-filter";

/// The fields of a connection string.
pub fn fields(variable: &str) -> Result<BTreeMap<String, String>, Box<dyn Error>> {
    let text = env::var(variable)?;
    let pairs = text.split(';').filter_map(|field| field.split_once('='));
    Ok(pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect())
}

/// A connection that shows the key of a connection string itself, and a session.
pub struct Ends {
    pub connection: ConnectionHandle<()>,
    pub session: SessionHandle<()>,
    links: usize,
}

impl Ends {
    pub async fn open(variable: &str) -> Result<Ends, Box<dyn Error>> {
        let found = fields(variable)?;
        let address = found["Endpoint"].replace("sb://", "amqp://");
        let builder = Connection::builder().container_id("rust").sasl_profile(plain(&found));
        Self::over(builder.open(address.trim_end_matches('/')).await?).await
    }

    /// Over a stream of another kind than TCP.
    pub async fn open_over<Io>(variable: &str, stream: Io) -> Result<Ends, Box<dyn Error>>
    where
        Io: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Unpin + 'static,
    {
        let builder = Connection::builder()
            .container_id("rust")
            .scheme("amqp")
            .hostname("localhost")
            .sasl_profile(plain(&fields(variable)?));
        Self::over(builder.open_with_stream(stream).await?).await
    }

    async fn over(mut connection: ConnectionHandle<()>) -> Result<Ends, Box<dyn Error>> {
        let session = Session::begin(&mut connection).await?;
        Ok(Ends { connection, session, links: 0 })
    }

    pub fn link_name(&mut self) -> String {
        self.links += 1;
        format!("link-{}", self.links)
    }

    pub async fn sender(&mut self, address: &str) -> Result<Sender, Box<dyn Error>> {
        let name = self.link_name();
        Ok(Sender::attach(&mut self.session, name, address).await?)
    }

    pub async fn send(&mut self, address: &str, messages: Vec<Message<Data>>) -> Done {
        let mut sender = self.sender(address).await?;
        for message in messages {
            sender.send(message).await?.accepted_or_else(|state| format!("{state:?}"))?;
        }
        sender.close().await?;
        Ok(())
    }

    /// A receiver that gets as many messages as it asks for.
    pub async fn receiver(
        &mut self,
        source: impl Into<Source>,
        mode: SenderSettleMode,
        credit: CreditMode,
    ) -> Result<Receiver, Box<dyn Error>> {
        let name = self.link_name();
        Ok(Receiver::builder()
            .name(name)
            .source(source)
            .sender_settle_mode(mode)
            .credit_mode(credit)
            .verify_incoming_source(false)
            .attach(&mut self.session)
            .await?)
    }

    pub async fn locking(&mut self, address: &str) -> Result<Receiver, Box<dyn Error>> {
        self.receiver(address, SenderSettleMode::Unsettled, CreditMode::Manual).await
    }

    /// A receiver of a session, or of the next one; and the session that the bus says it has.
    pub async fn accepted(
        &mut self,
        address: &str,
        session: Option<&str>,
    ) -> Result<(Receiver, String), Box<dyn Error>> {
        let wish = session.map_or(Value::Null, Value::from);
        let source = Source::builder()
            .address(address)
            .add_to_filter_using_legacy_format(SESSION_FILTER, wish)
            .build();
        let receiver =
            self.receiver(source, SenderSettleMode::Unsettled, CreditMode::Manual).await?;
        let filter = receiver.source().as_ref().and_then(|source| source.filter.clone());
        match filter.and_then(|filter| filter.get(&Symbol::from(SESSION_FILTER)).cloned()) {
            Some(Value::String(name)) => Ok((receiver, name)),
            other => Err(format!("no session but {other:?}").into()),
        }
    }

    pub async fn close(mut self) -> Done {
        self.session.end().await?;
        self.connection.close().await?;
        Ok(())
    }
}

fn plain(found: &BTreeMap<String, String>) -> SaslProfile {
    SaslProfile::Plain {
        username: found["SharedAccessKeyName"].clone(),
        password: found["SharedAccessKey"].clone(),
    }
}

pub fn entity(kind: &str) -> String {
    format!("{}-{kind}", env::var("SHARDBUS_PREFIX").unwrap_or_default())
}

pub fn text(body: &str) -> Message<Data> {
    Message::from(Data(Binary::from(body.as_bytes().to_vec())))
}

/// A message with one annotation.
pub fn annotated(body: &str, name: &str, value: Value) -> Message<Data> {
    let mut message = text(body);
    let mut annotations = MessageAnnotations::default();
    annotations.insert(name.into(), value);
    message.message_annotations = Some(annotations);
    message
}

pub fn with_properties(body: &str, properties: Properties) -> Message<Data> {
    let mut message = text(body);
    message.properties = Some(properties);
    message
}

pub async fn one(receiver: &mut Receiver) -> Result<Delivery<Data>, Box<dyn Error>> {
    receiver.set_credit(1).await?;
    Ok(receiver.recv::<Data>().await?)
}

pub fn body(delivery: &Delivery<Data>) -> String {
    shown(&delivery.body().0)
}

pub fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn annotation(message: &Message<Data>, name: &str) -> Result<Value, String> {
    let annotations = message.message_annotations.as_ref().ok_or("no annotations")?;
    let found = annotations.iter().find_map(|(key, value)| match key {
        OwnedKey::Symbol(symbol) if symbol.as_str() == name => Some(value),
        _ => None,
    });
    found.cloned().ok_or_else(|| format!("no annotation {name}"))
}

pub fn number_of(message: &Message<Data>) -> Result<i64, String> {
    match annotation(message, "x-opt-sequence-number")? {
        Value::Long(number) => Ok(number),
        other => Err(format!("the number is {other:?}")),
    }
}

pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what}: {found:?} instead of {wanted:?}"))
}

pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub fn longs(numbers: &[i64]) -> Value {
    Value::Array(Array::from(numbers.iter().copied().map(Value::Long).collect::<Vec<_>>()))
}

/// Asks the node `$management` of an entity, as any AMQP client can.
pub struct Requests {
    sender: Sender,
    answers: Receiver,
    name: String,
    count: u64,
}

pub type Answer = BTreeMap<String, Value>;

impl Requests {
    pub async fn open(ends: &mut Ends, entity: &str) -> Result<Requests, Box<dyn Error>> {
        let node = format!("{entity}/$management");
        let name = ends.link_name();
        let answers = Receiver::builder()
            .name(name.clone())
            .source(node.as_str())
            .target(Target::builder().address(name.as_str()).build())
            .sender_settle_mode(SenderSettleMode::Settled)
            .credit_mode(CreditMode::Auto(10))
            .attach(&mut ends.session)
            .await?;
        Ok(Requests { sender: ends.sender(&node).await?, answers, name, count: 0 })
    }

    /// The body of the answer, which must be a success; `link` is the receiver of the session meant.
    pub async fn ask(
        &mut self,
        operation: &str,
        body: Vec<(&str, Value)>,
        link: Option<&Receiver>,
    ) -> Result<Answer, Box<dyn Error>> {
        self.count += 1;
        let id = self.count.to_string();
        let mut told = ApplicationProperties::default();
        told.insert("operation".to_string(), format!("com.microsoft:{operation}").into());
        if let Some(receiver) = link {
            told.insert("associated-link-name".to_string(), receiver.name().into());
        }
        let map: OrderedMap<Value, Value> =
            body.into_iter().map(|(name, value)| (Value::from(name), value)).collect();
        let message = Message::builder()
            .properties(
                Properties::builder().message_id(id.clone()).reply_to(self.name.as_str()).build(),
            )
            .application_properties(told)
            .body(AmqpValue(Value::Map(map)))
            .build();
        self.sender.send(message).await?.accepted_or_else(|state| format!("{state:?}"))?;
        let answer = self.answers.recv::<Body<Value>>().await?.into_message();
        let properties = answer.application_properties.unwrap_or_default();
        match properties.get("statusCode") {
            Some(SimpleValue::Int(200 | 204)) => Ok(map_of(answer.body)),
            _ => Err(format!("{operation}: {properties:?}").into()),
        }
    }

    pub async fn peek(
        &mut self,
        start: i64,
        count: i32,
    ) -> Result<Vec<Message<Data>>, Box<dyn Error>> {
        let asked = vec![
            ("from-sequence-number", Value::Long(start)),
            ("message-count", Value::Int(count)),
        ];
        messages_in(self.ask("peek-message", asked, None).await?)
    }

    /// Nothing tells a receiver that its outcome has arrived.
    pub async fn wait_until_empty(&mut self) -> Done {
        let deadline = Instant::now() + LIMIT;
        while !self.peek(0, 10).await?.is_empty() {
            if Instant::now() > deadline {
                return Err("messages are left".into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

fn map_of(body: Body<Value>) -> Answer {
    let Body::Value(AmqpValue(Value::Map(map))) = body else {
        return Answer::new();
    };
    map.into_iter()
        .filter_map(|(name, value)| match name {
            Value::String(name) => Some((name, value)),
            _ => None,
        })
        .collect()
}

pub fn messages_in(mut answer: Answer) -> Result<Vec<Message<Data>>, Box<dyn Error>> {
    let Some(Value::List(listed)) = answer.remove("messages") else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for each in listed {
        let Value::Map(map) = each else { return Err(format!("{each:?}").into()) };
        let Some(Value::Binary(bytes)) = map.get(&Value::from("message")) else {
            return Err("an entry without a message".into());
        };
        let Deserializable(message): Deserializable<Message<Data>> =
            serde_amqp::from_slice(bytes.as_ref())?;
        found.push(message);
    }
    Ok(found)
}
