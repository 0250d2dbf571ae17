//! An engine's settings, as they may be stored: without the secrets that engines print among them, and not without
//! end.

use serde_json::Value;

use crate::engine::Secret;
use crate::launch::is_secret_option;

/// Settings longer than this as JSON are not kept: they are no settings.
const MAX_BYTES: usize = 512 << 10;
const BLOTTED: &str = "[redacted]";

/// `settings` without secrets; a word instead when they are too long.
pub(super) fn kept(mut settings: Value, api_key: Option<&Secret>) -> Value {
    blot(&mut settings, api_key);
    if settings.to_string().len() > MAX_BYTES {
        return Value::String(format!("left out: longer than {} KiB", MAX_BYTES >> 10));
    }
    settings
}

fn blot(value: &mut Value, api_key: Option<&Secret>) {
    match value {
        Value::String(text) => {
            hide_arguments(text);
            if let Some(key) = api_key {
                key.scrub_in_place(text);
            }
        }
        Value::Array(items) => {
            let mut hide = false;
            for item in items {
                match item.as_str() {
                    Some(word) if word.starts_with('-') => hide = is_secret_option(word),
                    // All of them: `--api-key` takes several.
                    Some(_) if hide => {
                        *item = BLOTTED.into();
                        continue;
                    }
                    _ => {}
                }
                blot(item, api_key);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                // A place where nothing is kept, or that says whether something is, tells no secret.
                let holds = !matches!(field, Value::Null | Value::Bool(_) | Value::Number(_)) && field != "";
                if holds && is_secret_place(name, field) {
                    *field = BLOTTED.into();
                } else {
                    blot(field, api_key);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A place in an engine's settings that holds a secret: by the last word of its name, because `max_tokens` and
/// `tokenizer` are none; `eos_token` and its like are told by their values.
fn is_secret_place(name: &str, value: &Value) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let has = ["password", "passwd", "passphrase", "secret", "credential"];
    let last = name.rsplit('_').next().unwrap_or_default();
    // Tokens of a vocabulary are written so.
    let marker = |text: &str| text.starts_with(['<', '[', '|']);
    match last {
        "key" | "keys" | "apikey" | "apikeys" | "authorization" | "auth" | "cookie" => true,
        "token" => !value.as_str().is_some_and(marker),
        _ => has.iter().any(|part| name.contains(part)),
    }
}

/// Hides the value of options such as `--api-key` in a command line that is one string.
fn hide_arguments(text: &mut String) {
    if !text.contains("--") {
        return;
    }
    let mut hide = false;
    let mut changed = false;
    let words: Vec<String> = text
        .split(' ')
        .map(|word| {
            if hide && !word.is_empty() && !word.starts_with('-') {
                changed = true;
                return BLOTTED.to_owned();
            }
            let (option, value) = word.split_once('=').map_or((word, None), |(o, v)| (o, Some(v)));
            match (is_secret_option(option), value) {
                (true, Some(_)) => {
                    changed = true;
                    format!("{option}={BLOTTED}")
                }
                (secret, _) => {
                    // Until the next option, blanks in between included.
                    hide = secret || (hide && word.is_empty());
                    word.to_owned()
                }
            }
        })
        .collect();
    if changed {
        *text = words.join(" ");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_blotted_out_wherever_engines_print_them() {
        let said = json!({
            "api_key": "sk-1", "admin_api_key": "sk-1", "HF_TOKEN": "sk-1", "ssl_keyfile_password": "sk-1",
            "env": {"VLLM_API_KEY": "sk-1", "AWS_SECRET_ACCESS_KEY": "sk-1"},
            "launch_command": "serve --api-key sk-1 --port 8 --admin-api-key=sk-1",
            "argv": ["serve", "--api-key", "sk-1", "sk-1", "--port", "8"], "HUGGING_FACE_HUB_TOKEN": "sk-1-and-more",
            "cmd": "serve --api-key  sk-1 sk-1 --port 8", "keys": {"api_keys": ["sk-1"]},
            "note": "the key is sk-own",
        });
        let kept = kept(said, Secret::new("sk-own").as_ref()).to_string();
        assert!(!kept.contains("sk-1") && !kept.contains("sk-own"), "{kept}");
        assert!(kept.contains("serve --api-key [redacted] --port 8 --admin-api-key=[redacted]"), "{kept}");
    }

    #[test]
    fn what_is_no_secret_stays() {
        let said = json!({
            "eos_token": "</s>", "max_tokens": 4096, "tokenizer": "m", "api_key": null, "key_cache": "fp8",
            "argv": ["serve", "--tokenizer", "m", "--max-num-batched-tokens", "8"], "text": "a -- b",
        });
        assert_eq!(kept(said.clone(), None), said);
        let long = json!({ "a": "x".repeat(MAX_BYTES) });
        assert_eq!(kept(long, None), json!("left out: longer than 512 KiB"));
    }
}
