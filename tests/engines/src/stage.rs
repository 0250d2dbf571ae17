//! Plays an answer, with the misbehaviour that was asked for. What all engines have in common is here: where in a
//! stream it goes wrong, and how it ends then. How an event looks is the [`Voice`] of each engine.

use std::ops::Range;

use crate::answer::{Answer, By, Token, events, text_of};
use crate::ask::Ask;
use crate::expected::{Channel, Outcome};
use crate::reply::{Reply, Stack};
use crate::script::{Script, Usage};
use crate::text::quoted;
use crate::{Api, Scenario};

/// Events before something goes wrong in the middle.
const BEFORE_TROUBLE: usize = 3;
/// Tokens of reasoning before the answer.
const REASONING: usize = 6;

/// What an engine always does in the same way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) stack: Stack,
    pub(crate) by: By,
    /// The end mark.
    pub(crate) done: &'static str,
    /// The end mark comes after an error too.
    pub(crate) done_after_error: bool,
    /// A line that keeps the connection alive.
    pub(crate) ping: &'static str,
}

/// How an engine writes.
pub(crate) trait Voice {
    /// What comes before the first token.
    fn open(&self, _: &mut Stage<'_>) {}

    /// The tokens in `range`, which may be empty, perhaps the last.
    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, finish: Option<&str>);

    /// What comes after the last token, the end mark included.
    fn end(&self, stage: &mut Stage<'_>);

    /// The event that says that the request failed.
    fn trouble(&self, stage: &Stage<'_>) -> String;
}

/// The tokens of one event.
pub(crate) struct Piece {
    pub(crate) tokens: Vec<Token>,
    pub(crate) text: String,
    pub(crate) channel: Channel,
}

/// A stream that is being played.
pub(crate) struct Stage<'a> {
    pub(crate) ask: &'a Ask,
    pub(crate) answer: Answer,
    pub(crate) scenario: Scenario,
    pub(crate) manner: Manner,
    pub(crate) out: Script,
    /// Tokens that the last count in the stream included.
    counted: u64,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(ask: &'a Ask, answer: Answer, scenario: Scenario, manner: Manner) -> Self {
        Self { ask, answer, scenario, manner, out: Script::new(manner.stack), counted: 0 }
    }

    /// The endpoint that was asked.
    pub(crate) fn api(&self) -> Api {
        self.ask.api
    }

    /// The tokens of an event.
    pub(crate) fn piece(&self, range: &Range<usize>) -> Piece {
        let tokens = self.answer.tokens[range.clone()].to_vec();
        let channel = tokens.first().map_or(Channel::Answer, |t| t.channel);
        Piece { text: text_of(&tokens), channel, tokens }
    }

    /// The engine's counts when so many tokens are out, without those of the prefix cache.
    pub(crate) fn counts(&self, completion: u64) -> Usage {
        Usage { prompt: self.answer.prompt_tokens(), completion, cached: None }
    }

    /// The counts at the end.
    pub(crate) fn final_counts(&self) -> Usage {
        Usage { cached: Some(self.answer.cached), ..self.counts(self.answer.len()) }
    }

    /// Tokens since the last count in the stream, when an event counts up to `total`.
    pub(crate) fn since_counted(&mut self, total: u64) -> u64 {
        total - std::mem::replace(&mut self.counted, total)
    }

    /// The end mark, as this engine writes it.
    pub(crate) fn done(&mut self) {
        self.out.done(self.manner.done);
    }

    /// Plays it to its end.
    pub(crate) fn play(mut self, voice: &impl Voice) -> Reply {
        use Scenario as S;
        if !self.ask.stream {
            return self.unary();
        }
        match self.scenario {
            S::QueueFull | S::ErrorFirst => return self.fail(voice, 0),
            S::DoneOnly => {
                self.done();
                return self.out.close(Outcome::NoContent, 0);
            }
            S::AbortQueued => {
                self.answer.tokens.clear();
                voice.end(&mut self);
                return self.out.close(Outcome::NoContent, 0);
            }
            S::Reasoning => self.answer.reason(REASONING),
            S::ReasoningOnly => self.answer.reason(usize::MAX),
            S::ToolCalls => self.answer.call_tool(),
            S::BrokenCharacters => self.answer.break_characters(),
            S::ContextEnd => self.answer.run_out(),
            S::KeepAlives => (0..5).for_each(|_| self.out.comment(self.manner.ping)),
            _ => {}
        }
        let by = match self.scenario {
            S::SeveralTokens => By::Interval(4),
            S::Speculative => By::Bursts,
            S::Burst => By::All,
            _ => self.manner.by,
        };
        voice.open(&mut self);
        for (number, range) in events(&self.answer.tokens, by).into_iter().enumerate() {
            let generated = range.start as u64;
            let troubled = number == BEFORE_TROUBLE;
            match self.scenario {
                S::ErrorLater | S::ErrorComment | S::ErrorField | S::BadJson | S::BadCounts if troubled => {
                    return self.fail(voice, generated);
                }
                S::Cut if troubled => return self.out.cut(Outcome::TruncatedStream, generated),
                S::PingThenCut if troubled => {
                    self.out.comment(self.manner.ping);
                    return self.out.cut(Outcome::TruncatedStream, generated);
                }
                S::Swallowed if troubled => {
                    voice.say(&mut self, range.start..range.start, None);
                    return self.out.close(Outcome::TruncatedStream, generated);
                }
                S::Abort if troubled => {
                    self.answer.stop_after(range.start);
                    voice.say(&mut self, range.start..range.start, Some("abort"));
                    voice.end(&mut self);
                    return self.out.close(Outcome::EngineAborted, generated);
                }
                S::KeepAlives if number % 2 == 1 => self.out.comment(self.manner.ping),
                _ => {}
            }
            let finish = self.answer.is_last(range.end - 1).then_some(self.answer.finish);
            voice.say(&mut self, range, finish);
        }
        voice.end(&mut self);
        self.rechunk();
        let outcome = match self.scenario {
            // Only an engine that never sends an end mark can do without.
            S::NoDone => Outcome::TruncatedStream,
            _ => Outcome::Success,
        };
        let mut reply = self.out.close(outcome, self.answer.len());
        reply.deaf = self.scenario == S::Deaf;
        reply
    }

    /// Says that it failed when so many tokens were generated.
    fn fail(mut self, voice: &impl Voice, generated: u64) -> Reply {
        let malformed = matches!(self.scenario, Scenario::BadJson | Scenario::BadCounts);
        let event = voice.trouble(&self);
        self.out.fatal(&event);
        if self.manner.done_after_error {
            self.done();
        }
        self.out.close(if malformed { Outcome::MalformedStream } else { Outcome::ErrorEvent }, generated)
    }

    /// The answer of a request that asked for no stream: the protocol's own, for no engine is measured with it.
    fn unary(self) -> Reply {
        let text = quoted(&text_of(&self.answer.tokens));
        let (object, said) = match self.api() {
            Api::Completions => ("text_completion", format!(r#""text":{text}"#)),
            Api::Chat => ("chat.completion", format!(r#""message":{{"role":"assistant","content":{text}}}"#)),
        };
        let Usage { prompt, completion, .. } = self.final_counts();
        let body = format!(
            r#"{{"id":"{}","object":"{object}","created":1795978271,"model":"tiny","choices":[{{"index":0,{said},"finish_reason":"{}"}}],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{}}}}}"#,
            self.answer.number,
            self.answer.finish,
            prompt + completion
        );
        self.manner.stack.json(200, &body)
    }

    /// Cuts the body into HTTP chunks at other places than after each event.
    fn rechunk(&mut self) {
        let body = self.out.body();
        let ends = match self.scenario {
            Scenario::OneChunk => Vec::new(),
            Scenario::CutEvents => (0..body.len()).step_by(37).collect(),
            // Before every byte that continues a character.
            Scenario::CutCharacters => (1..body.len()).filter(|&at| body[at] & 0xc0 == 0x80).collect(),
            _ => return,
        };
        self.out.chunk_at(ends);
    }
}
