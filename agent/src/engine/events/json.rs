//! The JSON shapes of an event, for serde.
//!
//! Fields that no trace needs are skipped without being kept; strings are borrowed where JSON allows it. An unknown
//! field is nothing, a known field of another type is malformed, and what a list holds is only counted.

use std::borrow::Cow;
use std::fmt;

use common::ids::Nanos;
use common::trace::EngineTime;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Chunk, TokenEvidence, Usage};

/// What every complaint about a count begins with.
pub(super) const BAD_COUNT: &str = "a token count is not a whole number";

/// The JSON of one event, as far as a trace needs it.
#[derive(Deserialize)]
pub(super) struct Payload<'a> {
    #[serde(default, borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) object: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub(super) choices: Option<Choices<'a>>,
    #[serde(default)]
    usage: Option<RawUsage>,
    /// llama.cpp, with `timings_per_token` in every event.
    #[serde(default)]
    timings: Option<Timings>,
    /// vLLM with --enable-per-request-metrics, and servers of one's own.
    #[serde(default)]
    metrics: Option<OwnMetrics>,
    /// llama.cpp's native count.
    #[serde(default)]
    tokens_predicted: Option<Count>,
}

impl<'a> Payload<'a> {
    pub(super) fn into_chunk(self) -> Chunk<'a> {
        // Events of other choices carry their own choice's counts.
        let foreign = self.choices.as_ref().is_some_and(|c| c.first.is_none() && c.others);
        let engine_time = self.engine_time().filter(|_| !foreign);
        let usage = self.usage.filter(|_| !foreign).and_then(RawUsage::counted);
        let predicted = self.timings.and_then(|t| t.predicted_n).or(self.tokens_predicted).map(|c| c.0);
        let cumulative = predicted.filter(|_| !foreign).or(usage.and_then(|u| u.completion));
        let choice = self.choices.and_then(|c| c.first).unwrap_or_default();
        let delta = choice.delta.unwrap_or_default();
        let or_empty = |text: Option<Text<'a>>| text.map(|t| t.0).unwrap_or_default();
        let first_text = |a: Option<Text<'a>>, b| {
            Some(or_empty(a)).filter(|t| !t.is_empty()).unwrap_or_else(|| or_empty(b))
        };
        let logprobs = choice.logprobs.and_then(|l| l.tokens.0.or(l.content.0).or(l.token_logprobs.0));
        Chunk {
            answer: first_text(choice.text, delta.content),
            // Engines in transition send the same text under both names.
            reasoning: first_text(delta.reasoning_content, delta.reasoning),
            tool_arguments: delta.tool_calls.map(|t| t.0).unwrap_or_default(),
            finish_reason: choice.finish_reason.map(|r| r.0).filter(|r| !r.is_empty()),
            usage,
            tokens: TokenEvidence { cumulative, ids: choice.token_ids.0, logprobs },
            engine_time,
        }
    }
}

impl Payload<'_> {
    /// Where engines put the time that they took. None unless it is more than one number of nothing.
    fn engine_time(&self) -> Option<EngineTime> {
        let timings = self.timings.as_ref().map(|t| EngineTime {
            queue: None,
            first_token: t.prompt_ms.times(1e6),
            generation: t.predicted_ms.times(1e6),
        });
        let metrics = self.metrics.as_ref().map(|m| {
            let first_token = m.time_to_first_token_ms.times(1e6).or(m.ttft_ms.times(1e6));
            let rest = m.total_ms.times(1e6).zip(first_token).map(|(total, first)| total - first);
            let generation = m.generation_time_ms.times(1e6).or(rest);
            EngineTime { queue: m.queue_time_ms.times(1e6), first_token, generation }
        });
        let usage = self.usage.as_ref().map(|u| EngineTime {
            queue: None,
            first_token: u.prompt_time.times(1e9),
            generation: u.completion_time.times(1e9),
        });
        [metrics, timings, usage].into_iter().flatten().find(|time| *time != EngineTime::default())
    }
}

#[derive(Deserialize)]
struct OwnMetrics {
    #[serde(default)]
    queue_time_ms: Number,
    #[serde(default)]
    time_to_first_token_ms: Number,
    #[serde(default)]
    generation_time_ms: Number,
    #[serde(default)]
    ttft_ms: Number,
    #[serde(default)]
    total_ms: Number,
}

#[derive(Deserialize)]
struct RawUsage {
    #[serde(default)]
    completion_tokens: Option<Count>,
    #[serde(default)]
    prompt_tokens: Option<Count>,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
    /// TabbyAPI, seconds.
    #[serde(default)]
    prompt_time: Number,
    #[serde(default)]
    completion_time: Number,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<Count>,
}

impl RawUsage {
    /// Ollama and others send zeros until they know.
    fn counted(self) -> Option<Usage> {
        let completion = self.completion_tokens.map(|c| c.0);
        let prompt = self.prompt_tokens.map(|c| c.0);
        let cached = self.prompt_tokens_details.and_then(|d| d.cached_tokens).map(|c| c.0);
        let known = completion.unwrap_or(0) > 0 || prompt.unwrap_or(0) > 0;
        known.then_some(Usage { completion, prompt, cached })
    }
}

#[derive(Deserialize)]
struct Timings {
    #[serde(default)]
    predicted_n: Option<Count>,
    #[serde(default)]
    prompt_ms: Number,
    #[serde(default)]
    predicted_ms: Number,
}

#[derive(Deserialize, Default)]
struct Choice<'a> {
    #[serde(default)]
    index: Option<Count>,
    #[serde(default, borrow)]
    text: Option<Text<'a>>,
    #[serde(default, borrow)]
    delta: Option<Delta<'a>>,
    #[serde(default, borrow)]
    finish_reason: Option<Text<'a>>,
    #[serde(default)]
    logprobs: Option<Logprobs>,
    #[serde(default)]
    token_ids: Length,
}

#[derive(Deserialize, Default)]
struct Delta<'a> {
    #[serde(default, borrow)]
    content: Option<Text<'a>>,
    #[serde(default, borrow)]
    reasoning_content: Option<Text<'a>>,
    #[serde(default, borrow)]
    reasoning: Option<Text<'a>>,
    #[serde(default, borrow)]
    tool_calls: Option<ToolCalls<'a>>,
}

#[derive(Deserialize)]
struct Logprobs {
    /// Completions.
    #[serde(default)]
    tokens: Length,
    /// Chat; llama.cpp also for completions.
    #[serde(default)]
    content: Length,
    #[serde(default)]
    token_logprobs: Length,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    #[serde(default, borrow)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(default, borrow)]
    arguments: Option<Text<'a>>,
}

/// A string that borrows where it has no escapes. (`Option<Cow>` itself would always copy.)
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// A count: a whole number, zero or more. `12.0` is one, `1.5`, `-1` and `"12"` are not.
#[derive(Clone, Copy)]
struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole;
        impl<'de> Visitor<'de> for Whole {
            type Value = Count;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }
            fn visit_u64<E>(self, n: u64) -> Result<Count, E> {
                Ok(Count(n))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Count, E> {
                // Above 2^53 a float does not hold every whole number.
                let whole = (0.0..=9_007_199_254_740_992.0).contains(&n) && n.fract() == 0.0;
                if whole { Ok(Count(n as u64)) } else { Err(E::custom(BAD_COUNT)) }
            }
            fn visit_i64<E: de::Error>(self, _: i64) -> Result<Count, E> {
                Err(E::custom(BAD_COUNT))
            }
            fn visit_str<E: de::Error>(self, _: &str) -> Result<Count, E> {
                Err(E::custom(BAD_COUNT))
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Count, E> {
                Err(E::custom(BAD_COUNT))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Count, A::Error> {
                Err(de::Error::custom(BAD_COUNT))
            }
            fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Count, A::Error> {
                Err(de::Error::custom(BAD_COUNT))
            }
        }
        deserializer.deserialize_any(Whole)
    }
}

/// A time that an engine says it took. It decides nothing: whatever is not a number from zero up is none.
#[derive(Clone, Copy, Default)]
struct Number(Option<f64>);

impl Number {
    /// In nanoseconds, `unit` of which are one.
    fn times(self, unit: f64) -> Option<Nanos> {
        let ns = self.0? * unit;
        (0.0..9e18).contains(&ns).then_some(Nanos(ns as u64))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <Option<&'de RawValue>>::deserialize(deserializer)?;
        Ok(Self(raw.and_then(|raw| raw.get().parse().ok())))
    }
}

/// Length of a list; none for anything else.
#[derive(Default)]
struct Length(Option<u64>);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;
        impl<'de> Visitor<'de> for Elements {
            type Value = Length;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Length, A::Error> {
                let mut n = 0;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    n += 1;
                }
                Ok(Length(Some(n)))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Length, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Length(None))
            }
            fn visit_unit<E>(self) -> Result<Length, E> {
                Ok(Length(None))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Length, E> {
                Ok(Length(None))
            }
            fn visit_u64<E>(self, _: u64) -> Result<Length, E> {
                Ok(Length(None))
            }
            fn visit_i64<E>(self, _: i64) -> Result<Length, E> {
                Ok(Length(None))
            }
            fn visit_f64<E>(self, _: f64) -> Result<Length, E> {
                Ok(Length(None))
            }
            fn visit_str<E>(self, _: &str) -> Result<Length, E> {
                Ok(Length(None))
            }
        }
        deserializer.deserialize_any(Elements)
    }
}

/// The choice with index 0. One choice was asked for; what others say is not part of the trace.
pub(super) struct Choices<'a> {
    first: Option<Choice<'a>>,
    others: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Choices<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of choices")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Choices<'de>, A::Error> {
                let mut choices = Choices { first: None, others: false };
                while let Some(choice) = list.next_element::<Choice<'de>>()? {
                    if choice.index.is_none_or(|i| i.0 == 0) && choices.first.is_none() {
                        choices.first = Some(choice);
                    } else {
                        choices.others = true;
                    }
                }
                Ok(choices)
            }
        }
        deserializer.deserialize_seq(List)
    }
}

/// The arguments of all tool calls of one event, in order.
struct ToolCalls<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for ToolCalls<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = ToolCalls<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of tool calls")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ToolCalls<'de>, A::Error> {
                let mut all = Cow::Borrowed("");
                while let Some(call) = list.next_element::<ToolCall<'de>>()? {
                    let arguments = call.function.and_then(|f| f.arguments).map(|a| a.0).unwrap_or_default();
                    if all.is_empty() {
                        all = arguments;
                    } else {
                        all.to_mut().push_str(&arguments);
                    }
                }
                Ok(ToolCalls(all))
            }
        }
        deserializer.deserialize_seq(List)
    }
}
