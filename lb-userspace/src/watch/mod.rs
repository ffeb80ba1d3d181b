//! Where the world comes from: Kubernetes objects out of a directory of manifests (or an API).
//!
//! Each source turns what it reads into `WatchEvent`s over trimmed objects. A source reports
//! and never decides: it knows no Service semantics, and it never turns "cannot read" into
//! "is gone".

pub mod convert;
pub mod crd;
mod event;
pub mod files;
mod kept;
pub mod kubernetes;
pub mod manifests;
pub mod object;
pub mod parse;
mod stamp;

pub use event::{Change, Right, WatchEvent};
pub use kept::Kept;
