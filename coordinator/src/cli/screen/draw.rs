//! The picture: head, sparklines, agents, trials, warnings, in as many rows as there are.
//!
//! It is whole at 80 × 24. With more rows there are more agents and trials; with fewer, less of them.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::lines::{Ink, UNKNOWN, cut, number, percent, spark, time, with, wrap};
use crate::live::{AgentRow, Metric, News, Point, State, Sweep, TrialRow};

/// Points that a screen can show.
pub(super) const MOST_POINTS: usize = 512;

/// Rows of a sparkline.
const TALLEST: usize = 4;

/// Columns before a sparkline: its name and its newest value.
const NAME: usize = 11;
const VALUE: usize = 11;

/// What is drawn.
pub(super) struct Shown<'n> {
    pub(super) news: &'n News,
    pub(super) colour: bool,
    pub(super) last_line: Option<String>,
}

/// Draws it.
pub(super) fn draw(frame: &mut Frame<'_>, shown: &Shown<'_>) {
    let ink = Ink { colour: shown.colour };
    let (state, width) = (&shown.news.state, frame.area().width as usize);
    let default = Sweep::default();
    let sweep = shown.news.sweep.as_ref().unwrap_or(&default);
    let head = head(state, sweep, width, ink);
    let sparks = |tall: usize| sparks(&shown.news.points, state, sweep, (width, tall), ink);
    let few = if frame.area().height < 30 { 2 } else { 4 };
    let warnings = warnings(state, few, width, ink);
    let foot = foot(shown, width, ink);
    let low = sparks(1);
    let fixed = head.len() + low.len() + warnings.len() + foot.len();
    let room = (frame.area().height as usize).saturating_sub(fixed);
    // Trials keep at least their head and two rows, and the sentence on the knee.
    let agents = agents(&state.agents, state, room.saturating_sub(4), width, ink);
    let trials = trials(sweep, room.saturating_sub(agents.len()), width, ink);
    // What is left over makes the sparklines taller.
    let over = room.saturating_sub(agents.len() + trials.len());
    let tall = 1 + over / low.len().saturating_sub(1).max(1);
    let sparks = if tall > 1 { sparks(tall.min(TALLEST)) } else { low };
    let parts = [head, sparks, agents, trials, warnings];
    let lines: Vec<Line<'_>> = parts.into_iter().flatten().collect();
    let [top, bottom] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(foot.len() as u16)]).areas(frame.area());
    // What does not fit is not drawn: the foot, with the keys, always is.
    frame.render_widget(Paragraph::new(lines), top);
    frame.render_widget(Paragraph::new(foot), bottom);
}

/// A heading with a rule to the edge.
fn heading(name: &str, width: usize, ink: Ink) -> Line<'static> {
    let rule = "─".repeat(width.saturating_sub(name.chars().count() + 4));
    Line::from(vec![
        Span::styled("── ", ink.faint()),
        Span::styled(name.to_owned(), ink.strong()),
        Span::styled(format!(" {rule}"), ink.faint()),
    ])
}

/// Left and right on one line; the right one is kept.
fn sides(left: Vec<Span<'static>>, right: String, width: usize, ink: Ink) -> Line<'static> {
    let used: usize = left.iter().map(|s| s.content.chars().count()).sum();
    let gap = width.saturating_sub(used + right.chars().count());
    let mut spans = left;
    spans.push(Span::raw(" ".repeat(gap)));
    spans.push(Span::styled(right, ink.faint()));
    Line::from(spans)
}

fn offered(rate: &str, per_second: Option<f64>) -> String {
    if per_second.is_some() { format!("{rate}/s") } else { rate.to_owned() }
}

fn head(state: &State, sweep: &Sweep, width: usize, ink: Ink) -> Vec<Line<'static>> {
    let about = &sweep.about;
    let stage = if state.stop > 0 && state.stage != "over" { "stopping" } else { state.stage };
    let style = if state.stop > 0 { ink.warn() } else { ink.blue() };
    let left = state.left_seconds.map_or(String::new(), |s| format!(", about {} left", time(s)));
    let times = format!("{} passed{left}", time(state.elapsed_seconds));
    let name = vec![
        Span::styled("Plimsoll ", ink.strong()),
        Span::raw(cut(&about.run, 24)),
        Span::raw("  "),
        Span::styled(stage.to_owned(), style),
    ];
    let model = about.model.as_deref().unwrap_or("model as listed");
    let slos =
        if about.slos.is_empty() { "no objectives".into() } else { format!("SLO {}", about.slos.join(" ")) };
    let what = format!("{model} at {}, {} arrivals, {slos}", about.engine, about.arrivals);
    let mut lines = vec![sides(name, times, width, ink), Line::styled(cut(&what, width), ink.faint())];
    let done = match about.searches {
        true => format!("{} trials done, searching", state.trials_done),
        false => format!("{} of {} trials done", state.trials_done, state.trials_planned),
    };
    let Some(trial) = &state.trial else {
        let between = if state.trials_done == 0 { "before the first trial" } else { "between trials" };
        lines.push(sides(vec![Span::raw(between)], done, width, ink));
        lines.push(Line::raw(""));
        return lines;
    };
    let again = trial.rerun_of.map_or(String::new(), |t| format!(", again for trial {t}"));
    let rate = offered(&trial.offered, trial.offered_per_second);
    let title = format!("trial {} at {rate}, repeat {}{again} ", trial.trial, trial.repeat);
    let since = trial.since_start_seconds;
    let share = match (since, trial.length_seconds) {
        (Some(since), Some(length)) if length > 0.0 => since / length,
        _ => trial.dispatched as f64 / trial.arrivals.max(1) as f64,
    };
    let passed = match (since, trial.length_seconds) {
        (None, _) => " not started".to_owned(),
        (Some(since), Some(length)) => format!(" {since:.0} of {length:.0} s"),
        (Some(since), None) => format!(" {since:.0} s"),
    };
    let bar =
        width.saturating_sub(title.chars().count() + passed.chars().count() + done.len() + 4).clamp(4, 40);
    let full = (share.clamp(0.0, 1.0) * bar as f64).round() as usize;
    let bars = vec![
        Span::styled(title, ink.strong()),
        Span::styled("━".repeat(full), ink.blue()),
        Span::styled("─".repeat(bar - full), ink.faint()),
        Span::raw(passed),
    ];
    lines.push(sides(bars, done, width, ink));
    let attainment = match trial.attainment_so_far {
        Some(share) => format!(", attainment {}", percent(Some(share))),
        None => String::new(),
    };
    let waiting = if trial.waiting > 0 { format!(", waiting {}", trial.waiting) } else { String::new() };
    let counts = format!(
        "sent {} of {}, in flight {}, ok {}, failed {}{waiting}{attainment}, late p99 {}",
        trial.dispatched,
        trial.arrivals,
        trial.in_flight,
        trial.succeeded,
        trial.failed,
        with(trial.lateness_p99_seconds, 1e3, " ms"),
    );
    lines.push(Line::raw(cut(&counts, width)));
    lines
}

/// A sparkline for each quantity that is known.
fn sparks(
    points: &[Point],
    state: &State,
    sweep: &Sweep,
    (width, tall): (usize, usize),
    ink: Ink,
) -> Vec<Line<'static>> {
    const GIB: f64 = 1.0 / (1u64 << 30) as f64;
    let goodput = !sweep.about.slos.is_empty();
    let latencies = sweep.about.live_latencies;
    let rows = [
        ("offered", Metric::Offered, 1.0, "/s", ink.faint(), true),
        ("achieved", Metric::Achieved, 1.0, "/s", ink.blue(), true),
        ("goodput", Metric::Goodput, 1.0, "/s", ink.good(), goodput && latencies),
        ("TTFT p50", Metric::TtftP50, 1e3, " ms", ink.blue(), latencies),
        ("TTFT p99", Metric::TtftP99, 1e3, " ms", ink.warn(), latencies),
        ("in flight", Metric::InFlight, 1.0, "", ink.faint(), true),
        ("eng. queue", Metric::EngineWaiting, 1.0, "", ink.faint(), state.engine_now.is_some()),
        ("GPU power", Metric::GpuPower, 1.0, " W", ink.warn(), !state.gpus.is_empty()),
        ("GPU memory", Metric::GpuMemory, GIB, " GiB", ink.blue(), !state.gpus.is_empty()),
    ];
    let room = width.saturating_sub(NAME + VALUE + 10);
    let most = |metric: Metric| {
        let shown = points.iter().skip(points.len().saturating_sub(room));
        shown.filter_map(|p| p.high.get(metric)).fold(0.0, f64::max)
    };
    // What is compared has one scale.
    let rate = [Metric::Offered, Metric::Achieved, Metric::Goodput].map(most).into_iter().fold(0.0, f64::max);
    let ttft = most(Metric::TtftP99).max(most(Metric::TtftP50));
    let lines =
        rows.into_iter().filter(|(.., there)| *there).flat_map(|(name, metric, scale, unit, style, _)| {
            let top = match metric {
                Metric::Offered | Metric::Achieved | Metric::Goodput => rate,
                Metric::TtftP50 | Metric::TtftP99 => ttft,
                _ => most(metric),
            };
            let values: Vec<Option<f64>> = points.iter().map(|p| p.high.get(metric)).collect();
            let newest = points.last().and_then(|p| p.low.get(metric));
            let bars = spark(&values, room, top, tall);
            let last = bars.len() - 1;
            bars.into_iter().enumerate().map(move |(row, bars)| {
                // Name and newest value stand at its foot, the top of its scale at its head.
                let (name, value) =
                    if row == last { (name, with(newest, scale, unit)) } else { ("", String::new()) };
                let top = if row == 0 && top > 0.0 { number(top * scale) } else { String::new() };
                Line::from(vec![
                    Span::raw(format!("{name:<NAME$}{value:>VALUE$} ")),
                    Span::styled(bars, style),
                    Span::styled(format!(" {top}"), ink.faint()),
                ])
            })
        });
    std::iter::once(heading("last seconds", width, ink)).chain(lines).collect()
}

fn agents(rows: &[AgentRow], state: &State, room: usize, width: usize, ink: Ink) -> Vec<Line<'static>> {
    if room < 2 || rows.is_empty() {
        return Vec::new();
    }
    let title = match rows.len() as u64 + state.agents_beyond {
        n if n as usize > room - 2 => format!("agents, {n}"),
        _ => "agents".to_owned(),
    };
    let mut lines = vec![heading(&title, width, ink)];
    let name = width.saturating_sub(66).clamp(10, 24);
    let row = |cells: [&str; 9]| {
        let [agent, state, sent, flight, ok, failed, late, cpu, clock] = cells;
        format!(
            "{agent:<name$} {state:<9}{sent:>8}{flight:>7}{ok:>8}{failed:>7}{late:>10}{cpu:>6}{clock:>10}"
        )
    };
    let header = row(["agent", "state", "sent", "flight", "ok", "failed", "late p99", "cores", "clock ±"]);
    lines.push(Line::styled(cut(&header, width), ink.faint()));
    // Who is lost, or late, comes first when not all fit.
    let mut order: Vec<&AgentRow> = rows.iter().collect();
    if rows.len() > room - 2 {
        let late = |a: &AgentRow| (a.lateness_p99_seconds.unwrap_or(0.0) * 1e9) as u64;
        order.sort_by_key(|a| (a.lost.is_none(), std::cmp::Reverse(late(a))));
    }
    lines.extend(order.into_iter().take(room - 2).map(|a| {
        let text = row([
            &cut(&a.name, name),
            if a.standing.is_empty() { "joined" } else { a.standing },
            &a.dispatched.to_string(),
            &a.in_flight.to_string(),
            &a.succeeded.to_string(),
            &a.failed.to_string(),
            &with(a.lateness_p99_seconds, 1e3, " ms"),
            &with(a.cpu_cores, 1.0, ""),
            &with(a.clock_bound_seconds, 1e6, " µs"),
        ]);
        let style = if a.lost.is_some() { ink.bad() } else { ratatui::style::Style::new() };
        Line::styled(cut(&text, width), style)
    }));
    lines
}

fn trials(sweep: &Sweep, room: usize, width: usize, ink: Ink) -> Vec<Line<'static>> {
    if room < 3 || sweep.trials.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![heading("trials so far", width, ink)];
    let row = |cells: [&str; 8]| {
        let [trial, rate, achieved, goodput, attainment, p50, p99, failed] = cells;
        format!("{trial:<6}{rate:>8}{achieved:>9}{goodput:>9}{attainment:>8}{p50:>10}{p99:>10}{failed:>8}  ")
    };
    let header = row(["trial", "offered", "achieved", "goodput", "attain", "TTFT p50", "TTFT p99", "failed"]);
    lines.push(Line::styled(cut(&format!("{header}validity"), width), ink.faint()));
    // The newest trial has its row before the sentence on the knee has its second line.
    let lines_of_it = (room - 3).min(2);
    let knee = sweep.knee.as_ref().filter(|_| lines_of_it > 0);
    let knee = knee.map_or_else(Vec::new, |knee| wrap(&knee.text, width, lines_of_it));
    let rows = room - 2 - knee.len();
    lines.extend(sweep.trials.iter().rev().take(rows).map(|t| {
        let text = row([
            &t.trial.to_string(),
            &cut(&t.offered, 8),
            &with(t.achieved_per_second, 1.0, ""),
            &with(t.goodput_per_second, 1.0, ""),
            &percent(t.attainment),
            &with(t.ttft_p50_seconds, 1e3, " ms"),
            &with(t.ttft_p99_seconds, 1e3, " ms"),
            &failures(t),
        ]);
        Line::from(vec![Span::raw(text), Span::styled(t.verdict, ink.verdict(t.verdict))])
    }));
    lines.extend(knee.into_iter().map(|text| Line::styled(text, ink.strong())));
    lines
}

fn failures(trial: &TrialRow) -> String {
    trial.failed.map_or_else(|| UNKNOWN.to_owned(), |n| n.to_string())
}

fn warnings(state: &State, most: usize, width: usize, ink: Ink) -> Vec<Line<'static>> {
    if state.warnings.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![heading(&format!("warnings, {}", state.warnings.len()), width, ink)];
    lines.extend(state.warnings.iter().rev().take(most).map(|w| {
        let times = if w.times > 1 { format!(" (× {})", w.times) } else { String::new() };
        Line::styled(cut(&format!("▲ {}{times}", w.text), width), ink.warn())
    }));
    lines
}

fn foot(shown: &Shown<'_>, width: usize, ink: Ink) -> Vec<Line<'static>> {
    let stop = match shown.news.state.stop {
        0 => "ctrl-c  stop and report",
        1 => "ctrl-c  cut what is in flight",
        _ => "ctrl-c  end at once",
    };
    let keys = format!("q  plain progress   {stop}");
    let note = shown.news.state.notes.last().map(|n| n.text.clone());
    let last = shown.last_line.clone().or(note).unwrap_or_default();
    let last = last.split_whitespace().collect::<Vec<_>>().join(" ");
    vec![Line::styled(cut(&last, width), ink.faint()), Line::styled(cut(&keys, width), ink.strong())]
}
