//! The engine's own metrics: Prometheus text, read under the names that its dialect gives.
//!
//! Only values are wanted here, by whole names and over all labels but the bound of a bucket. The parsers that were
//! looked at take no colon in a name (`prometheus-parse` 0.2.5), which every name of vLLM and SGLang has, or refuse a
//! page for one odd line.

use common::dialect::Metrics;
use common::ids::Nanos;
use common::telemetry::{EngineHistogram, EngineSample};

/// Buckets of a histogram: engines have some dozens. One that has more is kept without, for a record is kept of each
/// second, and waits in memory while the coordinator is away.
const MAX_BUCKETS: usize = 512;

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
        self.samples().filter_map(move |(of, _, value)| (of == name || of == short).then_some(value))
    }

    fn samples(&self) -> impl Iterator<Item = (&str, &str, f64)> {
        self.0.lines().filter_map(sample)
    }

    /// A histogram, summed over its labels; or a summary, which has no buckets.
    #[must_use]
    pub fn histogram(&self, name: &str) -> Option<EngineHistogram> {
        let (sum, count) = (format!("{name}_sum"), format!("{name}_count"));
        let series = self.values(&count).count();
        Some(EngineHistogram {
            sum: self.value(&sum)?,
            count: self.value(&count)?,
            buckets: self.buckets(&format!("{name}_bucket"), series),
        })
    }

    /// The buckets of `series` label sets together. A bound that some of them lack is left out: what is below it is
    /// not known of those.
    fn buckets(&self, name: &str, series: usize) -> Vec<(f64, f64)> {
        let of_name = self.samples().filter(|(of, ..)| *of == name);
        let bucket = |(_, labels, below): (_, &str, f64)| Some((label(labels, "le")?.parse().ok()?, below));
        let finite = |&(bound, below): &(f64, f64)| bound.is_finite() && below.is_finite();
        let mut buckets: Vec<(f64, f64)> = of_name.filter_map(bucket).filter(finite).collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let of_one_bound = buckets.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() == series);
        let summed = of_one_bound.filter_map(|same| Some((same.first()?.0, same.iter().map(|b| b.1).sum())));
        let summed: Vec<(f64, f64)> = summed.take(MAX_BUCKETS + 1).collect();
        if summed.len() > MAX_BUCKETS { Vec::new() } else { summed }
    }

    /// What the page says under the names of `metrics`.
    #[must_use]
    pub fn sample(&self, metrics: &Metrics, at: Nanos) -> EngineSample {
        let value = |name: Option<&str>| name.and_then(|name| self.value(name));
        let histogram = |name: Option<&str>| name.and_then(|name| self.histogram(name));
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
            ttft: histogram(metrics.ttft),
            queue_time: histogram(metrics.queue_time),
            e2e: histogram(metrics.e2e),
        }
    }
}

/// Name, labels and value of a line; none when it is a comment or something else. What may follow the value is a
/// timestamp.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let name =
        line.split(['{', ' ', '\t']).next().filter(|name| !name.is_empty() && !name.starts_with('#'))?;
    let rest = &line[name.len()..];
    // An exemplar may follow the value, with labels of its own; a label's value may hold blanks and braces.
    let rest = rest.split_once(" # {").map_or(rest, |(before, _)| before);
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => rest.rsplit_once('}')?,
        None => ("", rest),
    };
    let value = value.split_whitespace().next()?.parse().ok()?;
    Some((name, labels, value))
}

/// The value of a label as it is written; none when there is no such label.
fn label<'a>(mut labels: &'a str, name: &str) -> Option<&'a str> {
    loop {
        let (key, rest) = labels.split_once('=')?;
        let rest = rest.trim_start().strip_prefix('"')?;
        let mut escaped = false;
        let (value, after) = rest.split_at(rest.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?);
        if key.trim() == name {
            return Some(value);
        }
        labels = after.strip_prefix('"')?.trim_start_matches([',', ' ', '\t']);
    }
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
        let ttft = EngineHistogram { sum: 1.5, count: 4.0, buckets: vec![(0.1, 3.0)] };
        assert_eq!((sample.generated_tokens, sample.ttft), (Some(12.0), Some(ttft)));
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

    #[test]
    fn buckets_are_summed_over_label_sets_by_their_bound() {
        let page = Page::read(
            b"t_bucket{le=\"0.5\",m=\"a, le=\\\"9\\\" {x} \\\\\"} 2 # {trace=\"x\"} 0.3 17\n\
              t_bucket{m=\"}\", le=\"0.10\",} 1\nt_bucket{m=\"a\",le=\"+Inf\"} 3.0\n\
              t_bucket{le=\"0.1\",m=\"b\"} 4\nt_bucket{file=\"c\",le=\"0.5\"} 5 1700\nt_bucket{le=\"+Inf\"} 5\n\
              t_bucket{le=\"0.2\",m=\"b\"} 4\nt_bucket{m=\"b\"} 7\nt_bucket{le=\"x\"} 7\nt_bucket_bucket{le=\"3\"} 7\n\
              t_sum{m=\"a\"} 1.0\nt_sum{m=\"b\"} 0.5\nt_count{m=\"a\"} 3\nt_count{m=\"b\"} 5\n",
        );
        // 0.2 is a bound of one of the two only: how many of the other are below it nobody says.
        let buckets = vec![(0.1, 5.0), (0.5, 7.0)];
        assert_eq!(page.histogram("t"), Some(EngineHistogram { sum: 1.5, count: 8.0, buckets }));
    }

    #[test]
    fn a_page_full_of_buckets_is_kept_without_them() {
        let lines = |n: usize| -> String { (0..n).map(|i| format!("t_bucket{{le=\"{i}\"}} 1\n")).collect() };
        let page = |n| Page::read(format!("{}t_sum 1\nt_count 1\n", lines(n)).as_bytes());
        assert_eq!(page(MAX_BUCKETS).histogram("t").unwrap().buckets.len(), MAX_BUCKETS);
        assert_eq!(page(MAX_BUCKETS + 1).histogram("t").unwrap().buckets.len(), 0);
    }

    #[test]
    fn a_summary_has_no_buckets() {
        let page = Page::read(b"t{quantile=\"0.5\"} 0.2\nt_sum 1\nt_count 4\nhalf_sum 1\n");
        let summary = EngineHistogram { sum: 1.0, count: 4.0, buckets: Vec::new() };
        assert_eq!((page.histogram("t"), page.histogram("half")), (Some(summary), None));
    }

    #[test]
    fn a_label_is_found_by_its_whole_name() {
        let labels = "file=\"1\",b = \"\\\"le=\\\\\" , le=\"2\"";
        assert_eq!((label(labels, "le"), label(labels, "file")), (Some("2"), Some("1")));
        assert_eq!((label(labels, "e"), label("le=\"2", "le"), label("", "le")), (None, None, None));
    }
}
