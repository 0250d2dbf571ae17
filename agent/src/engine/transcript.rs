//! Keeps what an engine said, within bounds.

use std::borrow::Cow;

use common::ids::Digest;
use common::trace::Text;

use super::events::Chunk;
use super::secret::Secret;

/// Text kept of one request; what comes after it is counted, not kept, and the request has no hash.
const MAX_TEXT_BYTES: usize = 8 << 20;
/// What is kept of an error body or event.
pub(super) const MAX_ERROR_BYTES: usize = 2 << 10;

/// The text of one request.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    output: String,
    reasoning: String,
    chars: u64,
    overflowed: bool,
}

impl Transcript {
    pub(super) fn add(&mut self, chunk: &Chunk<'_>) {
        self.push(&chunk.answer, |t| &mut t.output);
        self.push(&chunk.reasoning, |t| &mut t.reasoning);
        self.push(&chunk.tool_arguments, |t| &mut t.output);
    }

    fn push(&mut self, text: &str, to: fn(&mut Self) -> &mut String) {
        self.chars += text.chars().count() as u64;
        self.overflowed |= self.output.len() + self.reasoning.len() + text.len() > MAX_TEXT_BYTES;
        if !self.overflowed {
            to(self).push_str(text);
        }
    }

    /// The text of the trace. Without `keep` hash and length remain, and no error body: engines quote prompts in it.
    pub(super) fn finish(mut self, error_body: Option<Vec<u8>>, keep: bool, secret: Option<&Secret>) -> Text {
        let scrub = |text: &mut String| secret.iter().for_each(|s| s.scrub_in_place(text));
        scrub(&mut self.output);
        scrub(&mut self.reasoning);
        let hash = (self.chars > 0 && !self.overflowed).then(|| {
            let said = [self.output.as_bytes(), self.reasoning.as_bytes()].concat();
            Digest::of(&said).to_string()[..16].to_owned()
        });
        let kept = |text: String| (keep && !text.is_empty()).then_some(text);
        let error_body = error_body.filter(|_| keep).map(|bytes| {
            let mut text = readable(&bytes).into_owned();
            scrub(&mut text);
            text
        });
        Text {
            output: kept(self.output),
            reasoning: kept(self.reasoning),
            output_hash: hash,
            output_chars: self.chars,
            error_body,
        }
    }
}

/// The bytes as text, without a character that the limit cut in two.
fn readable(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Err(e) if e.error_len().is_none() => String::from_utf8_lossy(&bytes[..e.valid_up_to()]),
        _ => String::from_utf8_lossy(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(answer: &str, reasoning: &str) -> Chunk<'static> {
        Chunk { answer: answer.to_owned().into(), reasoning: reasoning.to_owned().into(), ..Chunk::default() }
    }

    #[test]
    fn without_text_its_hash_and_length_remain() {
        let said = || {
            let mut t = Transcript::default();
            t.add(&chunk("", "hm"));
            t.add(&chunk("ä", ""));
            t
        };
        let kept = said().finish(Some(b"{}".to_vec()), true, None);
        let bare = said().finish(Some(b"{}".to_vec()), false, None);
        assert_eq!((kept.output.as_deref(), kept.reasoning.as_deref()), (Some("ä"), Some("hm")));
        assert_eq!(kept.output_hash, Some(Digest::of("ähm".as_bytes()).to_string()[..16].to_owned()));
        assert_eq!((&bare.output_hash, bare.output_chars), (&kept.output_hash, 3));
        assert_eq!((bare.output, bare.reasoning, bare.error_body), (None, None, None));
        assert_eq!(Transcript::default().finish(None, true, None), Text::default());
    }

    #[test]
    fn a_huge_answer_is_counted_and_not_kept() {
        let mut t = Transcript::default();
        let piece = chunk(&"x".repeat(1 << 20), "");
        (0..20).for_each(|_| t.add(&piece));
        let text = t.finish(None, true, None);
        assert_eq!((text.output_chars, text.output_hash), (20 << 20, None));
        assert_eq!(text.output.unwrap().len(), 8 << 20);
    }

    #[test]
    fn a_secret_that_an_engine_repeats_is_replaced_even_across_events() {
        let secret = Secret::new("sk-1").unwrap();
        let mut t = Transcript::default();
        t.add(&chunk("s", ""));
        t.add(&chunk("k-1", ""));
        let text = t.finish(Some(b"bad key sk-1 \xe2\x82".to_vec()), true, Some(&secret));
        assert_eq!(text.output.as_deref(), Some("[redacted]"));
        assert_eq!(text.error_body.as_deref(), Some("bad key [redacted] "));
    }
}
