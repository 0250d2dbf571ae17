// Charts over uPlot: lines over time, and points by offered rate. Each has its own dash, so that no meaning is carried by
// a colour alone. Colours are read from the style sheet, so a change of theme only needs a redraw.
"use strict";

const Charts = (() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const DASHES = { solid: [], dash: [7, 5], dot: [2, 4], long: [12, 4] };

  const clock = (seconds) => {
    const s = Math.max(0, Math.round(seconds)), two = (n) => String(n).padStart(2, "0");
    const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
    return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
  };

  const number = (v) => {
    if (v == null || !isFinite(v)) return "–";
    const a = Math.abs(v);
    if (a !== 0 && a < 0.01) return v.toExponential(1);
    if (a >= 1e6) return v.toExponential(2);
    return v.toLocaleString("en", { maximumFractionDigits: a < 10 ? 2 : a < 100 ? 1 : 0 });
  };

  // The dash and colour of a line, as it stands beside its name.
  function key(spec) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("width", 22); svg.setAttribute("height", 8); svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("d", "M0 4h22");
    line.setAttribute("stroke", css(spec.color)); line.setAttribute("stroke-width", spec.width || 2);
    line.setAttribute("stroke-dasharray", DASHES[spec.dash || "solid"].join(" "));
    svg.append(line);
    if (spec.points) {
      const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      for (const [k, v] of [["cx", 11], ["cy", 4], ["r", 3.2], ["fill", css(spec.color)]]) dot.setAttribute(k, v);
      svg.append(dot);
    }
    return svg;
  }

  function axis(extra) {
    return Object.assign({
      stroke: css("--soft"), font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif",
      grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--line"), width: 1, size: 4 }, gap: 4,
    }, extra);
  }

  class Chart {
    // `spec.series`: name, color, dash, scale, unit; `spec.x`: how x is shown; `spec.limit`: a horizontal line.
    constructor(figure, spec) {
      this.figure = figure; this.spec = spec; this.plot = figure.querySelector(".plot");
      this.empty = document.createElement("div"); this.empty.className = "empty";
      this.tip = document.createElement("div"); this.tip.className = "tip"; this.tip.hidden = true;
      this.plot.append(this.empty, this.tip);
      this.data = null; this.chart = null; this.trials = [];
      new ResizeObserver(() => this.chart && this.chart.setSize(this.size())).observe(this.plot);
    }

    size() { return { width: Math.max(200, this.plot.clientWidth), height: 215 }; }

    // Names of the lines with their newest values.
    keys() {
      const place = this.figure.querySelector(".keys");
      place.replaceChildren(...this.spec.series.map((s, i) => {
        const span = document.createElement("span");
        span.append(key(s), s.name);
        const last = this.last(i + 1);
        if (last != null && !this.spec.points) { const b = document.createElement("b"); b.textContent = number(last); span.append(b); }
        return span;
      }));
    }

    last(column) {
      const values = this.data && this.data[column];
      return values && values.length ? values[values.length - 1] : null;
    }

    has(data) { return data[0].length > 0 && data.slice(1).some((c) => c.some((v) => v != null)); }

    set(data, trials, range) {
      this.trials = trials || []; this.range = range; this.data = data;
      const has = this.has(data);
      this.figure.dataset.points = has ? data.slice(1).reduce((n, c) => n + c.filter((v) => v != null).length, 0) : 0;
      this.empty.textContent = has ? "" : this.spec.empty;
      this.empty.hidden = has;
      this.keys();
      if (!has) { if (this.chart) { this.chart.destroy(); this.chart = null; } return; }
      if (!this.chart) this.make(data); else this.chart.setData(data);
    }

    redraw() {
      if (this.chart) { this.chart.destroy(); this.chart = null; }
      if (this.data) this.set(this.data, this.trials, this.range);
    }

    make(data) {
      const { series, limit } = this.spec;
      const scales = { x: { time: false, range: (u, min, max) => this.range || this.spec.xRange || [min, max === min ? min + 1 : max] } };
      for (const name of new Set(series.map((s) => s.scale || "y"))) {
        scales[name] = { range: (u, min, max) => this.spread(name, min, max) };
      }
      const axes = [axis({ size: 26, space: 64, values: (u, ticks) => ticks.map(this.spec.x || number) }),
        axis({ scale: "y", size: 46, space: 34, values: (u, ticks) => ticks.map(number) })];
      if (scales.right) axes.push(axis({ scale: "right", side: 1, size: 46, grid: { show: false }, space: 34, values: (u, ticks) => ticks.map(number) }));
      this.chart = new uPlot({
        ...this.size(), scales, axes, legend: { show: false }, padding: [10, scales.right ? 0 : 12, 0, 0],
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
        series: [{}, ...series.map((s) => ({
          label: s.name, scale: s.scale || "y", stroke: css(s.color), width: s.width || 2, dash: DASHES[s.dash || "solid"],
          spanGaps: false, paths: s.step ? uPlot.paths.stepped({ align: 1 }) : undefined,
          points: { show: !!s.points, size: 8, fill: css("--card"), width: 2, stroke: css(s.color) },
          fill: s.fill ? `${css(s.color)}22` : undefined,
        }))],
        hooks: {
          drawClear: [(u) => this.bands(u)],
          draw: [(u) => limit && this.limit(u, limit())],
          setCursor: [(u) => this.point(u)],
        },
      }, data, this.plot);
    }

    spread(name, min, max) {
      const limit = name === "y" && this.spec.limit ? this.spec.limit() : null;
      const own = this.spec.ranges && this.spec.ranges[name];
      if (own) return own;
      if (min == null) return [0, 1];
      // A limit that is far above is not worth flattening the line for.
      const top = Math.max(max, limit != null && limit < max * 4 ? limit * 1.08 : 0);
      return [0, top > 0 ? top * 1.08 : 1];
    }

    // The trials, as stripes with their rates.
    bands(u) {
      const { ctx, bbox } = u, ratio = devicePixelRatio;
      ctx.save();
      ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
      this.trials.forEach((t, i) => {
        const from = u.valToPos(t.from, "x", true), to = u.valToPos(t.to, "x", true);
        if (to < bbox.left || from > bbox.left + bbox.width) return;
        ctx.fillStyle = css("--accent"); ctx.globalAlpha = i % 2 ? 0.045 : 0.085;
        ctx.fillRect(from, bbox.top, to - from, bbox.height);
        ctx.globalAlpha = 1;
        if (to - from > 34 * ratio) {
          ctx.fillStyle = css("--faint"); ctx.font = `${10 * ratio}px system-ui, sans-serif`; ctx.textAlign = "left"; ctx.textBaseline = "top";
          ctx.fillText(t.label, Math.max(from, bbox.left) + 4 * ratio, bbox.top + 3 * ratio);
        }
      });
      ctx.restore();
    }

    limit(u, value) {
      if (value == null) return;
      const y = u.valToPos(value, "y", true), { ctx, bbox } = u, ratio = devicePixelRatio;
      if (y < bbox.top || y > bbox.top + bbox.height) return;
      ctx.save();
      ctx.strokeStyle = css("--red"); ctx.lineWidth = 1.5 * ratio; ctx.setLineDash([4 * ratio, 3 * ratio]);
      ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
      ctx.fillStyle = css("--red"); ctx.font = `600 ${10 * ratio}px system-ui, sans-serif`; ctx.textAlign = "right"; ctx.textBaseline = "bottom";
      ctx.fillText(this.spec.limitText(value), bbox.left + bbox.width - 4 * ratio, y - 2 * ratio);
      ctx.restore();
    }

    point(u) {
      const i = u.cursor.idx, left = u.cursor.left;
      if (i == null || left < 0 || !this.data) { this.tip.hidden = true; return; }
      const rows = [["", (this.spec.x || number)(this.data[0][i]) + (this.spec.xUnit || "")]];
      this.spec.series.forEach((s, n) => { const v = this.data[n + 1][i]; if (v != null) rows.push([s.name, number(v) + (s.unit || "")]); });
      this.tip.replaceChildren(...rows.map(([name, value]) => {
        const row = document.createElement("div"), a = document.createElement("span"), b = document.createElement("b");
        a.textContent = name; b.textContent = value; row.append(a, b); return row;
      }));
      this.tip.hidden = false;
      const x = left + 60, flip = x + this.tip.offsetWidth + 12 > this.plot.clientWidth;
      this.tip.style.left = `${flip ? Math.max(0, x - this.tip.offsetWidth - 24) : x}px`; this.tip.style.top = "8px";
    }
  }

  return { Chart, clock, number };
})();
