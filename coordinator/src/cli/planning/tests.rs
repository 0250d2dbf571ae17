//! Bad input gets a message that says what and where.

use clap::Parser;

use super::*;
use crate::cli::options::{Command, Options};

fn planned(words: &str) -> anyhow::Result<Plan> {
    let options = Options::try_parse_from(format!("coordinator {words}").split_whitespace())?;
    let (common, rates) = parts(&options.command);
    plan(common, &rates)
}

fn parts(command: &Command) -> (&Common, Rates) {
    command.sending().expect("a command that sends")
}

fn error(words: &str) -> String {
    format!("{:#}", planned(words).expect_err(words))
}

#[test]
fn the_shortest_command_line_is_a_whole_plan() {
    let plan = planned("sweep --rates 1,2,4,8").unwrap();
    assert_eq!(plan.trials.len(), 12);
    assert_eq!(plan.target.base_url.to_string(), "http://127.0.0.1:8000/v1");
    assert_eq!(plan.slos.to_string(), "ttft=1s tpot=50ms");
    assert_eq!((plan.fleet.local, plan.fleet.remote, plan.fleet.listen.as_str()), (1, 0, "127.0.0.1:0"));
    assert_eq!(plan.scheduled_length(), Nanos::from_secs(720));
    assert_eq!(plan.max_concurrency, None);
}

#[test]
fn bad_options_are_named() {
    for (words, says) in [
        ("sweep --rates 0", "--rates: rate 0 is not"),
        ("sweep --rates NaN", "--rates: rate NaN is not"),
        ("sweep --rates -3", "--rates: rate -3 is not"),
        ("run --rate -3", "--rate: rate -3 is not"),
        ("sweep --rates 1,x", "--rates: rate \"x\" is not"),
        ("sweep --rates 1,1.0", "stands twice"),
        ("sweep --rates inf", "--requests"),
        ("sweep --rates 1 --repeats 0", "--repeats"),
        ("sweep --rates 1 --duration 0", "--duration 0"),
        ("sweep --rates 1 --requests 0", "--requests must be at least 1"),
        ("sweep --rates 1 --arrival weibull", "weibull"),
        ("sweep --rates 1 --burst-size 3", "--burst-size would be ignored"),
        ("sweep --rates 1 --arrival burst --burst-size 0", "--burst-size"),
        ("sweep --rates 1 --max-failures 2", "is not a share of requests"),
        ("sweep --rates 1 --concurrency 3", "--concurrency would be ignored"),
        ("sweep --rates 1 --arrival closed --concurrency 3", "--rates would be ignored"),
        ("run --arrival closed --concurrency 0 --requests 9", "--concurrency"),
        ("run --arrival closed --concurrency 3", "--requests"),
        ("run --arrival closed --concurrency 3,4 --requests 9", "one trial"),
        ("run --arrival closed --concurrency 1 --requests 9 --local-agents 2", "--concurrency 1 is less"),
        ("sweep --rates 1 --cv 2", "--cv would be ignored without --arrival gamma"),
        ("sweep --rates 1 --arrival gamma --cv 0", "--rates 1: "),
        ("sweep --rates 1 --arrival ramp", "--rate-end"),
        ("sweep --rates 1 --arrival ramp --rate-end inf", "--rate-end must be"),
        ("sweep --rates 1 --arrival ramp --rate-end -1", "--rate-end: rate -1"),
        ("sweep --rates 1 --base-url 127.0.0.1", "--base-url 127.0.0.1: a base URL begins with"),
        ("sweep --rates 1 --slo ttff=1s", "--slo ttff=1s"),
        ("sweep --rates 1 --slo itl=50ms", "--logprobs"),
        ("sweep --rates 1 --slo-target 1.5", "--slo-target"),
        ("sweep --rates 1 --header Authorization:x", "does not belong on a command line"),
        ("sweep --rates 1 --header nothing", "expected 'Name: value'"),
        ("sweep --rates 1 --workload /no/such/file", "--workload /no/such/file"),
        ("sweep --rates 1 --max-concurrency 0", "--max-concurrency 0 is less than one"),
        ("sweep --rates 1 --max-concurrency 1 --local-agents 2", "for each of 2 agents"),
        ("sweep --rates 1 --warmup 999999", "--warmup 999999"),
        ("sweep --rates 1 --local-agents 0", "no agents"),
        ("sweep --rates 1 --agents 2", "--listen"),
        ("sweep --rates 1 --listen 127.0.0.1:7000", "--listen would be ignored"),
        ("sweep --rates 1 --timeout never", "--timeout never"),
        ("sweep --rates 1 --late-budget 0", "--late-budget 0"),
        ("run --rate 1 --tokenizer /no/such/file", "--tokenizer /no/such/file: "),
        ("run --rate 1 --tokenizer /no/such/file --no-text", "--no-text keeps none"),
    ] {
        let e = error(words);
        assert!(e.contains(says), "{words}: {e}");
    }
}

#[test]
fn a_search_is_planned_without_trials_and_what_cannot_be_searched_for_is_refused() {
    let plan = planned("sweep --find-knee --slo ttft=1s").unwrap();
    let search = plan.search.unwrap();
    assert!(plan.trials.is_empty());
    assert_eq!((search.min_rate_per_second, search.max_rate_per_second), (1.0, 500.0));
    assert_eq!((search.budget_seconds, search.relative_width, search.confidence), (1800.0, 0.1, 0.95));
    assert_eq!(planned("sweep --rates 1 --slo ttft=1s").unwrap().search, None);
    for (words, says) in [
        ("", "--find-knee needs to know what the engine has to meet: say so with --slo"),
        ("--slo none", "--find-knee needs to know"),
        ("--slo ttft=1s --slo p99:e2e=9s", "ask it of each request (--slo e2e=9s)"),
        ("--slo ttft=1s --slo-target 100%", "--slo-target 100%"),
        ("--slo ttft=1s --rates 1,2", "'--find-knee' cannot be used with '--rates"),
        ("--slo ttft=1s --repeats 2", "'--find-knee' cannot be used with '--repeats"),
        ("--slo ttft=1s --gate", "cannot be used with"),
        ("--slo ttft=1s --stop-after-knee", "cannot be used with"),
        ("--slo ttft=1s --max-failures 20%", "cannot be used with"),
        ("--slo ttft=1s --min-rate 8 --max-rate 8", "--min-rate 8 is not below --max-rate 8"),
        ("--slo ttft=1s --max-rate inf", "--max-rate inf: a search needs a finite rate"),
        ("--slo ttft=1s --min-rate 0", "--min-rate: rate 0 is not"),
        ("--slo ttft=1s --budget 50s", "--budget 50s: the first trial alone takes 63 s"),
        ("--slo ttft=1s --requests 1000 --budget 9m", "the first trial alone takes 1003 s"),
        ("--slo ttft=1s --bracket-width 0", "--bracket-width 0: say a share from 0.1% to 100%"),
        ("--slo ttft=1s --confidence 100%", "--confidence 100%"),
        ("--slo ttft=1s --trials-a-rate 0", "--trials-a-rate 0"),
        ("--slo ttft=1s --arrival ramp --rate-end 9", "--find-knee needs trials of one rate each"),
        ("--slo ttft=1s --arrival closed", "--find-knee needs an open loop"),
        ("--slo ttft=1s --arrival closed --concurrency 9", "cannot be used with"),
    ] {
        let e = error(&format!("sweep --find-knee {words}"));
        assert!(e.contains(says), "{words}: {e}");
    }
    let e = planned("sweep --rates 1 --budget 9m").map(|_| ()).unwrap_err().to_string();
    assert!(e.contains("--budget would be ignored without --find-knee"), "{e}");
}

#[test]
fn files_that_cannot_be_used_are_named_with_line_and_field() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let broken = file("w.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":1}\n");
    assert!(error(&format!("run --rate 1 --workload {broken}")).contains("w.jsonl: line 2: invalid type"));
    let empty = file("e.jsonl", "");
    assert!(error(&format!("run --rate 1 --workload {empty}")).contains("has no rows"));
    let list = file("l.json", "[1]");
    assert!(error(&format!("run --rate 1 --metadata {list}")).contains("expected a JSON object"));
    let own = file("o.json", "{\"plan\": {}}");
    assert!(
        error(&format!("run --rate 1 --metadata {own}")).contains("field `plan` is recorded by plimsoll")
    );
    let reserved = file("b.json", "{\"stream\": false}");
    assert!(error(&format!("run --rate 1 --extra-body {reserved}")).contains("field `stream`"));
    let chat = file("c.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}");
    assert_eq!(planned(&format!("run --rate 1 --workload {chat}")).unwrap().target.api, Api::Chat);
    assert!(error(&format!("run --rate 1 --api completions --workload {chat}")).contains("use --api chat"));
}

#[test]
fn aliases_and_inf_are_understood() {
    let plan = planned("run --rate inf --requests 9 --ttft-slo 1.0 --e2e-slo 10s").unwrap();
    assert_eq!(plan.slos.to_string(), "ttft=1s e2e=10s");
    assert_eq!(plan.trials.len(), 1);
    assert!(planned("run --rate 1 --slo none").unwrap().slos.is_empty());
    let closed = planned("sweep --arrival closed --concurrency 1,32 --requests 9").unwrap();
    let mut workers: Vec<_> = closed.trials.iter().filter_map(|t| t.rate.workers()).collect();
    workers.sort_unstable();
    assert_eq!(workers, [1, 1, 1, 32, 32, 32]);
}
