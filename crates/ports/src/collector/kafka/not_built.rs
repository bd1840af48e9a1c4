//! In place of transactions, in a program without librdkafka.

use super::KafkaAddress;
use crate::collector::{CollectorError, Encode, TlsOptions};
use std::io;
use thalweg_flow::FlowRecord;

/// A topic for transactions, of which there is none.
#[derive(Debug)]
pub enum KafkaTopic {}

/// The right to send as a writer, which nobody has.
pub enum KafkaTransactions {}

impl KafkaTopic {
    /// Always fails with [`CollectorError::NotBuilt`].
    pub fn open(address: &KafkaAddress, _tls: &TlsOptions) -> Result<Self, CollectorError> {
        Err(CollectorError::NotBuilt { collector: address.to_string(), feature: "kafka" })
    }

    /// As with the feature, if there were one.
    pub fn begin(&self, _writer: &str, _goes_on: &dyn Fn() -> bool) -> io::Result<KafkaTransactions> {
        match *self {}
    }
}

impl KafkaTransactions {
    /// As with the feature.
    pub fn mark(&self) -> Option<&str> {
        match *self {}
    }

    /// As with the feature.
    pub fn send(
        &mut self,
        _records: &[FlowRecord],
        _mark: &str,
        _encode: &mut Encode,
        _goes_on: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        match *self {}
    }
}
