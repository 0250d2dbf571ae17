//! What the simulated fleet is to do: the same two rates for every seed, so that the schedules of an undisturbed run are
//! known.

use std::path::Path;
use std::sync::Arc;

use common::fleet::{ProbeDepth, Upload};
use common::ids::Nanos;
use common::plan::{Extent, Process, Target};
use common::seed::Seed;
use common::validity::ValidityLimits;
use common::workload::Workload;
use coordinator::plan::{BetweenTrials, EnginePlan, FleetPlan, LoadedWorkload, Plan};
use coordinator::sweep;

/// Where the coordinator is.
pub const PORT: u16 = 7000;

/// A sweep of two rates by so many agents, whose results go to `out`.
pub fn plan(agents: usize, upload: Upload, out: &Path) -> anyhow::Result<Plan> {
    let bytes = b"{\"prompt\": \"one\"}\n{\"prompt\": \"two\"}\n".to_vec();
    let rows = Workload::parse(&bytes)?;
    let rates = ["1.5".parse()?, "3".parse()?];
    let target = Target {
        total_timeout: Nanos::from_secs(4),
        idle_timeout: Nanos::from_secs(3),
        connect_timeout: Nanos::from_secs(2),
        ..Target::plain("http://engine:1".parse()?)
    };
    Ok(Plan {
        trials: sweep::order(&rates, 1, Seed(1)),
        process: Process::Poisson,
        extent: Extent::Duration(Nanos::from_secs(32)),
        seed: Seed(1),
        target,
        workload: LoadedWorkload { source: "made".into(), bytes: Arc::from(bytes), rows },
        slos: "ttft=1s".parse()?,
        slo_target: Default::default(),
        search: None,
        stop_after_knee: false,
        max_failures: None,
        max_concurrency: None,
        warmup: 0,
        warm_connections: 0,
        upload,
        // A link of the simulation takes up to 40 ms, and seconds when it is slow.
        limits: ValidityLimits { lateness_budget: Nanos::from_secs(1), clock_bound: Nanos::from_secs(10) },
        fleet: FleetPlan {
            local: 0,
            remote: agents,
            listen: format!("0.0.0.0:{PORT}"),
            awaits_engine: false,
            awaits_gpu: false,
            join_timeout: Nanos::from_secs(120),
        },
        require_gpu: false,
        allow_over_ceiling: false,
        engine: EnginePlan {
            dialect: Some(common::dialect::Dialect::OPENAI),
            probe: ProbeDepth::None,
            base_url_is_default: false,
            launched: false,
            between: BetweenTrials::Nothing,
            scrape: false,
        },
        metadata: serde_json::Map::new(),
        tokenizer: None,
        data: out.to_owned(),
        out: Some(out.to_owned()),
    })
}
