//! The warm-up: some requests before the trial, which enter no number.
//!
//! They carry rows that the trial does not use; where every row is used, the prompt is altered at its beginning, so
//! that the trial's prompts are not in the engine's prefix cache. A warm-up that fails stops the experiment.

use std::sync::Arc;

use common::fleet::{TrialOrder, WARMUP_AT_ONCE};
use common::ids::{ArrivalIndex, Nanos};
use common::trace::{Failure, headed};
use common::workload::{Row, RowBody, Workload};
use proto::convert::harmless;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::engine::{Client, Outgoing, Requests};

/// Why a trial cannot go on, with the stage at which it ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", headed(.stage, .message))]
pub struct StageError {
    /// prepare, warm-up, connect, start.
    pub stage: &'static str,
    /// For a person.
    pub message: String,
}

impl StageError {
    /// An error at `stage`.
    pub fn new(stage: &'static str, error: impl std::fmt::Display) -> Self {
        Self { stage, message: error.to_string() }
    }

    /// A request's failure at `stage`.
    #[must_use]
    pub fn failure(stage: &'static str, f: &Failure) -> Self {
        Self { stage, message: f.told() }
    }
}

/// Sends the warm-up of `order` to one engine and waits until all of it has ended.
///
/// # Errors
/// The first failure.
pub async fn run(order: &TrialOrder, workload: &Workload, client: Client) -> Result<(), StageError> {
    let client = Arc::new(client);
    let requests = Requests::new(&order.target);
    let at_once = order.permits.map_or(WARMUP_AT_ONCE, |p| WARMUP_AT_ONCE.min(p)) as usize;
    let mut rows = (0u64..).zip(&order.warmup);
    let mut running = JoinSet::new();
    let (_keep, never) = watch::channel(false);
    loop {
        while running.len() < at_once
            && let Some((number, &(row_number, altered))) = rows.next()
        {
            let row = workload.rows.get(row_number as usize);
            let row = row
                .ok_or_else(|| StageError::new("warm-up", format!("the workload has no row {row_number}")))?;
            let row = if altered { alter(row, number) } else { row.clone() };
            let prepared = requests.prepare(&row);
            let unsent = prepared.unsent(ArrivalIndex(number), Nanos::ZERO, row_number);
            let (released, waited_for_permit) = (Nanos::ZERO, false);
            let request = Outgoing { unsent, released, waited_for_permit, body: prepared.body };
            let (client, mut cancel) = (Arc::clone(&client), never.clone());
            running.spawn(async move { client.send(request, &mut cancel).await });
        }
        match running.join_next().await {
            None => return Ok(()),
            Some(Err(e)) => return Err(StageError::new("warm-up", e)),
            Some(Ok(trace)) => {
                if let Some(f) = trace.facts.outcome.failure() {
                    let body = harmless(trace.text.error_body.as_deref().unwrap_or_default());
                    let e = StageError::failure("warm-up", f);
                    let message = if body.is_empty() { e.message } else { format!("{}: {body}", e.message) };
                    return Err(StageError { message, ..e });
                }
            }
        }
    }
}

/// The row with another beginning. A conversation gets it in the first message that is plain text.
fn alter(row: &Row, number: u64) -> Row {
    let salt = format!("({number}) ");
    let body = match &row.body {
        RowBody::Prompt(prompt) => RowBody::Prompt(format!("{salt}{prompt}")),
        RowBody::TokenIds(ids) => RowBody::TokenIds(alter_ids(ids, number)),
        RowBody::Messages(json) => {
            RowBody::Messages(alter_messages(json, &salt).unwrap_or_else(|| json.clone()))
        }
    };
    Row { body, ..row.clone() }
}

/// The ids with another beginning. Which other ids there are is the tokenizer's to know: one of the row's own goes in
/// front, one that makes a difference if there is one, and more often from request to request.
fn alter_ids(ids: &[u32], number: u64) -> Vec<u32> {
    let first = ids.first().copied().unwrap_or_default();
    let salt = ids.iter().copied().find(|id| *id != first).unwrap_or(first);
    let times = 1 + usize::try_from(number).unwrap_or(0) % 32;
    std::iter::repeat_n(salt, times).chain(ids.iter().copied()).collect()
}

fn alter_messages(json: &str, salt: &str) -> Option<String> {
    let mut messages: Vec<serde_json::Value> = serde_json::from_str(json).ok()?;
    let content = messages.iter_mut().find_map(|m| match m.get_mut("content") {
        Some(serde_json::Value::String(text)) => Some(text),
        _ => None,
    })?;
    content.insert_str(0, salt);
    serde_json::to_string(&messages).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_altered_row_begins_differently_and_says_the_same() {
        let row = |body| Row { body, max_tokens: Some(4), line: 1 };
        let prompt = alter(&row(RowBody::Prompt("tell me".into())), 3);
        assert_eq!(prompt, row(RowBody::Prompt("(3) tell me".into())));
        for ids in [&[1, 2, 3][..], &[7, 7, 7], &[5]] {
            let altered = |n| alter_ids(ids, n);
            assert!((0..5).all(|n| altered(n) != ids && altered(n).ends_with(ids)));
            assert_ne!(altered(0), altered(1));
        }
        // The prompt's first id, which its prefix begins with, is not the altered one's.
        assert_ne!(alter_ids(&[1, 2, 3], 0)[0], 1);
        let chat = r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}]"#;
        let RowBody::Messages(altered) = alter(&row(RowBody::Messages(chat.into())), 1).body else {
            panic!()
        };
        let messages: serde_json::Value = serde_json::from_str(&altered).unwrap();
        assert_eq!(messages[0]["content"], "(1) be brief");
        assert_eq!(messages[1]["content"], "hi");
    }
}
