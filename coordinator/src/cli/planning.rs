//! Options and files → one validated plan. What is wrong is said with the option, the file and the line.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use common::fleet::{ProbeDepth, Upload};
use common::ids::Nanos;
use common::plan::{
    Api, ArrivalPlan, BaseUrl, Extent, OfferedRate, Process, RESERVED_BODY_FIELDS, SECRET_HEADERS, Target,
};
use common::replicas::MAX_ENGINES;
use common::seed::Seed;
use common::slo::{Slo, SloSet, Target as SloTarget, parse_time};
use common::validity::ValidityLimits;
use common::workload::{MAX_WORKLOAD_BYTES, Workload, builtin};
use serde_json::{Map, Value};

use super::options::{
    AgentOptions, ApiOption, Arrival, Between, Common, EngineOptions, Objectives, Rates, UploadOption,
};
use crate::plan::{BetweenTrials, EnginePlan, FleetPlan, LoadedWorkload, Plan};
use crate::record::OWN_FIELDS;
use crate::retokenize::Retokenizer;
use crate::rpc::limits::MAX_AGENTS;
use crate::sweep;

/// Objectives when none is given.
const DEFAULT_SLOS: &[&str] = &["ttft=1s", "tpot=50ms"];

/// Requests in a burst when --burst-size is not given.
const DEFAULT_BURST: u32 = 16;

/// Where the engine is when nobody says so.
const DEFAULT_BASE_URL: &str = "http://127.0.0.1:8000";

/// Warm-up requests before each trial: more is a slip.
const MAX_WARMUP: u32 = 100_000;

/// Clustering when --cv is not given.
const DEFAULT_CV: f64 = 2.0;

/// Trials of one run: more is a slip.
const MAX_TRIALS: usize = 10_000;

/// Makes the plan.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn plan(options: &Common, rates: &Rates) -> anyhow::Result<Plan> {
    let process = process(options)?;
    let extent = extent(options)?;
    let repeats = rates.repeats;
    let search = search::settings(&rates.search, options, (process, extent))?;
    let offered = match search {
        Some(_) => Vec::new(),
        None => offered(options, rates, process, extent)?,
    };
    let seed = Seed(options.seed);
    let workload = workload(options)?;
    let target = target(options, &workload.rows)?;
    let slos = slos(&options.objectives, &target)?;
    let slo_target = slo_target(&options.objectives)?;
    if search.is_some() {
        search::decides_by(objectives(&options.objectives)?.is_some(), &slos, slo_target)?;
    }
    let fleet = fleet(&options.agents)?;
    let agents = fleet.local + fleet.remote;
    let limits = offered.iter().filter_map(|rate| rate.workers()).map(|workers| ("--concurrency", workers));
    let limits = limits.chain(options.max_concurrency.map(|limit| ("--max-concurrency", limit)));
    if let Some((option, limit)) = limits.into_iter().find(|(_, limit)| (*limit as usize) < agents) {
        bail!("{option} {limit} is less than one for each of {agents} agents; raise it or use fewer agents");
    }
    if options.warmup > MAX_WARMUP {
        bail!("--warmup {} is more than {MAX_WARMUP}: it comes before every trial", options.warmup);
    }
    Ok(Plan {
        trials: sweep::order(&offered, repeats, seed),
        search,
        process,
        extent,
        seed,
        target,
        workload,
        slos,
        slo_target,
        stop_after_knee: options.stop_after_knee,
        max_failures: options
            .max_failures
            .as_ref()
            .map(|text| text.parse().map_err(|e| anyhow!("--max-failures: {e}")))
            .transpose()?,
        max_concurrency: options.max_concurrency,
        warmup: options.warmup,
        warm_connections: options.warm_connections,
        upload: match options.upload {
            UploadOption::During => Upload::During,
            UploadOption::After => Upload::After,
        },
        limits: ValidityLimits {
            lateness_budget: time("--late-budget", &options.late_budget)?,
            ..Default::default()
        },
        fleet,
        require_gpu: options.require_gpu,
        allow_over_ceiling: options.agents.allow_over_ceiling,
        engine: EnginePlan {
            dialect: options.engine.dialect,
            probe: if options.brief_probe { ProbeDepth::Brief } else { ProbeDepth::Full },
            base_url_is_default: options.engine.base_url.is_empty(),
            launched: launched(options),
            between: match options.between_trials {
                Between::Nothing => BetweenTrials::Nothing,
                Between::Flush => BetweenTrials::Flush,
                Between::Restart => BetweenTrials::Restart,
            },
            scrape: !options.no_engine_metrics,
        },
        metadata: metadata(options)?,
        tokenizer: kept_text_tokenizer(options)?,
        data: options.data.clone(),
        out: options.out.clone(),
    })
}

/// Whether an agent that launches the engine is to be waited for.
fn launched(options: &Common) -> bool {
    options.agents.await_engine
        || options.agents.engine.is_some()
        || options.between_trials == Between::Restart
}

fn metadata(options: &Common) -> anyhow::Result<Map<String, Value>> {
    let Some(path) = &options.metadata else { return Ok(Map::new()) };
    let metadata = object("--metadata", path)?;
    match OWN_FIELDS.iter().find(|f| metadata.contains_key(**f)) {
        Some(field) => bail!("--metadata {}: field `{field}` is recorded by plimsoll itself", path.display()),
        None => Ok(metadata),
    }
}

fn kept_text_tokenizer(options: &Common) -> anyhow::Result<Option<Arc<Retokenizer>>> {
    if options.tokenizer.is_some() && options.no_text {
        bail!("--tokenizer counts kept text, and --no-text keeps none; leave out one of them");
    }
    Ok(tokenizer(options.tokenizer.as_deref())?.map(Arc::new))
}

/// The tokenizer of `--tokenizer`.
///
/// # Errors
/// When the file is none, or this build has none.
pub(super) fn tokenizer(path: Option<&Path>) -> anyhow::Result<Option<Retokenizer>> {
    let load =
        |path: &Path| Retokenizer::load(path).with_context(|| format!("--tokenizer {}", path.display()));
    path.map(load).transpose()
}

fn time(option: &str, text: &str) -> anyhow::Result<Nanos> {
    parse_time(text).map_err(|e| anyhow!("{option} {text}: {e}"))
}

fn slo_target(options: &Objectives) -> anyhow::Result<SloTarget> {
    match &options.slo_target {
        Some(text) => text.parse().map_err(|e| anyhow!("--slo-target: {e}")),
        None => Ok(SloTarget::default()),
    }
}

fn process(options: &Common) -> anyhow::Result<Process> {
    let of_others = [
        ("--burst-size", options.burst_size.is_some(), Arrival::Burst),
        ("--cv", options.cv.is_some(), Arrival::Gamma),
        ("--rate-end", options.rate_end.is_some(), Arrival::Ramp),
    ];
    if let Some((name, _, arrival)) = of_others.iter().find(|(_, given, of)| *given && *of != options.arrival)
    {
        bail!("{name} would be ignored without --arrival {}", format!("{arrival:?}").to_lowercase());
    }
    Ok(match options.arrival {
        // A closed loop has no arrivals to shape.
        Arrival::Poisson | Arrival::Closed => Process::Poisson,
        Arrival::Constant => Process::Constant,
        Arrival::Burst => Process::Burst { size: options.burst_size.unwrap_or(DEFAULT_BURST) },
        Arrival::Gamma => Process::Gamma { cv: options.cv.unwrap_or(DEFAULT_CV) },
        Arrival::Ramp => {
            let end = options.rate_end.as_deref().context("--arrival ramp needs --rate-end")?;
            match end.parse::<OfferedRate>().map_err(|e| anyhow!("--rate-end: {e}"))? {
                OfferedRate::PerSecond(to) => Process::Ramp { to },
                _ => bail!("--rate-end must be a finite rate"),
            }
        }
    })
}

fn extent(options: &Common) -> anyhow::Result<Extent> {
    match options.requests {
        Some(n) => Ok(Extent::Requests(n)),
        None => time("--duration", &options.duration).map(Extent::Duration),
    }
}

fn offered(
    options: &Common,
    rates: &Rates,
    process: Process,
    extent: Extent,
) -> anyhow::Result<Vec<OfferedRate>> {
    let asked =
        if options.arrival == Arrival::Closed { closed(options, rates)? } else { open(options, rates)? };
    let option = if options.arrival == Arrival::Closed { "--concurrency" } else { rates.option };
    let mut offered: Vec<OfferedRate> = Vec::with_capacity(asked.len());
    for rate in asked {
        if offered.contains(&rate) {
            bail!("{option}: {rate} stands twice; --repeats says how often each is tested");
        }
        ArrivalPlan { process, rate, extent }.validate().map_err(|e| anyhow!("{option} {rate}: {e}"))?;
        offered.push(rate);
    }
    if rates.repeats == 0 {
        bail!("--repeats must be at least 1");
    }
    if offered.len().saturating_mul(rates.repeats as usize) > MAX_TRIALS {
        bail!("{} rates × {} repeats are more than {MAX_TRIALS} trials", offered.len(), rates.repeats);
    }
    Ok(offered)
}

fn open(options: &Common, rates: &Rates) -> anyhow::Result<Vec<OfferedRate>> {
    let option = rates.option;
    if !options.concurrency.is_empty() {
        bail!(
            "--concurrency would be ignored without --arrival closed; --max-concurrency limits an open loop"
        );
    }
    if rates.rates.is_empty() {
        bail!("{option} is missing");
    }
    let parse = |text: &String| match text.parse::<OfferedRate>() {
        Ok(rate) if rate.workers().is_none() => Ok(rate),
        Ok(_) => Err(anyhow!("{option}: a closed loop is asked for with --arrival closed --concurrency N")),
        Err(e) => Err(anyhow!("{option}: {e}")),
    };
    rates.rates.iter().map(parse).collect()
}

fn closed(options: &Common, rates: &Rates) -> anyhow::Result<Vec<OfferedRate>> {
    if !rates.rates.is_empty() {
        bail!("{} would be ignored with --arrival closed, which has no rate", rates.option);
    }
    if options.max_concurrency.is_some() {
        bail!("--max-concurrency would be ignored with --arrival closed: its workers are the limit");
    }
    if options.concurrency.is_empty() {
        bail!("--arrival closed needs --concurrency");
    }
    if rates.option == "--rate" && options.concurrency.len() > 1 {
        bail!("--concurrency: `run` sends one trial; several are a `sweep`");
    }
    Ok(options.concurrency.iter().map(|&workers| OfferedRate::Closed(workers)).collect())
}

fn workload(options: &Common) -> anyhow::Result<LoadedWorkload> {
    let (source, bytes) = match &options.workload {
        None => ("built-in".to_owned(), builtin()),
        Some(path) => {
            let named = || format!("--workload {}", path.display());
            let length = std::fs::metadata(path).with_context(named)?.len();
            if length > MAX_WORKLOAD_BYTES {
                bail!("{}: {length} bytes, more than the {MAX_WORKLOAD_BYTES} that an agent takes", named());
            }
            let bytes = std::fs::read(path).with_context(named)?;
            (path.display().to_string(), bytes)
        }
    };
    let rows = Workload::parse(&bytes).map_err(|e| anyhow!("--workload {source}: {e}"))?;
    Ok(LoadedWorkload { source, bytes: Arc::from(bytes), rows })
}

fn target(options: &Common, workload: &Workload) -> anyhow::Result<Target> {
    let api = api(&options.engine).unwrap_or(workload.natural_api());
    workload.check_api(api).map_err(|e| anyhow!("--workload: {e}"))?;
    if options.max_tokens == 0 {
        bail!("--max-tokens must be at least 1");
    }
    let target = engine(&options.engine, api)?;
    Ok(Target { default_max_tokens: options.max_tokens, keep_text: !options.no_text, ..target })
}

/// The endpoint that was asked for.
pub(super) fn api(options: &EngineOptions) -> Option<Api> {
    options.api.map(|api| match api {
        ApiOption::Completions => Api::Completions,
        ApiOption::Chat => Api::Chat,
    })
}

/// The engine and how it is asked, for rows that say how many tokens they want. Texts are kept.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn engine(options: &EngineOptions, api: Api) -> anyhow::Result<Target> {
    let extra_body =
        options.extra_body.as_deref().map(|p| object("--extra-body", p)).transpose()?.unwrap_or_default();
    if let Some(field) = RESERVED_BODY_FIELDS.iter().find(|f| extra_body.contains_key(**f)) {
        bail!("--extra-body: field `{field}` is set by plimsoll; use its own option, or the workload");
    }
    let (base_url, replicas) = engines(&options.base_url)?;
    Ok(Target {
        dialect: options.dialect.unwrap_or_default(),
        model: options.model.clone(),
        api,
        ignore_eos: options.ignore_eos,
        logprobs: options.logprobs,
        token_counts: options.token_counts,
        extra_body,
        headers: options.header.iter().map(|h| header(h)).collect::<anyhow::Result<_>>()?,
        connect_timeout: time("--connect-timeout", &options.connect_timeout)?,
        total_timeout: time("--timeout", &options.timeout)?,
        idle_timeout: time("--idle-timeout", &options.idle_timeout)?,
        replicas,
        ..Target::plain(base_url)
    })
}

/// The engine and its replicas.
fn engines(given: &[String]) -> anyhow::Result<(BaseUrl, Vec<BaseUrl>)> {
    if given.len() > MAX_ENGINES {
        bail!("--base-url: {} engines; at most {MAX_ENGINES} can be given", given.len());
    }
    let mut urls: Vec<BaseUrl> = Vec::with_capacity(given.len().max(1));
    let default = [DEFAULT_BASE_URL.to_owned()];
    for text in if given.is_empty() { &default } else { given } {
        let url: BaseUrl = text.parse().map_err(|e| anyhow!("--base-url {e}"))?;
        if urls.contains(&url) {
            bail!("--base-url {url} is given twice: each of several is another engine");
        }
        urls.push(url);
    }
    let first = urls.remove(0);
    Ok((first, urls))
}

fn header(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = text.split_once(':').ok_or_else(|| {
        // Not repeated: without its colon it may be nothing but a value.
        anyhow!("--header: expected 'Name: value'")
    })?;
    let name = name.trim();
    if SECRET_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        bail!(
            "--header {name}: a secret does not belong on a command line; put it into --api-key-file or OPENAI_API_KEY, on each agent's host"
        );
    }
    Ok((name.to_owned(), value.trim().to_owned()))
}

fn object(option: &str, path: &Path) -> anyhow::Result<Map<String, Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{option} {}", path.display()))?;
    let value: Value = serde_json::from_str(&text).with_context(|| format!("{option} {}", path.display()))?;
    match value {
        Value::Object(object) => Ok(object),
        _ => bail!("{option} {}: expected a JSON object", path.display()),
    }
}

/// The objectives that were given; none when none was.
///
/// # Errors
/// The first that cannot be understood.
pub(super) fn objectives(options: &Objectives) -> anyhow::Result<Option<SloSet>> {
    let named = [("ttft", &options.ttft_slo), ("tpot", &options.tpot_slo), ("e2e", &options.e2e_slo)];
    let mut texts = options.slo.clone();
    texts.extend(named.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?))));
    if texts.iter().any(|t| t == "none") {
        if texts.len() > 1 {
            bail!("--slo none beside other objectives");
        }
        return Ok(Some(SloSet::default()));
    }
    if texts.is_empty() {
        return Ok(None);
    }
    set(texts.iter().map(String::as_str)).map(Some)
}

fn set<'a>(texts: impl Iterator<Item = &'a str>) -> anyhow::Result<SloSet> {
    let parse = |text: &str| text.parse::<Slo>().map_err(|e| anyhow!("--slo {text}: {e}"));
    SloSet::new(texts.map(parse).collect::<anyhow::Result<_>>()?).map_err(|e| anyhow!("--slo: {e}"))
}

fn slos(options: &Objectives, target: &Target) -> anyhow::Result<SloSet> {
    let slos = match objectives(options)? {
        Some(slos) => slos,
        None => set(DEFAULT_SLOS.iter().copied())?,
    };
    if slos.needs_itl_evidence() && !evidence(target) {
        bail!("--slo itl needs proof that every event holds one token: add --token-counts or --logprobs");
    }
    Ok(slos)
}

/// Whether anything is asked for that can prove inter-token latencies.
fn evidence(target: &Target) -> bool {
    let asked = |field: &str| target.extra_body.get(field).is_some_and(|v| v == true);
    target.logprobs || target.token_counts || asked("return_token_ids") || asked("timings_per_token")
}

pub(super) fn fleet(options: &AgentOptions) -> anyhow::Result<FleetPlan> {
    let remote = options.agents.unwrap_or(0);
    let local = options.local_agents.unwrap_or(usize::from(options.agents.is_none()));
    if local + remote == 0 {
        bail!("no agents: --local-agents or --agents must be at least 1");
    }
    if local + remote > MAX_AGENTS {
        bail!("{} agents are more than the {MAX_AGENTS} that one coordinator leads", local + remote);
    }
    if options.engine.is_some() && local == 0 {
        bail!(
            "--engine is for an agent started here: add --local-agents 1, or give the recipe to the agent on the engine's host"
        );
    }
    let awaited = options.agents.is_some() || options.await_engine || options.await_gpu;
    if options.listen.is_some() && !awaited {
        bail!(
            "--listen would be ignored without --agents, which says how many to wait for, --await-engine or --await-gpu"
        );
    }
    Ok(FleetPlan {
        local,
        remote,
        awaits_engine: options.await_engine && options.engine.is_none(),
        awaits_gpu: options.await_gpu && !options.gpu,
        listen: options.listen.clone().unwrap_or_else(|| "127.0.0.1:0".into()),
        join_timeout: time("--join-timeout", &options.join_timeout)?,
    })
}

mod search;
#[cfg(test)]
mod tests;
