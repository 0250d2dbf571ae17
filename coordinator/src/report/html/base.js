// What every chart needs: the data, numbers as the table shows them, colours of the theme, and a box beside the pointer.
// Text gets into the page by textContent alone.

const report = JSON.parse(document.getElementById("report").textContent);
const points = JSON.parse(document.getElementById("points").textContent);
const UNDEFINED = "–";

// As the table's: at least two significant digits, at most six characters.
function number(v) {
  if (v === null || v === undefined) return UNDEFINED;
  if (v === "inf" || v === Infinity) return "inf";
  const a = Math.abs(v);
  if (a < 10) return v.toFixed(3);
  if (a < 100) return v.toFixed(2);
  if (a < 1000) return v.toFixed(1);
  return a < 999999.5 ? v.toFixed(0) : v.toExponential(1).replace("e+", "e");
}
// Rounded down, so that only what is whole shows as 100.
const percent = (share) => (share === null || share === undefined ? UNDEFINED : (Math.floor(share * 1e4 + 1e-9) / 1e2).toFixed(2));
const finite = (v) => (typeof v === "number" && Number.isFinite(v) ? v : null);

function time(seconds) {
  if (seconds === null || seconds === undefined) return UNDEFINED;
  return seconds < 1 ? number(seconds * 1e3) + " ms" : number(seconds) + " s";
}

// A tick of an axis: short, and none for the ticks between of a logarithmic one.
function tick(v) {
  if (v === null || v === undefined) return "";
  return String(Number(v.toPrecision(6)));
}

function element(name, parent, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  if (parent) parent.appendChild(made);
  return made;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}
const COLOURS = ["blue", "orange", "green", "red", "purple", "sky"];
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
const SHAPES = ["circle", "square", "triangle", "diamond"];

function faded(name, alpha) {
  const hex = colour(name).slice(1);
  const [r, g, b] = [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return `rgba(${r}, ${g}, ${b}, ${alpha})`;
}

// A marker, hollow where what it stands for decides nothing.
function marker(ctx, shape, x, y, size, stroke, hollow) {
  ctx.beginPath();
  if (shape === "square") ctx.rect(x - size * 0.9, y - size * 0.9, size * 1.8, size * 1.8);
  else if (shape === "triangle") {
    ctx.moveTo(x, y - size * 1.15);
    ctx.lineTo(x + size * 1.1, y + size * 0.85);
    ctx.lineTo(x - size * 1.1, y + size * 0.85);
    ctx.closePath();
  } else if (shape === "diamond") {
    ctx.moveTo(x, y - size * 1.3);
    ctx.lineTo(x + size * 1.1, y);
    ctx.lineTo(x, y + size * 1.3);
    ctx.lineTo(x - size * 1.1, y);
    ctx.closePath();
  } else if (shape === "cross") {
    ctx.moveTo(x - size, y - size);
    ctx.lineTo(x + size, y + size);
    ctx.moveTo(x + size, y - size);
    ctx.lineTo(x - size, y + size);
  } else ctx.arc(x, y, size, 0, 2 * Math.PI);
  ctx.lineWidth = Math.max(1.5, size / 2.6);
  ctx.strokeStyle = stroke;
  ctx.fillStyle = hollow ? colour("card") : stroke;
  if (shape !== "cross") ctx.fill();
  ctx.stroke();
}

// Words on a chart, kept readable over its lines.
function label(ctx, text, x, y, name) {
  ctx.lineJoin = "round";
  ctx.lineWidth = 3 * devicePixelRatio;
  ctx.strokeStyle = colour("card");
  ctx.strokeText(text, x, y);
  ctx.fillStyle = colour(name);
  ctx.fillText(text, x, y);
}

const charts = [];

// A chart with its title and keys. `draw` makes its uPlot for a width, and again when width or theme change.
function chart(parent, title, unit, keys, draw) {
  const box = element("div", parent, undefined, "chart");
  const head = element("h3", box, title);
  if (unit) element("span", head, unit, "soft");
  if (keys.length) {
    const list = element("ul", box, undefined, "keys");
    for (const key of keys) keyOf(element("li", list), key);
  }
  const place = element("div", box);
  const made = { box, place, draw, plot: null, keys, list: box.querySelector(".keys") };
  charts.push(made);
  redraw(made);
  return made;
}

function keyOf(item, key) {
  const canvas = element("canvas", item);
  canvas.width = 60;
  canvas.height = 24;
  const ctx = canvas.getContext("2d");
  ctx.setLineDash((key.dash || []).map((d) => d * 2));
  ctx.lineWidth = 3.5;
  ctx.strokeStyle = colour(key.colour);
  if (key.shape !== "cross" && !key.bare) {
    ctx.beginPath();
    ctx.moveTo(0, 12);
    ctx.lineTo(60, 12);
    ctx.stroke();
  }
  ctx.setLineDash([]);
  if (key.shape) marker(ctx, key.shape, 30, 12, 7, colour(key.colour), false);
  item.appendChild(document.createTextNode(key.text));
}

function widthOf(place) {
  return Math.max(260, Math.floor(printing ? printing : place.clientWidth || 520));
}

function redraw(made) {
  if (made.plot) made.plot.destroy();
  made.place.replaceChildren();
  if (made.list) {
    made.list.replaceChildren();
    for (const key of made.keys) keyOf(element("li", made.list), key);
  }
  made.width = widthOf(made.place);
  made.plot = made.draw(made.place, made.width);
  made.box.dataset.points = made.plot ? String(made.plot.data[0].length) : "0";
}

function axis(label, more) {
  return Object.assign({
    label, labelSize: 20, labelGap: 2, labelFont: "12px system-ui, sans-serif", font: "11px system-ui, sans-serif", size: 52,
    stroke: colour("soft"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("line"), width: 1, size: 4 },
    values: (u, splits) => splits.map(tick),
  }, more);
}
// Bounds of a logarithmic scale: 1, 2 or 5 of a decade, for its ticks are counted from the lower one.
function logRange(min, max) {
  const round = (v, up) => {
    const decade = 10 ** Math.floor(Math.log10(v));
    const steps = up ? [1, 2, 5, 10] : [10, 5, 2, 1];
    return decade * steps.find((n) => (up ? n * decade >= v * 0.999999 : n * decade <= v * 1.000001));
  };
  return [round(min / 1.15, false), round(max * 1.15, true)];
}

// Of a logarithmic axis 1, 2 and 5 of each decade.
function roundTick(v) {
  const leading = v / 10 ** Math.floor(Math.log10(v) + 1e-9);
  return [1, 2, 5].some((n) => Math.abs(leading - n) < 1e-6) ? v : null;
}

const below = (label, more) => axis(label, Object.assign({ size: 34 }, more));

// A box that follows the pointer with what `say` gives for the index under it.
function hover(say) {
  let box;
  let inside = false;
  return {
    hooks: {
      init: [(u) => {
        box = element("div", u.over, undefined, "hover");
        // Charts whose pointers move together do not all talk.
        u.over.addEventListener("mouseenter", () => { inside = true; });
        u.over.addEventListener("mouseleave", () => { inside = false; });
      }],
      setCursor: [(u) => {
        const { left, top, idx } = u.cursor;
        const text = left >= 0 && inside ? say(u, idx, left, top) : null;
        if (!text) { box.style.display = "none"; return; }
        box.textContent = text;
        box.style.display = "block";
        const right = left + 16 + box.offsetWidth > u.over.clientWidth;
        box.style.left = (right ? left - box.offsetWidth - 14 : left + 14) + "px";
        box.style.top = Math.max(-10, Math.min(top - 10, u.over.clientHeight - box.offsetHeight + 24)) + "px";
      }],
    },
  };
}

let printing = 0;
