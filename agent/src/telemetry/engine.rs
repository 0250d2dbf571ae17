//! The engine's own metrics: Prometheus text, read under the names that its dialect gives.
//!
//! Only values are wanted here, by whole names and over all labels. The parsers that were looked at take no colon in a
//! name (`prometheus-parse` 0.2.5), which every name of vLLM and SGLang has, or refuse a page for one odd line.

use common::dialect::Metrics;
use common::ids::Nanos;
use common::telemetry::EngineSample;

/// A page of metrics.
#[derive(Debug)]
pub struct Page(String);

impl Page {
    /// Takes a page; lines that are no metric are passed over.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        Self(String::from_utf8_lossy(body).into_owned())
    }

    /// The value of a gauge or counter, summed over its labels. A counter may be called with or without `_total`.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values(name).reduce(|sum, n| sum + n)
    }

    /// The highest value of a gauge over its labels: of shares, which add up to nothing.
    #[must_use]
    pub fn highest(&self, name: &str) -> Option<f64> {
        self.values(name).reduce(f64::max)
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = f64> + 'a {
        let short = name.strip_suffix("_total").unwrap_or(name);
        self.0.lines().filter_map(move |line| {
            let (of, value) = sample(line)?;
            (of == name || of == short).then_some(value)
        })
    }

    /// Sum and number of a histogram or summary.
    #[must_use]
    pub fn sum_and_count(&self, name: &str) -> Option<(f64, f64)> {
        Some((self.value(&format!("{name}_sum"))?, self.value(&format!("{name}_count"))?))
    }

    /// What the page says under the names of `metrics`.
    #[must_use]
    pub fn sample(&self, metrics: &Metrics, at: Nanos) -> EngineSample {
        let value = |name: Option<&str>| name.and_then(|name| self.value(name));
        let pair = |name: Option<&str>| name.and_then(|name| self.sum_and_count(name));
        EngineSample {
            at,
            running: value(metrics.running),
            waiting: value(metrics.waiting),
            kv_cache_usage: metrics.kv_cache_usage.and_then(|name| self.highest(name)),
            prefix_queries: value(metrics.prefix_queries),
            prefix_hits: value(metrics.prefix_hits),
            preemptions: value(metrics.preemptions),
            generated_tokens: value(metrics.generated_tokens),
            prompt_tokens: value(metrics.prompt_tokens),
            ttft: pair(metrics.ttft),
            queue_time: pair(metrics.queue_time),
            e2e: pair(metrics.e2e),
        }
    }
}

/// Name and value of a line; none when it is a comment or something else. What may follow the value is a timestamp.
fn sample(line: &str) -> Option<(&str, f64)> {
    let name =
        line.split(['{', ' ', '\t']).next().filter(|name| !name.is_empty() && !name.starts_with('#'))?;
    let rest = &line[name.len()..];
    // An exemplar may follow the value, with labels of its own; a label's value may hold blanks and braces.
    let rest = rest.split_once(" # {").map_or(rest, |(before, _)| before);
    let value = if rest.starts_with('{') { rest.rsplit_once('}')?.1 } else { rest };
    let value = value.split_whitespace().next()?.parse().ok()?;
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use common::dialect::Dialect;

    use super::*;

    #[test]
    fn a_page_is_read_under_the_dialects_names() {
        let page = Page::read(
            b"# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n\
              vllm:num_requests_running{engine=\"0\",model_name=\"a b\"} 2.0\n\
              vllm:num_requests_running{engine=\"1\"} 1.0\n\
              # TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{engine=\"0\"} 12.0\n\
              # TYPE vllm:time_to_first_token_seconds histogram\n\
              vllm:time_to_first_token_seconds_bucket{le=\"0.1\"} 3.0\n\
              vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 4.0\n\
              vllm:time_to_first_token_seconds_sum 1.5\nvllm:time_to_first_token_seconds_count 4.0\n\
              vllm:num_requests_running_total 9\n",
        );
        let vllm: Dialect = "vllm".parse().unwrap();
        let sample = page.sample(&vllm.traits().metrics.unwrap(), Nanos(7));
        assert_eq!((sample.at, sample.running, sample.waiting), (Nanos(7), Some(3.0), None));
        assert_eq!((sample.generated_tokens, sample.ttft), (Some(12.0), Some((1.5, 4.0))));
        assert_eq!(sample.e2e, None);
        assert_eq!(Page::read(b"not a page {").value("x"), None);
    }

    #[test]
    fn a_name_is_whole_and_a_counter_may_lack_its_ending() {
        let page = Page::read(
            b"running_total 9\nrunning{a=\"b c\"} 2.0 1700\nrunning 1\nhits{e=\"0\"} 4 # {trace=\"x\"} 0.5 17\n",
        );
        assert_eq!((page.value("running"), page.highest("running")), (Some(3.0), Some(2.0)));
        assert_eq!((page.value("hits_total"), page.value("waiting")), (Some(4.0), None));
    }
}
