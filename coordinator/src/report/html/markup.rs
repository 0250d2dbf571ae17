//! From values to markup: the one place where text becomes part of the page.
//!
//! Names, messages and command lines come from engines, users and hosts. Nothing of them may get into the page but through
//! [`text`] (as text or as a quoted attribute) and [`json`] (as data of a script element).

use std::fmt::{Display, Write};

use serde::Serialize;

/// `value` as text of an element or of a quoted attribute.
pub(super) fn text(value: impl Display) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // A parser of HTML drops or replaces these: what is there is shown.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            // They turn the direction of what follows, and so what it seems to say.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// `value` as the content of a script element: no `<`, so that nothing in it ends the element or begins another.
///
/// # Errors
/// When it cannot be written as JSON.
pub(super) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    // Of JSON only its strings can hold these.
    Ok(serde_json::to_string(value)?
        .replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029"))
}

/// A cell of a table, escaped.
pub(super) fn cell(value: impl Display) -> String {
    format!("<td>{}</td>", text(value))
}

/// A cell that begins at the left, and may be broken.
pub(super) fn long_cell(value: impl Display) -> String {
    format!("<td class=\"long\">{}</td>", text(value))
}

/// A verdict, as a mark with its name.
pub(super) fn mark(verdict: common::validity::Verdict) -> String {
    // Its names are ours, and the classes are named like them.
    format!("<span class=\"mark {0}\">{0}</span>", verdict.name())
}

/// A table of cells that are markup already. A head that begins with `<` stands at the left, as its cells do.
pub(super) fn table(class: &str, heads: &[&str], rows: impl IntoIterator<Item = String>) -> String {
    let mut out = format!("<div class=\"scroll\"><table class=\"{class}\"><thead><tr>");
    for head in heads {
        let (class, head) = head.strip_prefix('<').map_or(("", *head), |head| (" class=\"left\"", head));
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", text(head));
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        let _ = write!(out, "<tr>{row}</tr>");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// A section with a title and what leads into it.
pub(super) fn section(id: &str, title: &str, lead: &str, body: &str) -> String {
    let lead = if lead.is_empty() { String::new() } else { format!("<p class=\"lead\">{}</p>", text(lead)) };
    format!("<section id=\"{id}\"><h2>{}</h2>{lead}\n{body}</section>\n", text(title))
}

/// Bytes in base64, as a policy names a digest.
pub(super) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes(word);
        for i in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= three.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(
            text("<b a=\"x\" b='y'>&amp;\u{0}\u{202e}"),
            "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp;amp;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn nothing_in_data_ends_its_element() {
        let hostile = "</script><script>alert(1)</script><!--\u{2028}";
        let out = json(&hostile).unwrap();
        assert!(!out.contains('<') && !out.contains('\u{2028}'), "{out}");
        assert_eq!(serde_json::from_str::<String>(&out).unwrap(), hostile);
    }

    #[test]
    fn base64_is_the_usual_one() {
        for (bytes, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
    }
}
