//! `agent spool push`: brings what is not sealed to a coordinator that is up.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use common::clock::SystemClock;
use common::disk::{Disk, OsDisk};
use common::fleet::{Introduction, TrialFate};
use common::ids::{AgentName, Incarnation, RunId};

use super::{Holding, PushOptions, lock, nothing_of, out, traces};
use crate::host;
use crate::session::{Courier, Dial, Undelivered, deliver};
use crate::spool::held::{self, Backlog, trial_of};

/// Everything that was to be delivered was.
const DONE: u8 = 0;
/// Something stays in the spool that no coordinator has.
const LEFT: u8 = 1;

pub(super) fn run(options: &PushOptions) -> anyhow::Result<u8> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let holdings = lock(&*disk, &options.place)?;
    let wanted = |run: &RunId| options.run.as_ref().is_none_or(|only| only == run);
    let mut runs: Vec<(&Holding, &RunId)> = Vec::new();
    for holding in &holdings {
        for run in holding.segments.iter().map(|s| &s.run).filter(|run| wanted(run)) {
            if runs.last().is_none_or(|(h, last)| *last != run || h.agent != holding.agent) {
                runs.push((holding, run));
            }
        }
    }
    if let Some(run) = options.run.as_ref().filter(|_| runs.is_empty()) {
        return Err(nothing_of(run, &options.place));
    }
    let mut backlogs = Vec::new();
    for (holding, run) in runs {
        let found = held::backlogs(&*disk, &holding.dir, &holding.agent, run);
        backlogs.extend(found.with_context(|| holding.dir.display().to_string())?);
    }
    if backlogs.is_empty() {
        out("nothing is left to deliver");
        return Ok(DONE);
    }
    let dial = options.join.read()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut left = false;
        let mut courier: Option<(AgentName, Courier)> = None;
        for mut backlog in backlogs {
            // Each agent's traces come from that agent.
            let (_, courier) = match courier.take().filter(|(agent, _)| *agent == backlog.agent) {
                Some(same) => courier.insert(same),
                None => courier.insert((backlog.agent.clone(), join(&dial, &backlog.agent).await?)),
            };
            left |= !push(&mut backlog, &disk, courier).await;
        }
        if left {
            let spool = shown(&options.place.spool);
            eprintln!(
                "note: what was not taken stays in the spool; `agent spool rm{spool}` removes what no coordinator wants"
            );
        }
        Ok(if left { LEFT } else { DONE })
    })
}

/// Joins as that agent, to deliver and for nothing else.
async fn join(dial: &Dial, agent: &AgentName) -> anyhow::Result<Courier> {
    let introduction = Introduction {
        version: env!("CARGO_PKG_VERSION").into(),
        name: agent.clone(),
        incarnation: Incarnation(getrandom::u64().context("no randomness from the system")?),
        host: host::facts(),
        observer: true,
        engine: None,
        gpu: false,
        calibration: None,
    };
    Ok(Courier::join(dial, &introduction, &SystemClock).await?)
}

/// As it must be typed.
fn shown(spool: &Path) -> String {
    if spool == Path::new("plimsoll-spool") { String::new() } else { format!(" --spool {}", spool.display()) }
}

/// Delivers one backlog and says so. True when the coordinator has all of it, or has sealed its trials.
async fn push(backlog: &mut Backlog, disk: &Arc<dyn Disk>, courier: &Courier) -> bool {
    let name = format!("run {}, agent {} ({:016x})", backlog.run, backlog.agent, backlog.incarnation.0);
    let delivered = deliver(backlog, Arc::clone(disk), courier).await;
    match &delivered {
        Ok(done) => {
            let had = if done.had > 0 { format!(", {} were there before", done.had) } else { String::new() };
            out(&format!("{name}: {} delivered{had}", traces(done.sent)));
        }
        Err(e) => eprintln!("{name}: {} held; {e}", traces(backlog.traces())),
    }
    // What is delivered stays until the trial is sealed, and what came too late may go: the coordinator knows.
    match note_seals(backlog, &**disk, courier).await {
        Ok((sealed, open)) => {
            if sealed > 0 {
                out(&format!(
                    "{name}: {sealed} segments are of sealed trials; `agent spool rm --sealed` removes them"
                ));
            }
            delivered.is_ok() || open == 0
        }
        // The reason is the one that was said above, or the coordinator went away after the delivery.
        Err(e) => {
            if delivered.is_ok() {
                eprintln!("{name}: whether its trials are sealed cannot be told: {e}");
            }
            delivered.is_ok()
        }
    }
}

/// Marks segments whose trial is sealed. Says how many are, and how many are not.
async fn note_seals(
    backlog: &mut Backlog,
    disk: &dyn Disk,
    courier: &Courier,
) -> Result<(usize, usize), Undelivered> {
    let trials: Vec<_> = backlog.segments.iter().map(trial_of).collect();
    let fates = courier.fates(&backlog.run, &trials).await?;
    let mut sealed = 0;
    for (segment, fate) in backlog.segments.iter_mut().zip(&fates) {
        if *fate == TrialFate::Sealed {
            segment.mark_sealed(disk)?;
            sealed += 1;
        }
    }
    Ok((sealed, fates.len() - sealed))
}
