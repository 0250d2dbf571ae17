//! Slices and workloads in pieces that fit a message.

use std::sync::Arc;

use common::schedule::Arrival;
use proto::v1::{SlicePage, WorkloadChunk};
use tokio_stream::Stream;
use tonic::Status;

/// Arrivals of a page: about 100 KB as protobuf.
const PAGE: usize = 8_192;
/// Bytes of a chunk.
const CHUNK: usize = 256 << 10;

/// A slice in pages, made as they are asked for.
pub(super) fn pages(slice: Arc<[Arrival]>) -> impl Stream<Item = Result<SlicePage, Status>> {
    let starts = (0..slice.len()).step_by(PAGE);
    tokio_stream::iter(starts.map(move |start| Ok(slice[start..slice.len().min(start + PAGE)].into())))
}

/// A workload in chunks, made as they are asked for.
pub(super) fn chunks(bytes: Arc<[u8]>) -> impl Stream<Item = Result<WorkloadChunk, Status>> {
    let starts = (0..bytes.len()).step_by(CHUNK);
    tokio_stream::iter(
        starts.map(move |start| {
            Ok(WorkloadChunk { data: bytes[start..bytes.len().min(start + CHUNK)].to_vec() })
        }),
    )
}
