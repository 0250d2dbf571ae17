// One trial on its time line: requests, failures, GPUs, engine. All of its charts zoom together.

const trialOf = (shown) => report.trials.find((t) => t.trial === shown.trial);
const METRICS = [["ttft", "TTFT"], ["tpot", "TPOT"], ["e2e", "E2E"]];
let shownTrial = null;
let shownMetric = "ttft";
let zoom = null;
let zooming = false;

// Charts over time begin and end together.
function timeScale(shown) {
  const seconds = trialOf(shown).summary.duration_seconds;
  return { time: false, range: (u, min, max) => (zoom ? zoom : [0, seconds]) };
}

function zoomTo(range, shown) {
  if (zooming) return;
  zooming = true;
  zoom = range;
  const [min, max] = range || [0, trialOf(shown).summary.duration_seconds];
  for (const made of charts) if (made.inTime && made.plot) made.plot.setScale("x", { min, max });
  zooming = false;
}

const timeHooks = (shown) => ({
  setSelect: [(u) => {
    if (u.select.width < 6) return;
    zoomTo([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")], shown);
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }],
  ready: [(u) => u.over.addEventListener("dblclick", () => zoomTo(null, shown))],
});
const timeCursor = () => ({ drag: { x: true, y: false, setScale: false }, points: { show: false }, sync: { key: "trial", scales: ["x", null] } });

function clocks(c, i) {
  const after = (ns) => (ns === null ? UNDEFINED : "+" + number((ns - c.scheduled_ns[i]) / 1e6) + " ms");
  return [
    `scheduled ${number(c.scheduled_ns[i] / 1e9)} s`,
    `released ${after(c.released_ns[i])}   written ${after(c.written_ns[i])}`,
    `first content ${after(c.first_content_ns[i])}   last ${after(c.last_content_ns[i])}`,
    `finished ${after(c.finished_ns[i])}`,
  ];
}

function scatter(parent, shown) {
  const c = shown.columns;
  const trial = trialOf(shown);
  const success = shown.outcomes.indexOf("success");
  const values = c[shownMetric + "_seconds"];
  const seen = values.filter((v, i) => v !== null && v > 0 && (shownMetric === "e2e" || c.outcome[i] === success));
  const log = seen.length > 0 && Math.max(...seen) / Math.min(...seen) > 50;
  const agents = shown.agents.map((name, i) => ({ text: name, colour: COLOURS[i % COLOURS.length], shape: SHAPES[i % SHAPES.length], bare: true }));
  const failed = c.outcome.some((o) => o !== success);
  const keys = [...agents.slice(0, 12), ...(failed ? [{ text: "failed" + (shownMetric === "e2e" ? "" : " (at the upper edge)"), colour: "red", shape: "cross" }] : [])];
  const name = METRICS.find((m) => m[0] === shownMetric)[1];
  const x = c.scheduled_ns.map((ns) => ns / 1e9);
  const placed = values.map((v, i) => (c.outcome[i] === success || shownMetric === "e2e" ? v : null));
  const made = chart(parent, `${name} of each request`, `ms${log ? ", logarithmic" : ""} – trial ${trial.trial}, ${rateName(trial)}, repeat ${trial.repeat}, ${trial.summary.validity.verdict}`, keys, (place, width) => {
    const limit = points.limits_seconds[shownMetric];
    const positions = (u, real) => {
      const scale = real ? devicePixelRatio : 1;
      const top = (real ? u.bbox.top : 0) + 6 * scale;
      return (i) => [u.valToPos(x[i], "x", real), c.outcome[i] !== success && shownMetric !== "e2e" ? top : placed[i] === null ? null : u.valToPos(placed[i] * 1e3, "y", real)];
    };
    const draw = (u) => {
      const at = positions(u, true);
      const { ctx, bbox } = u;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top - 8, bbox.width, bbox.height + 8);
      ctx.clip();
      const paints = agents.map((a) => colour(a.colour));
      const bad = colour("red");
      const size = (x.length > 1500 ? 1.8 : 2.6) * devicePixelRatio;
      ctx.globalAlpha = x.length > 400 ? 0.6 : 0.85;
      for (let i = 0; i < x.length; i++) {
        const [px, py] = at(i);
        if (py === null || px < bbox.left - 9 || px > bbox.left + bbox.width + 9) continue;
        const ok = c.outcome[i] === success;
        const agent = c.agent[i];
        marker(ctx, ok ? agents[agent].shape : "cross", px, py, ok ? size : size * 1.3, ok ? paints[agent] : bad, false);
      }
      ctx.restore();
      if (limit !== undefined) drawLimit(u, limit * 1e3, `SLO ${time(limit)}`);
    };
    const say = (u, idx, left, top) => {
      const at = positions(u, false);
      let best = -1;
      let nearest = 18 * 18;
      for (let i = 0; i < x.length; i++) {
        const [px, py] = at(i);
        if (py === null) continue;
        const away = (px - left) ** 2 + (py - top) ** 2;
        if (away < nearest) { nearest = away; best = i; }
      }
      if (best < 0) return null;
      const tokens = c.output_tokens[best];
      return [
        `request ${c.index[best]} by ${shown.agents[c.agent[best]]}: ${shown.outcomes[c.outcome[best]]}`,
        `TTFT ${time(c.ttft_seconds[best])}   TPOT ${time(c.tpot_seconds[best])}   E2E ${time(c.e2e_seconds[best])}`,
        `client queue ${time(c.client_queue_seconds[best])}   output tokens ${tokens === null ? UNDEFINED : tokens}`,
        ...clocks(c, best),
        `trial ${trial.trial} is ${trial.summary.validity.verdict}`,
      ].join("\n");
    };
    const all = placed.map((v) => (v === null || (log && v <= 0) ? null : v * 1e3));
    return new uPlot({
      width, height: 300, legend: { show: false }, padding: [14, 10, 0, 0], cursor: timeCursor(),
      scales: { x: timeScale(shown), y: { distr: log ? 3 : 1, range: (u, min, max) => (log ? logRange(min, max) : [0, (max || 1) * 1.08]) } },
      axes: [below("scheduled, seconds after the trial's start"), axis(null, log ? { filter: (u, splits) => splits.map(roundTick) } : {})],
      series: [{}, { stroke: "transparent", points: { show: false }, paths: () => null }],
      hooks: { ...timeHooks(shown), draw: [draw] }, plugins: [hover(say)],
    }, [x, all], place);
  });
  made.inTime = true;
}

function failures(parent, shown) {
  const kinds = Object.keys(shown.failures.by_kind);
  if (kinds.length === 0) {
    const box = element("div", parent, undefined, "chart");
    element("h3", box, "Failures");
    element("p", box, "No request of this trial failed.", "empty");
    return;
  }
  const step = shown.failures.stretch_seconds;
  const x = shown.failures.by_kind[kinds[0]].map((n, i) => (i + 0.5) * step);
  const keys = kinds.map((kind, i) => ({ text: kind, colour: COLOURS[(i + 3) % COLOURS.length], dash: DASHES[i % DASHES.length] }));
  const counts = kinds.map((kind) => shown.failures.by_kind[kind]);
  // The uppermost first, so that those below are drawn over it.
  const stacked = counts.map((_, k) => x.map((_, i) => counts.slice(0, k + 1).reduce((sum, c) => sum + c[i], 0)));
  const made = chart(parent, "Failures", `a stretch of ${time(step)}, by when they ended`, keys, (place, width) => new uPlot({
    width, height: 130, legend: { show: false }, padding: [8, 10, 0, 0], cursor: timeCursor(),
    scales: { x: timeScale(shown), y: { range: (u, min, max) => [0, Math.max(1, max)] } },
    axes: [below(null, { size: 26 }), axis(null, { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10000], space: 24 })],
    series: [{}, ...[...keys].reverse().map((k) => ({ fill: colour(k.colour), stroke: colour(k.colour), width: 0, paths: uPlot.paths.bars({ size: [0.95] }), points: { show: false } }))],
    hooks: timeHooks(shown),
    plugins: [hover((u, idx) => (idx === null || idx === undefined ? null : [`${number(x[idx] - step / 2)} to ${number(x[idx] + step / 2)} s`, ...kinds.map((kind, k) => `${kind}: ${counts[k][idx]}`)].join("\n")))],
  }, [x, ...[...stacked].reverse()], place));
  made.inTime = true;
}

// Lines of samples with times of their own, on one chart.
function lines(parent, shown, whats, title, unit, scale, top) {
  const drawn = shown.lines.filter((l) => whats.includes(l.what) && l.seconds.length > 0);
  if (drawn.length === 0) return false;
  const keys = drawn.map((l, i) => ({ text: l.of, colour: COLOURS[i % COLOURS.length], dash: DASHES[i % DASHES.length] }));
  const kept = drawn.reduce((n, l) => n + l.seconds.length, 0);
  const all = drawn.reduce((n, l) => n + l.samples, 0);
  const note = kept < all ? `, ${kept} of ${all} samples` : "";
  const data = uPlot.join(drawn.map((l) => [l.seconds, l.values.map((v) => v * scale)]));
  const made = chart(parent, title, unit + note, keys.slice(0, 16), (place, width) => new uPlot({
    width, height: 160, legend: { show: false }, padding: [8, 10, 0, 0], cursor: timeCursor(),
    scales: { x: timeScale(shown), y: { range: (u, min, max) => [0, top || (max || 1) * 1.1] } },
    axes: [below(null, { size: 26 }), axis(null)],
    series: [{}, ...keys.map((k) => ({ label: k.text, stroke: colour(k.colour), width: 1.7, dash: k.dash, spanGaps: true, points: { show: false } }))],
    hooks: timeHooks(shown),
    plugins: [hover((u, idx, left) => {
      if (idx === null || idx === undefined) return null;
      const at = u.posToVal(left, "x");
      const told = drawn.map((l) => {
        const i = l.seconds.reduce((best, s, k) => (Math.abs(s - at) < Math.abs(l.seconds[best] - at) ? k : best), 0);
        return `${l.of}: ${number(l.values[i] * scale)} ${unit}`;
      });
      return [`${number(at)} s`, ...told].join("\n");
    })],
  }, data, place));
  made.inTime = true;
  return true;
}

function telemetry(parent, shown) {
  const any = [
    lines(parent, shown, ["power_watts"], "GPU power", "W", 1),
    lines(parent, shown, ["memory_bytes"], "GPU memory", "GiB", 1 / 2 ** 30),
    lines(parent, shown, ["engine_running", "engine_waiting"], "Engine: requests running and waiting, by its own gauges", "requests", 1),
    lines(parent, shown, ["kv_cache_share"], "Engine: KV cache in use", "%", 100, 100),
  ];
  const energy = trialOf(shown).telemetry && trialOf(shown).telemetry.totals;
  if (energy && energy.energy_joules !== null) {
    element("p", parent, `Energy of the trial's window: ${number(energy.energy_joules)} J, mean power ${number(energy.mean_power_watts)} W.`, "note");
  }
  if (!any.includes(true)) element("p", parent, "Neither a GPU nor the engine's own metrics were recorded beside this trial.", "note");
}

function showTrial() {
  const parent = document.getElementById("trial-charts");
  if (!parent) return;
  const shown = points.trials.find((t) => t.trial === shownTrial);
  for (let i = charts.length - 1; i >= 0; i--) {
    if (charts[i].inTime) { if (charts[i].plot) charts[i].plot.destroy(); charts.splice(i, 1); }
  }
  parent.replaceChildren();
  zoom = null;
  const verdict = trialOf(shown).summary.validity.verdict;
  const mark = document.getElementById("trial-verdict");
  mark.textContent = verdict;
  mark.className = "mark " + verdict;
  const thinned = document.getElementById("thinned");
  const kept = shown.columns.index.length;
  thinned.textContent = shown.stretches === null
    ? `All ${shown.requests} requests of the trial.`
    : `${kept} of ${shown.requests} requests: of each of ${shown.stretches} stretches the smallest and the largest TTFT, TPOT and E2E and a failure of each kind, and every ${shown.every}th request.`;
  scatter(parent, shown);
  failures(parent, shown);
  telemetry(parent, shown);
}

function trialCharts() {
  const select = document.getElementById("trial");
  if (!select || points.trials.length === 0) return;
  // The trial that a reader asks about first: one at the rate that failed, or at the knee, or the last.
  const at = knee.fail ?? knee.pass;
  const first = points.trials.find((t) => finite(Number(trialOf(t).offered_rate)) === at) || points.trials[points.trials.length - 1];
  shownTrial = first.trial;
  select.value = String(shownTrial);
  select.addEventListener("change", () => { shownTrial = Number(select.value); showTrial(); });
  const buttons = document.getElementById("scatter-metric");
  for (const [name, title] of METRICS) {
    const button = element("button", buttons, title);
    button.type = "button";
    button.setAttribute("aria-pressed", String(name === shownMetric));
    button.addEventListener("click", () => {
      shownMetric = name;
      for (const other of buttons.children) other.setAttribute("aria-pressed", String(other === button));
      showTrial();
    });
  }
  showTrial();
}
