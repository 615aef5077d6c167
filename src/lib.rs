//! segue
pub mod budget;
#[allow(missing_docs)]
pub mod checkpoint;
pub mod error;
pub mod hybrid;
pub mod ordered;
pub mod schema;
pub mod source;
pub mod format;
pub mod file;
pub mod sink;
pub mod pipeline;
pub mod progress;
