// Distribution functions: the share of a trial's successes that took at most so long.

function distributionCharts() {
  const parent = document.getElementById("distribution-charts");
  const controls = document.getElementById("distribution-controls");
  const shown = points.trials.filter((t) => t.samples.e2e > 0);
  if (shown.length === 0) {
    element("p", controls, "No trial has successful requests.", "note");
    return;
  }
  const metrics = [["ttft", "TTFT"], ["tpot", "TPOT"], ["e2e", "E2E"]];
  let metric = "ttft";
  const buttons = element("span", controls, undefined, "buttons");
  const rates = [...new Set(shown.map((t) => trialOf(t).offered_rate))];
  rates.sort((a, b) => Number(a) - Number(b));
  const keys = rates.map((rate, i) => ({ text: rateName({ offered_rate: rate }), colour: COLOURS[i % COLOURS.length], dash: [] }));
  const made = chart(parent, "Cumulative share of requests", "", keys, (place, width) => {
    const drawn = shown.filter((t) => t.distributions_seconds[metric].length === points.percentiles.length);
    if (drawn.length === 0) {
      element("p", place, "Undefined for every request.", "empty");
      return null;
    }
    const data = [points.percentiles, ...drawn.map((t) => t.distributions_seconds[metric].map((s) => s * 1e3))];
    const all = data.slice(1).flat();
    const log = Math.min(...all) > 0 && Math.max(...all) / Math.min(...all) > 20;
    const lines = drawn.map((t) => {
      const trial = trialOf(t);
      const i = rates.indexOf(trial.offered_rate);
      const valid = trial.summary.validity.verdict === "valid";
      return { stroke: valid ? colour(COLOURS[i % COLOURS.length]) : faded(COLOURS[i % COLOURS.length], 0.45), width: 1.8, dash: DASHES[trial.repeat % DASHES.length], points: { show: false } };
    });
    const limit = points.limits_seconds[metric];
    const say = (u, idx, left) => {
      if (idx === null || idx === undefined) return null;
      let best = null;
      drawn.forEach((t, i) => {
        const away = Math.abs(u.valToPos(data[i + 1][idx], "y") - left);
        if (best === null || away < best.away) best = { away, t, i };
      });
      const trial = trialOf(best.t);
      const thin = points.percentiles[idx] >= 99 && best.t.samples[metric] < 368 ? " *" : "";
      return `trial ${trial.trial}: ${rateName(trial)}, repeat ${trial.repeat}, ${trial.summary.validity.verdict}\n` +
        `p${points.percentiles[idx]} of ${best.t.samples[metric]} successes: ${number(data[best.i + 1][idx])} ms${thin}`;
    };
    return new uPlot({
      width, height: 320, legend: { show: false }, padding: [14, 18, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false, ori: 1, dir: 1, range: [0, 100] }, y: { ori: 0, dir: 1, distr: log ? 3 : 1, range: (u, min, max) => (log ? logRange(min, max) : [0, max * 1.05]) } },
      axes: [
        axis("% of successes", { side: 3, scale: "x" }),
        below(metrics.find((m) => m[0] === metric)[1] + ", ms" + (log ? " (logarithmic)" : ""), { side: 2, scale: "y", ...(log ? { filter: (u, splits) => splits.map(roundTick) } : {}) }),
      ],
      series: [{}, ...lines],
      hooks: { draw: [(u) => {
        if (limit === undefined) return;
        const { ctx, bbox } = u;
        const x = u.valToPos(limit * 1e3, "y", true);
        if (!(x >= bbox.left && x <= bbox.left + bbox.width)) return;
        ctx.save();
        ctx.beginPath();
        ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
        ctx.strokeStyle = colour("ink");
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
        ctx.setLineDash([]);
        ctx.textAlign = "right";
        label(ctx, `SLO ${time(limit)}`, x - 5 * devicePixelRatio, bbox.top + 14 * devicePixelRatio, "ink");
        ctx.restore();
      }] },
      plugins: [hover(say)],
    }, data, place);
  });
  for (const [name, title] of metrics) {
    const button = element("button", buttons, title);
    button.type = "button";
    button.setAttribute("aria-pressed", String(name === metric));
    button.addEventListener("click", () => {
      metric = name;
      for (const other of buttons.children) other.setAttribute("aria-pressed", String(other === button));
      redraw(made);
    });
  }
}
