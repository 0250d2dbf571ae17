//! Getting a trial's slice and workload, and checking that they are what was announced.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::disk::Disk;
use common::fleet::TrialOrder;
use common::ids::{AgentName, Digest};
use common::schedule::{self, Arrival};
use common::workload::Workload;
use proto::v1::fleet_client::FleetClient;
use proto::v1::{SliceRequest, WorkloadRequest};

use super::join::Wire;
use super::limits::{MAX_DATA_MESSAGE, check_order, check_slice};

/// Slice and workload of a trial.
pub(super) struct Fetched {
    pub(super) slice: Vec<Arrival>,
    pub(super) workload: Arc<Workload>,
}

/// Gets both.
///
/// # Errors
/// What is wrong, for a person.
pub(super) async fn fetch(
    order: TrialOrder,
    agent: AgentName,
    wire: Wire,
    disk: Arc<dyn Disk>,
    spool: PathBuf,
) -> Result<Fetched, String> {
    check_order(&order)?;
    let workload = workload(&order, wire.clone(), &*disk, &spool).await?;
    let slice = slice(&order, &agent, wire).await?;
    check_slice(&slice, workload.rows.len())?;
    Ok(Fetched { slice, workload: Arc::new(workload) })
}

async fn slice(order: &TrialOrder, agent: &AgentName, wire: Wire) -> Result<Vec<Arrival>, String> {
    let request = SliceRequest { agent: agent.to_string(), epoch: order.epoch.0 };
    let status = |s: tonic::Status| format!("the slice cannot be had: {}", s.message());
    let mut client = FleetClient::new(wire).max_decoding_message_size(MAX_DATA_MESSAGE);
    let mut pages = client.slice(request).await.map_err(status)?.into_inner();
    let mut slice: Vec<Arrival> = Vec::new();
    while let Some(page) = pages.message().await.map_err(status)? {
        let page: Vec<Arrival> = page.try_into().map_err(|e: proto::convert::WireError| e.to_string())?;
        slice.extend(page);
        if slice.len() as u64 > order.slice_count {
            return Err(format!(
                "the slice has more than the {} arrivals that were announced",
                order.slice_count
            ));
        }
    }
    let digest = schedule::digest(&slice);
    if slice.len() as u64 != order.slice_count || digest != order.slice {
        return Err(format!(
            "the slice has {} arrivals and digest {digest}, but {} and {} were announced",
            slice.len(),
            order.slice_count,
            order.slice
        ));
    }
    Ok(slice)
}

async fn workload(order: &TrialOrder, wire: Wire, disk: &dyn Disk, spool: &Path) -> Result<Workload, String> {
    let dir = spool.join("workloads");
    let path = dir.join(format!("{}.jsonl", order.workload));
    let bytes = match disk.read(&path) {
        Ok(bytes) if Digest::of(&bytes) == order.workload => bytes,
        _ => {
            let bytes = download(order, wire).await?;
            // Kept for the next trial, unless prompts are not to be kept. An agent that cannot keep it still has it.
            let keep = || disk.create_dir_all(&dir).and_then(|()| disk.replace(&path, &bytes));
            if order.target.keep_text
                && let Err(e) = keep()
            {
                tracing::warn!(path = %path.display(), "the workload cannot be kept: {e}");
            }
            bytes
        }
    };
    // A large one takes seconds, and this thread keeps the lease.
    let parsed = crate::aside::run(move || Workload::parse(&bytes)).await.map_err(|e| e.to_string())?;
    parsed.map_err(|e| format!("the workload: {e}"))
}

async fn download(order: &TrialOrder, wire: Wire) -> Result<Vec<u8>, String> {
    let status = |s: tonic::Status| format!("the workload cannot be had: {}", s.message());
    let request = WorkloadRequest { sha256: order.workload.to_string() };
    let mut client = FleetClient::new(wire).max_decoding_message_size(MAX_DATA_MESSAGE);
    let mut chunks = client.workload(request).await.map_err(status)?.into_inner();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.message().await.map_err(status)? {
        bytes.extend_from_slice(&chunk.data);
        if bytes.len() as u64 > order.workload_bytes {
            return Err("the workload is longer than announced".into());
        }
    }
    if Digest::of(&bytes) == order.workload {
        Ok(bytes)
    } else {
        Err(format!(
            "the workload is not the one that was announced: its digest is {}, and not {}",
            Digest::of(&bytes),
            order.workload
        ))
    }
}
