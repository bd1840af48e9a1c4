//! A topic of Kafka as the feed of a dataset: the store does not know the network, nor `ports` the store.

use std::io;
use std::sync::Arc;

use thalweg_flow::FlowRecord;
use thalweg_ports::collector::{
    CollectorError, Encode, KafkaAddress, KafkaTopic, KafkaTransactions, TlsOptions,
};
use thalweg_store::{Feed, FeedSession, Position};

use crate::deliver::messages;

#[derive(Debug)]
struct Topic {
    address: KafkaAddress,
    topic: KafkaTopic,
    with_community_id: bool,
}

struct Sending {
    transactions: KafkaTransactions,
    encode: Encode,
}

/// Opens a feed by its address, `kafka://HOST:PORT/TOPIC`. Reads what is needed for TLS, and connects to nothing yet.
pub fn open_feed(
    address: &str,
    tls: &TlsOptions,
    with_community_id: bool,
) -> Result<Arc<dyn Feed>, CollectorError> {
    let address: KafkaAddress = address.parse()?;
    let topic = KafkaTopic::open(&address, tls)?;
    Ok(Arc::new(Topic { address, topic, with_community_id }))
}

impl Feed for Topic {
    fn name(&self) -> &str {
        self.address.place()
    }

    fn identity(&self) -> &str {
        self.address.topic()
    }

    fn begin(&self, writer: &str, goes_on: &dyn Fn() -> bool) -> io::Result<Box<dyn FeedSession>> {
        let transactions = self.topic.begin(writer, goes_on)?;
        let encode = messages::encode(self.address.format, self.with_community_id);
        // Another program's mark would make records go there twice, or not at all.
        if let Some(mark) = transactions.mark()
            && position_of(mark).is_none()
        {
            return Err(io::Error::other(format!("`{mark}` in group {writer} is no position in a dataset")));
        }
        Ok(Box::new(Sending { transactions, encode }))
    }
}

impl FeedSession for Sending {
    fn position(&self) -> Option<Position> {
        self.transactions.mark().and_then(position_of)
    }

    fn send(&mut self, records: &[FlowRecord], to: Position, goes_on: &dyn Fn() -> bool) -> io::Result<()> {
        let mark = format!("{:x}:{}", to.file, to.rows);
        self.transactions.send(records, &mark, &mut self.encode, goes_on)
    }
}

/// The number of a file, as in its name, and its rows.
fn position_of(mark: &str) -> Option<Position> {
    let (file, rows) = mark.split_once(':')?;
    Some(Position { file: u64::from_str_radix(file, 16).ok()?, rows: rows.parse().ok()? })
}
