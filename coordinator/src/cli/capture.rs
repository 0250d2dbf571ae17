//! `coordinator capture`: what happens on the agents' hosts for a while, with no load of ours. The same store, the same
//! series and the same numbers as beside a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use common::clock::{Clock, SystemClock};
use common::fleet::ProbeDepth;
use common::ids::{Nanos, RunId};
use common::plan::Target;
use common::slo::parse_time;
use common::telemetry::{EventKind, Record, Window};

use super::company::{Company, Local, Signals};
use super::entrance::{Entrance, Keys};
use super::options::CaptureOptions;
use super::progress::Progress;
use super::terminal::{self, say};
use super::{exit, new_run_id, planning, usage, watchdog};
use crate::ingest;
use crate::plan::{BetweenTrials, EnginePlan, FleetPlan};
use crate::report::render_window;
use crate::run::{self, Captured, Gathering};
use crate::store::{AgentSeries, RunEvent, RunStore};
use crate::telemetry;

/// Events shown after a capture; the rest is in the series.
const EVENTS_SHOWN: usize = 8;

/// Captures, and gives the exit code.
pub(super) fn capture(options: &CaptureOptions) -> anyhow::Result<u8> {
    let planned = planning::fleet(&options.agents).and_then(|fleet| {
        let length =
            parse_time(&options.duration).map_err(|e| anyhow!("--duration {}: {e}", options.duration))?;
        let metrics = options.base_url.as_deref().map(|url| -> anyhow::Result<Target> {
            Ok(Target::plain(url.parse().map_err(|e| anyhow!("--base-url {e}"))?))
        });
        Ok((fleet, length, metrics.transpose()?, Keys::read(&options.agents)?))
    });
    let (fleet, length, metrics, keys) = match planned {
        Ok(planned) => planned,
        Err(e) => return Ok(usage(&e)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(watch(options, fleet, keys, length, metrics));
    runtime.shutdown_timeout(Duration::from_millis(200));
    code
}

async fn watch(
    options: &CaptureOptions,
    plan: FleetPlan,
    keys: Keys,
    length: Nanos,
    metrics: Option<Target>,
) -> anyhow::Result<u8> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let signals = Signals::listen()?;
    let entrance = Entrance::open(&plan, keys).await?;
    let store = watchdog::open_store(&options.data)?;
    let run_id = new_run_id()?;
    if let Some(line) = entrance.join_line(&plan) {
        terminal::err(format_args!("{line}"));
    }
    let local = Local { data: &options.data, api_key_file: None, tls: &options.tls, agents: &options.agents };
    let (company, mut fleet) = Company::gather(&plan, (entrance, signals), &local, &clock)?;
    let mut ui = Progress::new();
    let with = Gathering { fleet: &mut fleet, clock: &*clock, stop: company.stop.clone(), ui: &mut ui };
    let engine = EnginePlan {
        dialect: options.dialect,
        probe: ProbeDepth::None,
        base_url_is_default: true,
        launched: options.agents.await_engine || options.agents.engine.is_some(),
        between: BetweenTrials::Nothing,
        scrape: true,
    };
    let kept = store.create_run(&run_id, clock.wall())?;
    let (ingest, sink) = (ingest::start(&kept)?, kept.telemetry()?);
    company.shared.open_run(run_id.clone(), ingest.clone(), sink.clone());
    let captured = run::capture(&kept, &plan, &engine, metrics, length, with).await;
    fleet.tell_all(&crate::fleet::ToAgent::Goodbye("the capture is over".into()));
    company.shared.close_run();
    ui.end();
    company.part().await;
    ingest.close().await?;
    sink.sync()?;
    let Some(Captured { from, to, interrupted, cut }) = captured? else { return Ok(exit::INTERRUPTED) };
    let event = match &cut {
        Some(reason) => RunEvent::RunInterrupted { reason: reason.clone() },
        None => RunEvent::RunFinished,
    };
    kept.append_event(&event)?;
    report(&kept, &run_id, Window { from, to })?;
    if let Some(reason) = cut {
        anyhow::bail!("the capture ended early: {reason}");
    }
    Ok(if interrupted { exit::INTERRUPTED } else { 0 })
}

/// What happened that a reader should know, each only once.
fn notable(series: &[AgentSeries]) -> Vec<String> {
    let mut said = Vec::new();
    for agent in series {
        for record in agent.records() {
            let Record::Event(event) = record else { continue };
            let line = format!("{}: {}", agent.agent(), event.message);
            if event.kind != EventKind::Running && !said.contains(&line) {
                said.push(line);
            }
        }
    }
    said
}

/// Prints what it amounts to, and leaves it beside the series.
fn report(kept: &RunStore, run: &RunId, window: Window) -> anyhow::Result<()> {
    let series = kept.telemetry_series()?;
    let over = telemetry::over(&series, window, &BTreeMap::new())
        .context("nothing was recorded; see the agents' logs")?;
    terminal::out(format_args!("{}", render_window(&over)));
    for line in notable(&series).iter().take(EVENTS_SHOWN) {
        say!("{line}");
    }
    let whole = serde_json::json!({
        "schema_version": "1",
        "run_id": run,
        "hardware": telemetry::hardware(&series),
        "window": over,
    });
    let path = kept.write_file("capture.json", &serde_json::to_vec_pretty(&whole)?)?;
    say!("wrote {}", path.display());
    if let Some(path) = run::export_series(kept)? {
        say!("wrote {}", path.display());
    }
    Ok(())
}
