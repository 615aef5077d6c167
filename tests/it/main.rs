//! Behaviour through the public API: one binary, a module for each part.
#![cfg(feature = "testing")]
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what went wrong by panicking")]

#[cfg(feature = "cli")]
mod bad_records;
#[cfg(all(feature = "kafka", feature = "cli"))]
mod broker;
#[cfg(feature = "cli")]
mod cli;
mod common;
mod datagen;
#[cfg(all(feature = "cli", feature = "kafka"))]
mod demo;
mod faults;
mod files;
#[cfg(feature = "cli")]
mod hostile;
mod hybrid;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(all(feature = "cli", feature = "kafka"))]
mod kafka_cli;
#[cfg(all(feature = "cli", feature = "kafka"))]
mod kafka_sink;
#[cfg(feature = "kafka")]
mod kafka_topics;
mod layering;
#[cfg(all(feature = "kafka", feature = "cli"))]
mod life;
mod memory;
mod nasty;
#[cfg(feature = "cli")]
mod process;
#[cfg(feature = "cli")]
mod readme;
mod resume;
mod rules;
#[cfg(all(feature = "kafka", feature = "cli", feature = "parquet"))]
mod soak;
#[cfg(all(feature = "kafka", feature = "cli"))]
mod topic;
#[cfg(feature = "cli")]
mod values;
