//! Which engine it is, by what it says of itself when asked for this and that. Nothing here asks.

use serde_json::Value;

use super::{ALL, Dialect};

/// What gives an engine away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// `data[].owned_by` of `/v1/models`.
    OwnedBy(&'static str),
    /// The `Server` header of `/v1/models`.
    Server(&'static str),
    /// The JSON answer to a GET has this pointer.
    Has(&'static str, &'static str),
    /// The answer to a GET contains this text.
    Says(&'static str, &'static str),
}

impl Sign {
    /// The path that is to be asked for it.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::OwnedBy(_) | Self::Server(_) => "/v1/models",
            Self::Has(path, _) | Self::Says(path, _) => path,
        }
    }

    fn is_in(self, answer: &Answer) -> bool {
        if answer.status != 200 {
            return false;
        }
        let json = || serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
        match self {
            Self::OwnedBy(owner) => {
                let json = json();
                let models = json["data"].as_array().map(Vec::as_slice).unwrap_or_default();
                models.iter().any(|m| m["owned_by"].as_str() == Some(owner))
            }
            Self::Server(name) => answer.server.as_deref() == Some(name),
            Self::Has(_, pointer) => json().pointer(pointer).is_some(),
            Self::Says(_, text) => String::from_utf8_lossy(&answer.body).contains(text),
        }
    }

    /// The sign in words.
    #[must_use]
    pub fn told(self) -> String {
        match self {
            Self::OwnedBy(owner) => format!("owned_by is {owner:?} in /v1/models"),
            Self::Server(name) => format!("the server calls itself {name:?}"),
            Self::Has(path, pointer) => format!("{path} has {pointer}"),
            Self::Says(path, text) => format!("{path} says {text:?}"),
        }
    }
}

/// An engine's answer to a GET.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The `Server` header.
    pub server: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// The engine with the sign that gave it away, or the path that has to be asked next. Call it again with one more
/// answer until it says which engine it is; [`Dialect::OPENAI`] has no sign.
///
/// # Errors
/// The path to ask.
pub fn recognise(
    answers: &[(&'static str, Option<Answer>)],
) -> Result<(Dialect, Option<Sign>), &'static str> {
    // What was asked already decides before anything else is asked: an engine that says its name is asked no more.
    let asked = |path| answers.iter().find(|(asked, _)| *asked == path).map(|(_, answer)| answer);
    let signs = || ALL.iter().flat_map(|traits| traits.signs.iter().map(|sign| (Dialect(traits), *sign)));
    let found = signs().find(|(_, sign)| {
        let answer = asked(sign.path()).and_then(Option::as_ref);
        answer.is_some_and(|answer| sign.is_in(answer))
    });
    if let Some((dialect, sign)) = found {
        return Ok((dialect, Some(sign)));
    }
    match signs().map(|(_, sign)| sign.path()).find(|path| asked(path).is_none()) {
        Some(path) => Err(path),
        None => Ok((Dialect::OPENAI, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models(owned_by: &str) -> Option<Answer> {
        let body = format!(r#"{{"object":"list","data":[{{"id":"m","owned_by":"{owned_by}"}}]}}"#);
        Some(Answer { status: 200, server: None, body: body.into_bytes() })
    }

    #[test]
    fn an_engine_that_says_its_name_is_asked_once() {
        assert_eq!(recognise(&[]), Err("/v1/models"));
        let (dialect, sign) = recognise(&[("/v1/models", models("vllm"))]).unwrap();
        assert_eq!((dialect.name(), sign), ("vllm", Some(Sign::OwnedBy("vllm"))));
    }

    #[test]
    fn an_engine_that_says_nothing_is_asked_everything_and_is_none_of_them() {
        let mut answers = vec![("/v1/models", models("me"))];
        while let Err(path) = recognise(&answers) {
            assert!(answers.iter().all(|(asked, _)| *asked != path), "{path} is asked twice");
            assert_ne!(path, "/health", "which generates a token on some engines");
            answers.push((path, None));
        }
        assert_eq!(recognise(&answers), Ok((Dialect::OPENAI, None)));
    }

    #[test]
    fn an_error_page_is_no_sign() {
        let page = Answer { status: 404, body: b"Ollama is running".to_vec(), server: None };
        assert!(!Sign::Says("/", "Ollama is running").is_in(&page));
        assert!(Sign::Says("/", "Ollama is running").is_in(&Answer { status: 200, ..page }));
    }
}
