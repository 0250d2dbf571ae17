//! Counts the tokens of kept text with a model's own `tokenizer.json`.
//!
//! Owns the tokenizer library: nobody else names it, and a build without the feature `tokenizer` has none. It exists
//! because some engines say nothing of their tokens, and because a count that nobody checks is believed. What it says
//! is an estimate: text that is tokenised again need not give the tokens that it was made of, and tokens without text
//! (an end of sequence, the frame of a tool call) are not in it. So it must never replace a count that an engine gave,
//! nor be shown without its label. The tests below guard what is counted, those of `tests/tests/tokenizer.rs` the
//! label.

use std::fmt;
use std::path::Path;

use common::ids::Digest;
use common::trace::Text;
use serde_json::{Value, json};

#[cfg(feature = "tokenizer")]
use library as inner;
#[cfg(not(feature = "tokenizer"))]
use nothing as inner;

/// Why a tokenizer cannot be had. The file's name stands before it.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// A model's folder was named.
    #[error("it is a folder; name the tokenizer.json in it")]
    Folder,
    /// Its content.
    #[error("it is no tokenizer.json: {0}")]
    Content(String),
    /// The build.
    #[error("this build has no tokenizer; build the coordinator with its feature `tokenizer`")]
    NotBuilt,
}

/// A text that the tokenizer refuses, with its own words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Uncountable(String);

/// A loaded tokenizer, with where it came from. Loading takes long: it is done once.
pub struct Retokenizer {
    file: String,
    sha256: Digest,
    inner: inner::Tokenizer,
}

impl Retokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// See [`TokenizerError`].
    pub fn load(path: &Path) -> Result<Self, TokenizerError> {
        if path.is_dir() {
            return Err(TokenizerError::Folder);
        }
        let bytes = std::fs::read(path)?;
        let inner = inner::load(&bytes)?;
        Ok(Self { file: path.display().to_string(), sha256: Digest::of(&bytes), inner })
    }

    /// Tokens of the answer and the reasoning, without the special tokens that a tokenizer would put around them. None
    /// where the text was not kept whole, or holds no token: unknown never becomes 0.
    ///
    /// # Errors
    /// When the tokenizer refuses the text, as one without a token for an unknown word does.
    pub fn count(&self, text: &Text) -> Result<Option<u64>, Uncountable> {
        // Without a hash it was too long to be kept whole.
        if text.output_hash.is_none() {
            return Ok(None);
        }
        let mut tokens = 0;
        for part in [&text.output, &text.reasoning].into_iter().flatten() {
            tokens += inner::count(&self.inner, part).map_err(Uncountable)?;
        }
        Ok((tokens > 0).then_some(tokens))
    }

    /// The file as typed.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What the experiment record says of it.
    #[must_use]
    pub fn record(&self) -> Value {
        json!({"file": self.file, "sha256": self.sha256})
    }
}

impl fmt::Debug for Retokenizer {
    // A vocabulary is long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retokenizer").field("file", &self.file).field("sha256", &self.sha256).finish()
    }
}

#[cfg(feature = "tokenizer")]
mod library {
    pub(super) use tokenizers::Tokenizer;

    use super::TokenizerError;

    pub(super) fn load(bytes: &[u8]) -> Result<Tokenizer, TokenizerError> {
        let content = |e: tokenizers::Error| TokenizerError::Content(e.to_string());
        let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(content)?;
        // Some files cut or fill up to a model's length: the count would be that length.
        tokenizer.with_truncation(None).map_err(content)?;
        tokenizer.with_padding(None);
        Ok(tokenizer)
    }

    pub(super) fn count(tokenizer: &Tokenizer, text: &str) -> Result<u64, String> {
        // Without special tokens, and without the offsets, which nobody needs.
        let encoding = tokenizer.encode_fast(text, false).map_err(|e| e.to_string())?;
        Ok(encoding.len() as u64)
    }
}

#[cfg(not(feature = "tokenizer"))]
mod nothing {
    use super::TokenizerError;

    /// There is none.
    pub(super) type Tokenizer = std::convert::Infallible;

    pub(super) fn load(_: &[u8]) -> Result<Tokenizer, TokenizerError> {
        Err(TokenizerError::NotBuilt)
    }

    pub(super) fn count(tokenizer: &Tokenizer, _: &str) -> Result<u64, String> {
        match *tokenizer {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(output: Option<&str>, reasoning: Option<&str>) -> Text {
        let own = |s: &str| s.to_owned();
        let output_hash = Some("0123456789abcdef".to_owned());
        Text { output: output.map(own), reasoning: reasoning.map(own), output_hash, ..Text::default() }
    }

    /// A tokenizer of words that cuts after two tokens, fills up to nine, and begins with a special one.
    fn words(unknown: &str) -> Value {
        json!({
            "version": "1.0",
            "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
            "padding": {
                "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
                "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"
            },
            "added_tokens": [{
                "id": 1, "content": "[BOS]", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true
            }],
            "normalizer": null,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "[BOS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"[BOS]": {"id": "[BOS]", "ids": [1], "tokens": ["[BOS]"]}}
            },
            "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"[PAD]": 0, "[BOS]": 1, "[UNK]": 2, "keel": 3}, "unk_token": unknown}
        })
    }

    fn loaded(content: &str) -> Result<Retokenizer, TokenizerError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, content).unwrap();
        Retokenizer::load(&path)
    }

    #[test]
    fn what_cannot_be_loaded_is_said() {
        let said = |path: &Path| Retokenizer::load(path).unwrap_err().to_string();
        assert!(said(Path::new("/no/such/tokenizer.json")).contains("No such file"));
        let folder = tempfile::tempdir().unwrap();
        assert!(said(folder.path()).contains("name the tokenizer.json in it"));
    }

    #[cfg(feature = "tokenizer")]
    #[test]
    fn the_text_is_counted_and_nothing_around_it() {
        let content = words("[UNK]").to_string();
        let tokenizer = loaded(&content).unwrap();
        let count = |output, reasoning| tokenizer.count(&text(output, reasoning)).unwrap();
        assert_eq!(count(Some("one keel of four"), None), Some(4), "not cut, not filled up, no [BOS]");
        assert_eq!(count(Some("an answer"), Some("thought about for long")), Some(6));
        assert_eq!(count(None, Some("thought")), Some(1));
        assert_eq!(count(Some("   "), None), None, "unknown, and not 0");
        assert_eq!(count(None, None), None);
        let mut cut = text(Some("the part that was kept"), None);
        cut.output_hash = None;
        assert_eq!(tokenizer.count(&cut).unwrap(), None);
        assert_eq!(tokenizer.record()["sha256"], Digest::of(content.as_bytes()).to_string());
        assert!(tokenizer.record()["file"].as_str().unwrap().ends_with("/tokenizer.json"));
        assert!(!format!("{tokenizer:?}").contains("keel"));
    }

    #[cfg(feature = "tokenizer")]
    #[test]
    fn what_is_no_tokenizer_or_cannot_be_counted_is_said() {
        for content in ["", "[1", "{}", "{\"model\": {\"type\": \"Abacus\"}}"] {
            let said = loaded(content).unwrap_err().to_string();
            assert!(said.starts_with("it is no tokenizer.json: "), "{content:?}: {said}");
        }
        let tokenizer = loaded(&words("[MISSING]").to_string()).unwrap();
        let said = tokenizer.count(&text(Some("unheard of"), None)).unwrap_err().to_string();
        assert!(said.contains("[UNK]"), "{said}");
        assert_eq!(tokenizer.count(&text(Some("keel"), None)).unwrap(), Some(1));
    }

    #[cfg(not(feature = "tokenizer"))]
    #[test]
    fn a_build_without_the_library_says_so() {
        let said = loaded(&words("[UNK]").to_string()).unwrap_err().to_string();
        assert!(said.contains("this build has no tokenizer"), "{said}");
        assert_eq!(text(None, None).output, None);
    }
}
