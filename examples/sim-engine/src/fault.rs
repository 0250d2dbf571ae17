//! Scripted misbehaviour: what an engine, or something in front of it, is known to do wrong.
//!
//! Owns the names of the faults and the rule that says which request gets one: the header `x-sim-fault` on a
//! request, or else `--fault KIND[:every=N][:after=K]` on the command line, counted over generation requests. How a
//! fault looks on the wire is the answer module's business. Must never pick a request at random: a test that sees a
//! fault can say which request had it.

use std::fmt::Write as _;
use std::str::FromStr;

macro_rules! faults {
    ($($variant:ident $name:literal $about:literal)*) => {
        /// One way to misbehave.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Fault {
            $(#[doc = concat!("`", $name, "`; [`Fault::about`] says what it does.")] $variant,)*
        }

        impl Fault {
            /// Every fault, in the order of the help text.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name used in the header, on the command line and in the log.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// One line on what it does.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }
        }
    };
}

faults! {
    Http500 "http-500" "HTTP 500 with an error body"
    Http400 "http-400" "HTTP 400 with an error body"
    Http429 "http-429" "HTTP 429 with an error body and Retry-After"
    Http503 "http-503" "HTTP 503 with an error body"
    ErrorEvent "error-event" "K tokens, then an error event, then [DONE]"
    ErrorFirst "error-first" "HTTP 200 whose first event is an error, then [DONE]"
    Abort "abort" "K tokens, the last with finish_reason \"abort\""
    NoContent "no-content" "HTTP 200 with [DONE] and nothing else"
    Truncated "truncated" "K tokens, then the connection closes inside the chunked body"
    CleanEof "clean-eof" "K tokens, then the body ends properly, without finish reason or [DONE]"
    Malformed "malformed" "K tokens, a data line that is not JSON, then the rest as if nothing had happened"
    NegativeUsage "negative-usage" "a usage with completion_tokens -1"
    NullUsage "null-usage" "\"usage\": null in every event, and no usage event"
    NoUsage "no-usage" "no usage although it was asked for"
    ZeroUsage "zero-usage" "a usage that is all zero"
    Hang "hang" "response headers at once, then nothing"
    Stall "stall" "K tokens, then a `: ping` comment each second for ever"
    Drip "drip" "after the last token more tokens, one each 20 ms, for ever"
    Reset "reset" "K tokens, then a TCP reset"
    CloseIdle "close-idle" "a right answer, then the kept-alive connection closes unannounced"
    ShortOutput "short-output" "half of the tokens that were asked for, finish_reason \"stop\""
    Coalesced "coalesced" "the whole answer in one write at its end"
    NoDone "no-done" "finish reason and a clean end of the body, without [DONE]"
    DoneNoFinish "done-no-finish" "[DONE] without a finish reason"
    Crlf "crlf" "CRLF line ends"
    Reasoning "reasoning" "chat: the first half of the tokens in delta.reasoning_content"
    ReasoningShort "reasoning-short" "chat: the first half of the tokens in delta.reasoning"
    RoleEarly "role-early" "chat: headers and the role chunk at once, long before the first token"
    RoleLate "role-late" "chat: the role chunk after the first content chunk"
    TwoInOne "two-in-one" "two events per write"
    Bursts "bursts" "K events per write: tokens come in bursts"
    SlowReads "slow-reads" "the request's body is read a piece each 50 ms, the first after 50 ms; then a right answer"
}

/// The name is not one of [`Fault::ALL`], or its options make no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFault(String);

impl std::fmt::Display for BadFault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for BadFault {}

/// A fault, which requests get it, and after how many tokens it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultRule {
    /// What happens.
    pub fault: Fault,
    /// Every how manieth generation request, from the first server-wide count on. 1: all of them.
    pub every: u64,
    /// K: tokens sent before a fault that strikes in mid-stream.
    pub after: u32,
}

impl FromStr for FaultRule {
    type Err = BadFault;

    fn from_str(text: &str) -> Result<Self, BadFault> {
        let mut parts = text.split(':').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let fault = Fault::ALL.iter().copied().find(|fault| fault.name() == name).ok_or_else(|| {
            let names: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
            BadFault(format!("unknown fault {name:?}; known: {}", names.join(", ")))
        })?;
        let mut rule = Self { fault, every: 1, after: 3 };
        for option in parts {
            let number = |value: &str| {
                let number = value.parse::<u32>().ok().filter(|number| *number > 0);
                number.ok_or_else(|| BadFault(format!("{option:?}: expected a whole number above 0")))
            };
            match option.split_once('=') {
                Some(("every", value)) => rule.every = u64::from(number(value)?),
                Some(("after", value)) => rule.after = number(value)?,
                _ => {
                    let message = format!("unknown fault option {option:?}; known: every=N, after=K");
                    return Err(BadFault(message));
                }
            }
        }
        Ok(rule)
    }
}

/// The rule for the `number`th generation request, counted from 1: the header's if there is one, else the first
/// command-line rule whose turn it is. The header `none` asks for a right answer.
///
/// # Errors
/// [`BadFault`] when the header cannot be read.
pub fn choose(header: Option<&str>, rules: &[FaultRule], number: u64) -> Result<Option<FaultRule>, BadFault> {
    match header.map(str::trim) {
        Some("none") => Ok(None),
        Some(text) => text.parse().map(Some),
        None => Ok(rules.iter().copied().find(|rule| number.is_multiple_of(rule.every))),
    }
}

/// The list of faults for `--help`.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "Faults (for --fault KIND[:every=N][:after=K], or the request header x-sim-fault: KIND[:after=K]):\n",
    );
    for fault in Fault::ALL {
        let _ = writeln!(text, "  {:<16} {}", fault.name(), fault.about());
    }
    text.push_str(
        "\nevery=N: each Nth generation request (default 1: all). after=K: tokens before a fault in mid-stream \
         (default 3).\nA request's header wins over the command line; x-sim-fault: none asks for a right answer.",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> FaultRule {
        text.parse().unwrap()
    }

    #[test]
    fn every_name_is_read_back_and_listed() {
        for fault in Fault::ALL {
            assert_eq!(rule(fault.name()).fault, *fault);
            assert!(help().contains(fault.name()));
        }
    }

    #[test]
    fn options_are_read_and_nonsense_is_refused() {
        let expected = FaultRule { fault: Fault::Stall, every: 5, after: 2 };
        assert_eq!(rule("stall:every=5:after=2"), expected);
        for wrong in ["", "stal", "stall:every=0", "stall:after=-1", "stall:often", "stall:each=2"] {
            assert!(wrong.parse::<FaultRule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_header_wins_and_the_first_rule_whose_turn_it_is() {
        let rules = [rule("hang:every=4"), rule("drip:every=2")];
        let chosen = |header, number| choose(header, &rules, number).unwrap().map(|rule| rule.fault);
        assert_eq!(
            [1, 2, 3, 4].map(|number| chosen(None, number)),
            [None, Some(Fault::Drip), None, Some(Fault::Hang)]
        );
        assert_eq!(chosen(Some("none"), 4), None);
        assert_eq!(chosen(Some("crlf"), 1), Some(Fault::Crlf));
        assert!(choose(Some("nonsense"), &rules, 1).is_err());
    }
}
