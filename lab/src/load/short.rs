//! A short connection: connect, one request, its answer, close.

use super::Run;
use super::connect::connect;
use crate::report::Traffic;

pub(super) async fn connection(run: &Run) {
    if let Some(mut connection) = connect(run, Traffic::Short).await {
        // Dropped with nothing unread, so the close is a FIN, as with any client.
        connection.exchange(run, "/").await;
    }
}
