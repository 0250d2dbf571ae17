// Latency, goodput and attainment over the offered rate, with the knee.

const closed = report.rates.every((r) => r.offered_rate.startsWith("closed"));
const overRate = report.rates
  .map((r) => ({ rate: r, x: closed ? Number(r.offered_rate.slice(7)) : finite(r.offered_rate_per_second) }))
  .filter((r) => r.x !== null)
  .sort((a, b) => a.x - b.x);
const rateX = overRate.map((r) => r.x);
const rateLabel = closed ? "workers (closed loop: no offered rate)" : "offered rate, requests/s";
// A spoiled run has no knee to show.
const knee = document.getElementById("knee-text") ? (report.search ?? report.knee).bracket : { pass: null, fail: null };

function validityOf(rate) {
  const v = rate.verdicts;
  const counts = ["valid", "late", "degraded", "invalid"].filter((name) => v[name] > 0).map((name) => `${v[name]} ${name}`);
  return counts.join(", ") + (rate.decided ? "" : " – decides nothing");
}

const rateName = (rate) => (rate.offered_rate.startsWith("closed") ? rate.offered_rate + " workers" : rate.offered_rate + " requests/s");

// Where the knee lies: the rate that passes, the one that fails, and what is between them; its words come last, over all.
function drawKnee(u, words) {
  const { ctx, bbox } = u;
  const at = (rate) => (rate === null ? null : Math.round(u.valToPos(rate, "x", true)));
  const [pass, fail] = [at(knee.pass), at(knee.fail)];
  ctx.save();
  if (!words && pass !== null && fail !== null) {
    ctx.fillStyle = faded("green", 0.09);
    ctx.fillRect(pass, bbox.top, fail - pass, bbox.height);
  }
  const line = (x, name, text, dash, align) => {
    if (x === null) return;
    if (!words) {
      ctx.beginPath();
      ctx.setLineDash(dash.map((d) => d * devicePixelRatio));
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.strokeStyle = colour(name);
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      return;
    }
    ctx.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
    const wide = ctx.measureText(text).width + 6 * devicePixelRatio;
    const turn = align === "right" ? x - wide < bbox.left : x + wide > bbox.left + bbox.width;
    ctx.textAlign = turn === (align === "right") ? "left" : "right";
    label(ctx, text, x + (ctx.textAlign === "left" ? 4 : -4) * devicePixelRatio, bbox.top + bbox.height - 6 * devicePixelRatio, name);
  };
  line(pass, "green", "meets SLO", [], "right");
  line(fail, "red", "misses", [4, 4], "left");
  ctx.restore();
}

function drawLimit(u, value, text, under) {
  const y = u.valToPos(value, "y", true);
  const { ctx, bbox } = u;
  if (!(y >= bbox.top && y <= bbox.top + bbox.height)) return;
  ctx.save();
  ctx.beginPath();
  ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.lineWidth = 1.2 * devicePixelRatio;
  ctx.strokeStyle = colour("ink");
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.setLineDash([]);
  ctx.textAlign = "left";
  label(ctx, text, bbox.left + 5 * devicePixelRatio, y + (under ? 14 : -5) * devicePixelRatio, "ink");
  ctx.restore();
}

// Ticks at the tested rates, without those that would stand in each other.
function rateSplits(u) {
  const room = 34;
  let last = -Infinity;
  return rateX.filter((x) => {
    const at = u.valToPos(x, "x");
    if (at - last < room) return false;
    last = at;
    return true;
  });
}

// A line a series: { text, colour, dash, shape, spread: rate → {median, min, max} or null }.
function rateChart(title, unit, scale, series, options) {
  const parent = document.getElementById("rate-charts");
  const value = (v) => (finite(v) === null ? null : v * scale);
  const rows = series.map((s) => overRate.map(({ rate }) => s.spread(rate)));
  const seen = rows.flat().filter(Boolean).flatMap((s) => [value(s.min), value(s.max)]).filter((v) => v !== null);
  if (seen.length === 0) {
    const box = element("div", parent, undefined, "chart");
    element("h3", box, title);
    element("p", box, options.empty || "Undefined at every rate.", "empty");
    return;
  }
  const [low, high] = [Math.min(...seen), Math.max(...seen)];
  const log = options.log && low > 0 && high / low > 30;
  const data = [rateX];
  for (const row of rows) {
    for (const of of ["min", "max", "median"]) data.push(row.map((s) => (s ? value(s[of]) : null)));
  }
  chart(parent, title, unit + (log ? ", logarithmic" : ""), series, (place, width) => {
    const lines = [{}];
    const bands = [];
    series.forEach((s, i) => {
      const paint = colour(s.colour);
      lines.push({ stroke: "transparent", points: { show: false } }, { stroke: "transparent", points: { show: false } });
      lines.push({ label: s.text, stroke: paint, width: 2, dash: s.dash, points: { show: false } });
      bands.push({ series: [3 * i + 2, 3 * i + 1], fill: faded(s.colour, Number(colour("band"))) });
    });
    const range = options.range || ((u, min, max) => {
      if (log) return logRange(min, max);
      return [0, Math.max(max * 1.1, (options.atLeast || 0) * 1.1)];
    });
    const say = (u, idx) => {
      if (idx === null || idx === undefined) return null;
      const { rate } = overRate[idx];
      const told = series.map((s, i) => {
        const spread = rows[i][idx];
        if (!spread) return `${s.text}: ${UNDEFINED}`;
        const show = options.show || ((v) => number(v === "inf" ? v : v * scale));
        return `${s.text}: ${show(spread.median)} ${unit} (${show(spread.min)} to ${show(spread.max)})${s.thin && s.thin(rate) ? " *" : ""}`;
      });
      return [rateName(rate) + ": " + validityOf(rate), ...told].join("\n");
    };
    const markers = (u) => {
      series.forEach((s, i) => {
        data[3 * i + 3].forEach((v, k) => {
          if (v === null) return;
          const hollow = !overRate[k].rate.decided;
          const size = 4 * devicePixelRatio;
          marker(u.ctx, s.shape, u.valToPos(rateX[k], "x", true), u.valToPos(v, "y", true), size, colour(s.colour), hollow);
        });
      });
    };
    return new uPlot({
      width, height: 260, legend: { show: false }, padding: [14, 14, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: {
        x: { time: false, range: (u, min, max) => { const by = (max - min || max || 1) * 0.06; return [Math.max(0, min - by), max + by]; } },
        y: { distr: log ? 3 : 1, range },
      },
      axes: [below(rateLabel, { splits: rateSplits }), axis(null, log ? { filter: (u, splits) => splits.map(roundTick) } : {})],
      series: lines, bands,
      hooks: {
        drawClear: [(u) => drawKnee(u, false)],
        draw: [(u) => { if (options.lines) options.lines(u); markers(u); drawKnee(u, true); }],
      },
      plugins: [hover(say)],
    }, data, place);
  });
}

const PERCENTILES = [
  { name: "p50", colour: "blue", dash: [], shape: "circle" },
  { name: "p90", colour: "orange", dash: [7, 4], shape: "square" },
  { name: "p99", colour: "red", dash: [2, 3], shape: "triangle" },
];

const nobodyWaited = () => overRate.every(({ rate }) => { const p = rate.latency_seconds.client_queue.p99; return !p || p.max === 0; });

function latencyCharts() {
  const metrics = [["ttft", "TTFT", 1e3, "ms"], ["tpot", "TPOT", 1e3, "ms"], ["e2e", "E2E", 1, "s"], ["client_queue", "Client queue", 1e3, "ms"]];
  for (const [metric, title, scale, unit] of metrics) {
    const series = PERCENTILES.map((p) => ({
      ...p, text: p.name, spread: (rate) => rate.latency_seconds[metric][p.name] || null,
      thin: (rate) => p.name === "p99" && rate.latency_seconds[metric].p99_thin,
    }));
    const limit = points.limits_seconds[metric];
    if (metric === "client_queue" && nobodyWaited()) continue;
    rateChart(title, unit, scale, series, {
      log: true,
      lines: limit === undefined ? null : (u) => drawLimit(u, limit * scale, `SLO ${time(limit)}`),
    });
  }
}

function goodputCharts() {
  const one = (v) => (v === null || v === undefined ? null : v);
  const most = closed ? 0 : Math.max(...rateX, 0);
  rateChart(closed ? "Throughput and goodput" : "Offered, achieved, goodput", "/s", 1, [
    closed
      ? { text: "request throughput", colour: "blue", dash: [7, 4], shape: "square", spread: (r) => one(r.request_throughput_per_second) }
      : { text: "achieved", colour: "blue", dash: [7, 4], shape: "square", spread: (r) => one(r.achieved_rate_per_second) },
    { text: "goodput", colour: "green", dash: [], shape: "circle", spread: (r) => one(r.goodput_requests_per_second) },
  ], {
    atLeast: most,
    lines: closed ? null : (u) => {
      const { ctx } = u;
      const x = (v) => u.valToPos(v, "x", true);
      const y = (v) => u.valToPos(v, "y", true);
      ctx.save();
      ctx.beginPath();
      ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.lineWidth = devicePixelRatio;
      ctx.strokeStyle = colour("faint");
      ctx.moveTo(x(rateX[0]), y(rateX[0]));
      ctx.lineTo(x(most), y(most));
      ctx.stroke();
      ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.fillStyle = colour("soft");
      ctx.textAlign = "right";
      const middle = (rateX[0] + most) / 2;
      ctx.fillText("as offered", x(middle) - 8 * devicePixelRatio, y(middle) - 8 * devicePixelRatio);
      ctx.restore();
    },
  });
  const attainment = (rate) => {
    if (rate.slo_attainment === null) return null;
    const of = rate.slo_attainment_interval;
    const [min, max] = "low" in of ? [of.low, of.high] : [of.min, of.max];
    return { median: rate.slo_attainment, min: min ?? rate.slo_attainment, max: max ?? rate.slo_attainment };
  };
  const target = Number(report.slo_target);
  rateChart("SLO attainment", "%", 100, [{ text: "pooled over the trials", colour: "purple", dash: [], shape: "diamond", spread: attainment }], {
    empty: "No objective was given.", show: percent,
    range: (u, min) => { const low = Math.min(min, target * 100); return [Math.max(0, low - (100 - low) * 0.15 - 0.2), 100 + Math.max(0.12, (100 - low) * 0.06)]; },
    lines: (u) => drawLimit(u, target * 100, `target ${Number((target * 100).toPrecision(6))}%`, true),
  });
  if (nobodyWaited()) {
    const box = element("div", document.getElementById("rate-charts"), undefined, "chart");
    element("h3", box, "Client queue");
    element("p", box, "No request waited for a permit at any rate.", "empty");
  }
}
