// The live page: takes events, keeps what was sent, shows it. It asks for nothing but events.
"use strict";

(() => {
  const $ = (id) => document.getElementById(id);
  const { Chart, clock, number } = Charts;
  const ms = (s) => (s == null ? "–" : `${number(s * 1e3)} ms`);
  const percent = (share, digits = 1) => (share == null ? "–" : `${(Math.floor(share * 1e4) / 1e2).toFixed(digits)}%`);
  const gib = (bytes) => (bytes == null ? "–" : `${number(bytes / 2 ** 30)} GiB`);

  const kept = { points: [], place: {}, state: null, sweep: null, id: "", window: 600 };
  window.plimsoll = kept;

  // ------------------------------------------------------------------------------------------------ theme
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let charts = [];
  function theme(name) {
    document.documentElement.dataset.theme = name;
    $("theme").textContent = name === "dark" ? "Light" : "Dark";
    charts.forEach((c) => c.redraw());
  }
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

  // ------------------------------------------------------------------------------------------------ charts
  const line = (name, color, more) => Object.assign({ name, color, unit: "" }, more);
  const over = (id, empty, series, more) => new Chart($(id), Object.assign({ x: clock, empty, series }, more));
  const ttftLimit = () => (kept.sweep && kept.sweep.about.ttft_limit_seconds != null ? kept.sweep.about.ttft_limit_seconds * 1e3 : null);
  const time = {
    "chart-rate": [over("chart-rate", "Nothing was sent yet", [
      line("offered", "--soft", { dash: "dash", width: 1.5, step: true }), line("achieved", "--blue"),
      line("goodput", "--green", { dash: "long", fill: true }), line("failed", "--red", { dash: "dot" })]),
      ["offered_per_second", "achieved_per_second", "goodput_per_second", "failed_per_second"], [1, 1, 1, 1]],
    "chart-ttft": [over("chart-ttft", "No TTFT yet", [line("p50", "--blue", { unit: " ms" }), line("p99", "--orange", { dash: "long", unit: " ms" })],
      { limit: ttftLimit, limitText: (v) => `SLO ${number(v)} ms` }), ["ttft_p50_seconds", "ttft_p99_seconds"], [1e3, 1e3]],
    "chart-flight": [over("chart-flight", "Nothing in flight yet", [line("in flight", "--blue"), line("engine runs", "--green", { dash: "long" }),
      line("engine queue", "--purple", { dash: "dot" })]), ["in_flight", "engine_running", "engine_waiting"], [1, 1, 1]],
    "chart-gpu": [over("chart-gpu", "No GPU is recorded (an agent with --gpu would)", [line("power", "--orange", { unit: " W", fill: true }),
      line("memory", "--sky", { dash: "long", scale: "right", unit: " GiB" })]), ["gpu_power_watts", "gpu_memory_bytes"], [1, 1 / 2 ** 30]],
  };
  const sweepChart = new Chart($("chart-sweep"), { xUnit: " /s offered", points: true, empty: "After the first trial", series: [
    line("offered", "--soft", { dash: "dash", width: 1.5 }), line("achieved", "--blue", { points: true }), line("goodput", "--green", { dash: "long", points: true })] });
  const attainChart = new Chart($("chart-attain"), { xUnit: " /s offered", points: true, empty: "After the first trial, with objectives", ranges: { y: [0, 105] },
    limit: () => (kept.sweep ? kept.sweep.about.slo_target * 100 : null), limitText: (v) => `target ${number(v)}%`,
    series: [line("attainment", "--blue", { points: true, unit: "%" })] });
  charts = [...Object.values(time).map(([c]) => c), sweepChart, attainChart];

  // Lowest and highest value of what was thinned stand side by side: a spike stays a spike.
  function columns(names, scales) {
    const x = [], out = names.map(() => []);
    const now = kept.points.length ? kept.points[kept.points.length - 1].at + 1 : 0;
    const from = kept.window ? now - kept.window : -Infinity;
    for (const p of kept.points) {
      if (p.at + p.span < from) continue;
      for (const [values, at] of p.high ? [[p.low, p.at], [p.high, p.at + p.span / 2]] : [[p.low, p.at]]) {
        x.push(at);
        names.forEach((n, i) => { const v = values[kept.place[n]]; out[i].push(v == null ? null : v * scales[i]); });
      }
    }
    return { data: [x, ...out], range: x.length ? [kept.window && now > kept.window ? from : x[0], Math.max(now, x[0] + 30)] : null };
  }

  function bands() {
    const rates = new Map((kept.sweep ? kept.sweep.trials : []).map((t) => [t.trial, t.offered]));
    if (kept.state && kept.state.trial) rates.set(kept.state.trial.trial, kept.state.trial.offered);
    const out = [];
    for (const p of kept.points) {
      if (p.trial == null) continue;
      const last = out[out.length - 1];
      if (last && last.trial === p.trial) last.to = p.at + p.span;
      else out.push({ trial: p.trial, from: p.at, to: p.at + p.span, label: rates.has(p.trial) ? offered(rates.get(p.trial)) : "" });
    }
    return out;
  }

  const offered = (rate) => (isFinite(Number(rate)) ? `${rate}/s` : String(rate));

  function draw() {
    const stripes = bands();
    for (const [chart, names, scales] of Object.values(time)) {
      const { data, range } = columns(names, scales);
      chart.set(data, stripes, range);
    }
  }

  function drawSweep() {
    const rates = kept.sweep.rates.filter((r) => r.offered_per_second != null);
    const x = rates.map((r) => r.offered_per_second), pad = x.length ? x[x.length - 1] * 0.06 : 1;
    for (const c of [sweepChart, attainChart]) c.spec.xRange = [0, (x.length ? x[x.length - 1] : 1) + pad];
    sweepChart.set([x, x.slice(), rates.map((r) => r.achieved_per_second), rates.map((r) => r.goodput_per_second)]);
    attainChart.set([x, rates.map((r) => (r.attainment == null ? null : r.attainment * 100))]);
  }

  // ------------------------------------------------------------------------------------------------ words
  function cells(row) {
    const tr = document.createElement("tr");
    for (const cell of row) {
      const td = document.createElement("td");
      if (cell instanceof Node) td.append(cell); else if (cell && cell.left != null) { td.className = "left"; td.append(cell.left); } else td.textContent = cell;
      tr.append(td);
    }
    return tr;
  }
  function fill(id, rows, width, none) {
    if (rows.length) { $(id).replaceChildren(...rows.map(cells)); return; }
    const tr = document.createElement("tr"), td = document.createElement("td");
    td.colSpan = width; td.className = "none"; td.textContent = none; tr.append(td); $(id).replaceChildren(tr);
  }
  function mark(verdict) { const s = document.createElement("span"); s.className = `mark ${verdict}`; s.textContent = verdict; return s; }
  function words(...parts) { const f = document.createDocumentFragment(); f.append(...parts); return f; }
  function small(text, name = "small") { const e = document.createElement(name === "why" ? "span" : "small"); if (name === "why") e.className = "why"; e.textContent = text; return e; }

  function tile(name, value, unit, kind) {
    const div = document.createElement("div"), b = document.createElement("b"), span = document.createElement("span");
    div.className = `tile ${kind || ""}`; span.textContent = name; b.textContent = value;
    if (unit) { const s = document.createElement("small"); s.textContent = unit; b.append(s); }
    div.append(span, b); return div;
  }

  function newest(name) {
    const p = kept.points[kept.points.length - 1];
    return p ? p.low[kept.place[name]] : null;
  }

  function tiles() {
    $("tiles").hidden = kept.state.stage === "over";
    const t = kept.state.trial, about = kept.sweep.about, list = [];
    // Of this trial: while one is prepared, the newest second is still of the one before.
    const last = kept.points[kept.points.length - 1];
    const of = (name) => (t && last && last.trial === t.trial ? newest(name) : null);
    const rate = (name) => number(of(name));
    const time = (name) => (of(name) == null ? "–" : number(of(name) * 1e3));
    list.push(tile("offered", t && t.offered_per_second != null ? number(t.offered_per_second) : t ? t.offered : "–", t && t.offered_per_second != null ? "/s" : ""));
    list.push(tile("achieved", rate("achieved_per_second"), "/s"));
    if (about.slos.length) {
      list.push(tile("goodput", rate("goodput_per_second"), "/s"));
      const a = t ? t.attainment_so_far : null;
      list.push(tile("attainment", a == null ? "–" : (Math.floor(a * 1e3) / 10).toFixed(1), "%", a != null && a < about.slo_target ? "bad" : ""));
    }
    list.push(tile("TTFT p50", time("ttft_p50_seconds"), "ms"));
    list.push(tile("TTFT p99", time("ttft_p99_seconds"), "ms"));
    list.push(tile("in flight", t ? number(t.in_flight) : "–"));
    list.push(tile("failed", t ? number(t.failed) : "–", "", t && t.failed ? "bad" : ""));
    const late = t ? t.lateness_p99_seconds : null;
    list.push(tile("sent late, p99", late == null ? "–" : number(late * 1e3), "ms", late != null && late > about.lateness_budget_seconds ? "warn" : ""));
    if (newest("gpu_power_watts") != null) list.push(tile("GPU power", number(newest("gpu_power_watts")), "W"));
    $("tiles").replaceChildren(...list);
  }

  function plan() {
    const s = kept.state, t = s.trial;
    const stage = s.stop > 0 && s.stage !== "over" ? "stopping" : s.stage;
    $("stage").textContent = { gathering: "gathering agents", closing: "between trials", over: "over" }[stage] || stage;
    $("stage").dataset.is = stage;
    const again = t && t.rerun_of != null ? `, again for trial ${t.rerun_of}` : "";
    $("trial-title").textContent = s.stage === "over" ? s.outcome : t
      ? `Trial ${t.trial} at ${offered(t.offered)}, repeat ${t.repeat}${again}` : s.trials_done ? "Between two trials" : "Waiting for the first trial";
    $("elapsed").textContent = `${clock(s.elapsed_seconds)} passed`;
    $("left").textContent = s.left_seconds == null ? "" : `about ${clock(s.left_seconds)} left`;
    const done = new Map();
    kept.sweep.trials.forEach((r) => done.set(r.rerun_of ?? r.trial, r.verdict));
    const verdicts = [...done.values()].slice(-s.trials_planned);
    $("track").replaceChildren(...Array.from({ length: s.trials_planned }, (_, i) => {
      const e = document.createElement("i");
      if (i < s.trials_done) { e.className = `done-${verdicts[i] || "valid"}`; e.title = verdicts[i] || ""; } else if (t && i === s.trials_done) e.className = "now";
      return e;
    }));
    $("track").setAttribute("aria-label", `${s.trials_done} of ${s.trials_planned} trials are done`);
    const of = t && t.length_seconds && t.since_start_seconds != null ? Math.min(1, t.since_start_seconds / t.length_seconds)
      : t && t.arrivals ? Math.min(1, t.dispatched / t.arrivals) : 0;
    $("bar").hidden = !t;
    $("bar-fill").style.width = `${(of * 100).toFixed(1)}%`;
    $("bar").setAttribute("aria-valuenow", Math.round(of * 100));
    const howMany = kept.sweep.about.searches ? `${s.trials_done} trials done, searching.` : `${s.trials_done} of ${s.trials_planned} trials done.`;
    const passed = t && t.since_start_seconds != null ? `${Math.floor(t.since_start_seconds)} s${t.length_seconds ? ` of ${Math.round(t.length_seconds)} s` : ""}: ` : "";
    $("trial-text").textContent = t ? `${passed}${t.dispatched} of ${t.arrivals} sent, ${t.in_flight} in flight, ${t.succeeded} ok, ${t.failed} failed${t.waiting ? `, ${t.waiting} waiting` : ""}. ${howMany}` : howMany;
  }

  function tables() {
    const s = kept.state, budget = kept.sweep.about.lateness_budget_seconds;
    const rows = s.agents.map((a) => [{ left: a.name }, { left: a.lost ? words(mark("invalid"), small(a.lost, "why")) : a.standing || "joined" }, `${a.dispatched}`,
      `${a.in_flight}`, `${a.succeeded}`, `${a.failed}`, words(a.lateness_p99_seconds != null && a.lateness_p99_seconds > budget ? "▲ " : "", ms(a.lateness_p99_seconds)),
      a.cpu_cores == null ? "–" : a.cpu_cores.toFixed(2), percent(a.host_cpu_share, 0), a.clock_bound_seconds == null ? "–" : `± ${number(a.clock_bound_seconds * 1e6)} µs`]);
    fill("agents", rows, 10, "No agent has an order yet");
    $("gpus-card").hidden = !s.gpus.length;
    fill("gpus", s.gpus.map((g) => {
      const bar = document.createElement("span"), part = document.createElement("i");
      bar.className = "bar-cell"; part.style.width = `${g.memory_total_bytes ? (100 * (g.memory_used_bytes || 0)) / g.memory_total_bytes : 0}%`; bar.append(part);
      return [{ left: words(`${g.index}  ${g.name}`, small(g.used_by_engine === false ? "not the engine's" : "")) }, { left: g.agent }, g.power_watts == null ? "–" : `${number(g.power_watts)} W`,
        g.limit_watts == null ? "–" : `${number(g.limit_watts)} W`, words(bar, `${gib(g.memory_used_bytes)} of ${gib(g.memory_total_bytes)}`),
        g.utilisation_percent == null ? "–" : `${g.utilisation_percent}%`, g.temperature_c == null ? "–" : `${g.temperature_c} °C`];
    }), 7, "");
    const item = (at, text, times, warn) => {
      const li = document.createElement("li"), when = document.createElement("time"), span = document.createElement("span");
      li.className = warn ? "warn" : ""; when.textContent = clock(at); span.textContent = text;
      li.append(when, span, times > 1 ? small(`× ${times}`) : ""); return li;
    };
    const nothing = (text) => { const li = document.createElement("li"); li.className = "none"; li.textContent = text; return li; };
    $("warnings").replaceChildren(...(s.warnings.length ? s.warnings.slice().reverse().map((w) => item(w.at_seconds, w.text, w.times, true)) : [nothing("None so far")]));
    $("notes").replaceChildren(...(s.notes.length ? s.notes.slice().reverse().map((n) => item(n.at_seconds, n.text, 1, false)) : [nothing("Nothing yet")]));
  }

  function sweep() {
    const { about, trials, knee } = kept.sweep;
    $("run").textContent = about.run;
    $("what").textContent = `${about.model || "model as the engine lists it"} at ${about.engine} · ${about.arrivals} arrivals · ${about.workload} · ${about.slos.length ? `SLO ${about.slos.join(" ")}` : "no objectives"}`;
    document.title = `${about.run} – Plimsoll`;
    $("hint").hidden = about.live_latencies;
    $("hint").textContent = "No live TTFT and goodput: with --upload after, traces come when a trial is over.";
    $("knee").textContent = knee ? knee.text : "The knee is looked for when the first trial is over.";
    fill("trials", trials.slice().reverse().map((t) => [{ left: words(`${t.trial}`, small(t.rerun_of != null ? `again for ${t.rerun_of}` : `repeat ${t.repeat}`)) }, t.offered,
      number(t.achieved_per_second), number(t.goodput_per_second), percent(t.attainment, 2), ms(t.ttft_p50_seconds), ms(t.ttft_p99_seconds), ms(t.tpot_p99_seconds),
      t.failed == null ? "–" : `${t.failed}`, { left: words(mark(t.verdict), t.reasons.length ? small(t.reasons.join("; "), "why") : "") }]), 10, "No trial is over yet");
    drawSweep();
  }

  // ------------------------------------------------------------------------------------------------ events
  function link(is, text) { $("link").dataset.is = is; $("link").textContent = text; }

  function take(event) {
    const news = JSON.parse(event.data);
    kept.id = event.lastEventId;
    if (news.anew) {
      kept.points = [];
      kept.place = Object.fromEntries(news.metrics.map((name, i) => [name, i]));
    }
    kept.points.push(...news.points);
    // As many as the coordinator keeps, and the same ones after the next time it begins anew.
    if (kept.points.length > 7200) kept.points.splice(0, kept.points.length - 7200);
    kept.state = news.state;
    if (news.sweep) kept.sweep = news.sweep;
    if (news.sweep) sweep();
    plan(); tiles(); tables();
    if (news.points.length || news.sweep) draw();
    link("live", "live");
    if (news.state.stage === "over") { source.close(); link("over", "the run is over"); }
  }

  let source = null, again = null;
  function listen() {
    source = new EventSource(kept.id ? `events?since=${encodeURIComponent(kept.id)}` : "events");
    source.addEventListener("news", take);
    source.onerror = () => {
      if (kept.state && kept.state.stage === "over") return;
      link("lost", "no answer; trying again");
      // A browser that has given up is made to begin again, where it stood.
      if (source.readyState === EventSource.CLOSED && !again) again = setTimeout(() => { again = null; listen(); }, 2000);
    };
  }
  for (const b of document.querySelectorAll("[data-window]")) {
    b.addEventListener("click", () => {
      kept.window = Number(b.dataset.window);
      document.querySelectorAll("[data-window]").forEach((o) => o.setAttribute("aria-pressed", o === b));
      draw();
    });
  }
  listen();
})();
