use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::draw::{self, Shown};
use super::*;
use crate::live::tests::Bench;

const SWEEP: &str =
    "coordinator sweep --rates 4,8 --repeats 1 --duration 10s --slo ttft=1s --base-url http://engine:8000";

/// What is seen at a size, row by row.
fn seen(bench: &Bench, (width, height): (u16, u16), colour: bool) -> Vec<String> {
    let news = bench.news();
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let shown = Shown { news: &news, colour, last_line: Some("the last line".into()) };
    terminal.draw(|frame| draw::draw(frame, &shown)).unwrap();
    if !colour {
        let plain = |cell: &ratatui::buffer::Cell| {
            (cell.fg, cell.bg) == (ratatui::style::Color::Reset, ratatui::style::Color::Reset)
        };
        assert!(terminal.backend().buffer().content().iter().all(plain), "NO_COLOR");
    }
    let buffer = terminal.backend().buffer().clone();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned()).collect()
}

/// A sweep of two rates: the first trial is over, the second under way.
fn under_way(agents: usize) -> Bench {
    let mut bench = Bench::new(SWEEP, agents);
    bench.begin(0);
    (0..10).for_each(|s| bench.second(0, s, 2));
    bench.end(0, 40);
    bench.begin(1);
    (0..6).for_each(|s| bench.second(1, s, 4));
    bench
}

/// The whole picture at the smallest usable size. A change of it is a change of what people see.
#[test]
fn the_picture_at_80_by_24() {
    let picture = seen(&under_way(2), (80, 24), true);
    let expected = include_str!("snapshot-80x24.txt");
    assert_eq!(picture.join("\n").trim_end(), expected.trim_end(), "\n{}\n", picture.join("\n"));
}

#[test]
fn before_the_first_trial_it_says_what_is_waited_for() {
    let picture = seen(&Bench::new(SWEEP, 1), (80, 24), false).join("\n");
    for part in ["run-1", "gathering", "before the first trial", "0 of 2 trials done", "q  plain progress"] {
        assert!(picture.contains(part), "{part} in\n{picture}");
    }
}

#[test]
fn every_size_shows_the_keys_and_what_goes_on_and_none_panics() {
    let bench = under_way(40);
    for size in [(80, 24), (100, 30), (200, 60), (40, 10), (20, 5), (1, 1), (300, 3)] {
        let picture = seen(&bench, size, false);
        assert_eq!(picture.len(), size.1 as usize);
        if size.0 >= 80 && size.1 >= 5 {
            let all = picture.join("\n");
            assert!(all.contains("ctrl-c") && all.contains("trial 1 at "), "{size:?}\n{all}");
        }
        if size.1 >= 24 {
            let all = picture.join("\n");
            for part in
                ["achieved", "goodput", "TTFT p99", "trials so far", "valid", "warnings", "agents, 40"]
            {
                assert!(
                    all.contains(part) || (part == "agents, 40" && size.1 > 50),
                    "{part} at {size:?}\n{all}"
                );
            }
        }
    }
}

#[test]
fn keys_do_what_the_foot_says() {
    let key = |code, modifiers| wish(KeyEvent::new(code, modifiers));
    assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Wish::Plain);
    assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Wish::Stop);
    assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), Wish::Nothing);
    assert_eq!(key(KeyCode::Enter, KeyModifiers::NONE), Wish::Nothing);
}

#[test]
fn what_is_new_is_put_to_what_is_there_and_bounded() {
    let bench = under_way(1);
    let mut news = bench.news();
    let points = news.points.len();
    let more = bench.news_since(news.known);
    assert!(more.sweep.is_none());
    take(&mut news, more);
    assert!(news.sweep.is_some() && news.points.len() == points, "it keeps what it had");
    let again = bench.news();
    take(&mut news, again);
    assert_eq!(news.points.len(), points, "all of it takes the place of what was there");
}
