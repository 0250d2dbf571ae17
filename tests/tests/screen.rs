//! The live screen of a terminal, in a real one: it shows a sweep, `q` and every end give the terminal back.

use plimsoll_tests::{Engine, Signal, Tmux, binary, command_line, descendants, eventually, signal};
use tempfile::TempDir;

const RULE: &str = "── last seconds";

/// A terminal in which a sweep was begun, with its engine.
struct Begun {
    tmux: Tmux,
    _engine: Engine,
    _folder: TempDir,
}

fn begin(size: (u16, u16), options: &str) -> Option<Begun> {
    begin_with(Engine::start(&["--fixed-ttft-ms", "40"]), size, options)
}

fn begin_with(engine: Engine, size: (u16, u16), options: &str) -> Option<Begun> {
    let folder = TempDir::new().expect("a temporary folder");
    let tmux = Tmux::start(size, folder.path())?;
    let coordinator = binary("coordinator");
    tmux.line(&format!(
        "{} sweep --base-url {} --data data --repeats 1 --local-agents 2 --late-budget 1s --warmup 0 --brief-probe \
         --slo ttft=1s {options}; echo ended with $?.",
        coordinator.display(),
        engine.url()
    ));
    Some(Begun { tmux, _engine: engine, _folder: folder })
}

impl Begun {
    /// The live screen shows a trial of which something was seen.
    fn is_under_way(&self) {
        self.tmux.wait_for("a trial under way", |seen| {
            let line = |name: &str| seen.lines().find(|l| l.starts_with(name)).unwrap_or_default();
            seen.contains(RULE) && line("TTFT p50").contains(" ms") && line("achieved").contains("/s")
        });
        assert!(self.tmux.on_other_screen());
    }

    fn coordinator(&self) -> u32 {
        let ours = |pid: &u32| command_line(*pid).contains("/coordinator sweep ");
        eventually("the coordinator", || descendants(self.tmux.shell()).into_iter().find(ours))
    }

    /// It ends with this code, the terminal is as it was, and the report was printed.
    fn has_ended(&self, code: i32) {
        self.tmux.wait_for("the end", |seen| seen.contains(&format!("ended with {code}.")));
        let story = self.tmux.history();
        assert!(!story.contains(RULE), "the picture is gone:\n{story}");
        assert!(story.contains("report.json"), "the table is printed as ever:\n{story}");
        assert!(self.tmux.is_sane(), "{}", self.tmux.seen());
    }
}

#[test]
fn a_sweep_is_seen_and_q_goes_on_with_plain_progress() {
    let Some(begun) = begin((80, 24), "--rates 15,16 --duration 8s") else { return };
    begun.is_under_way();
    let seen = begun.tmux.seen();
    for part in ["Plimsoll ", "sending", "local-1", "local-2", "of 2 trials done", "q  plain progress"] {
        assert!(seen.contains(part), "{part} in\n{seen}");
    }
    assert!(seen.lines().all(|line| line.chars().count() <= 80));
    begun.tmux.resize(100, 30);
    begun.tmux.wait_for("a wider picture", |seen| {
        seen.lines().any(|l| l.starts_with(RULE) && l.trim_end().chars().count() == 100)
    });
    begun.tmux.key("q");
    eventually("the terminal", || (!begun.tmux.on_other_screen()).then_some(()));
    // What was said meanwhile is there, and what goes on is seen.
    begun.tmux.wait_for("plain progress", |seen| seen.contains("in flight") && seen.contains("requests"));
    begun.has_ended(0);
}

#[test]
fn sigterm_drains_and_gives_the_terminal_back() {
    let Some(begun) = begin((100, 30), "--rates 15,16 --duration 60s") else { return };
    begun.is_under_way();
    signal(begun.coordinator(), Signal::TERM);
    begun.has_ended(130);
    assert!(!begun.tmux.on_other_screen());
}

#[test]
fn ctrl_c_is_a_key_there_and_means_the_same() {
    let Some(begun) = begin((80, 24), "--rates 15,16 --duration 60s") else { return };
    begun.is_under_way();
    begun.tmux.key("C-c");
    begun.has_ended(130);
}

#[test]
fn plain_is_plain() {
    let Some(begun) = begin((80, 24), "--rates 30 --duration 1s --plain") else { return };
    begun.has_ended(0);
}

#[test]
fn a_second_ctrl_c_cuts_what_is_in_flight() {
    // Every third answer never comes; the first two, for the agents' probing requests, do.
    let engine = Engine::start(&["--fixed-ttft-ms", "40", "--fault", "hang:every=3"]);
    let Some(begun) = begin_with(engine, (80, 24), "--rates 15 --duration 60s") else { return };
    begun.is_under_way();
    begun.tmux.key("C-c");
    begun.tmux.wait_for("the drain", |seen| seen.contains("ctrl-c  cut what is in flight"));
    begun.tmux.key("C-c");
    begun.has_ended(130);
}
