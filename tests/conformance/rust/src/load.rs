//! Sends numbers and completes them until standard input ends; then waits for what was accepted.
//!
//! The client does not connect again by itself, so each half connects again after an error. What it
//! then repeats has the id it had, and the queue detects duplicates. An outcome is not answered to
//! this client, a commit is: so each message is completed in a transaction.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::Future;
use std::time::{Duration, Instant};

use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionDischarge, TransactionRetirement,
};
use fe2o3_amqp::types::definitions::SenderSettleMode;
use fe2o3_amqp::types::messaging::{Data, Properties};
use tokio::time::{sleep, timeout};

use crate::world::{body, same, with_properties, Done, Ends, Told};

const BUS: &str = "SHARDBUS_CONNECTION_STRING";
const DRAINING: Duration = Duration::from_secs(90);
const ANSWER: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);
const BETWEEN: Duration = Duration::from_millis(20);
const WINDOW: u32 = 20;

#[derive(Default)]
struct Accounts {
    accepted: Cell<usize>,
    is_over: Cell<bool>,
    is_quiet: Cell<bool>,
    numbers: RefCell<HashSet<usize>>,
    completed: RefCell<HashSet<usize>>,
    returned: Cell<usize>,
}

impl Accounts {
    fn lost(&self) -> usize {
        self.accepted.get().saturating_sub(self.numbers.borrow().len())
    }
}

pub async fn run(queue: &str) -> Told {
    let accounts = Accounts::default();
    let ended =
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    let working = async {
        tokio::join!(
            again_until(|| accounts.is_over.get(), || send(queue, &accounts)),
            again_until(|| false, || receive(queue, &accounts)),
        );
    };
    tokio::select! {
        () = working => {}
        told = watch(ended, &accounts) => told?,
    }
    same("completed messages that returned", accounts.returned.get(), 0)?;
    same("no message was completed", accounts.completed.borrow().is_empty(), false)?;
    Ok("nothing accepted was lost, nothing completed returned; the program connects again"
        .to_string())
}

/// Connects again, whatever the error was.
async fn again_until<Working>(is_over: impl Fn() -> bool, work: impl Fn() -> Working)
where
    Working: Future<Output = Done>,
{
    while !is_over() {
        let _ = work().await;
        sleep(PAUSE).await;
    }
}

/// Returns when all that was accepted has been received.
async fn watch(ended: impl Future, accounts: &Accounts) -> Done {
    ended.await;
    accounts.is_over.set(true);
    let deadline = Instant::now() + DRAINING;
    // What is being sent now may still be accepted.
    sleep(ANSWER.min(QUIET)).await;
    while accounts.lost() > 0 || !accounts.is_quiet.get() {
        if Instant::now() > deadline {
            let (lost, accepted) = (accounts.lost(), accounts.accepted.get());
            return Err(format!("{lost} of {accepted} accepted messages are lost").into());
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

async fn send(queue: &str, accounts: &Accounts) -> Done {
    let mut ends = timeout(ANSWER, Ends::open(BUS)).await??;
    let mut sender = timeout(ANSWER, ends.sender(queue)).await??;
    while !accounts.is_over.get() {
        let number = accounts.accepted.get().to_string();
        let properties = Properties::builder().message_id(number.clone()).build();
        let answer = timeout(ANSWER, sender.send(with_properties(&number, properties))).await??;
        answer.accepted_or_else(|state| format!("{state:?}"))?;
        accounts.accepted.set(accounts.accepted.get() + 1);
        sleep(BETWEEN).await;
    }
    timeout(ANSWER, ends.close()).await?
}

async fn receive(queue: &str, accounts: &Accounts) -> Done {
    let mut ends = timeout(ANSWER, Ends::open(BUS)).await??;
    let controller =
        timeout(ANSWER, Controller::attach(&mut ends.session, "coordinator")).await??;
    let credit = CreditMode::Auto(WINDOW);
    let attaching = ends.receiver(queue, SenderSettleMode::Unsettled, credit);
    let mut receiver = timeout(ANSWER, attaching).await??;
    loop {
        let waiting = timeout(QUIET, receiver.recv::<Data>()).await;
        accounts.is_quiet.set(waiting.is_err());
        let Ok(received) = waiting else { continue };
        let found = received?;
        let number: usize = body(&found).parse()?;
        accounts.numbers.borrow_mut().insert(number);
        if accounts.completed.borrow().contains(&number) {
            accounts.returned.set(accounts.returned.get() + 1);
        }
        let transaction = timeout(ANSWER, Transaction::declare(&controller, None)).await??;
        transaction.accept(&mut receiver, &found).await?;
        timeout(ANSWER, transaction.commit()).await??;
        accounts.completed.borrow_mut().insert(number);
    }
}
