"use strict";
// Small charts as SVG that takes its colours from the page. Nothing here knows about SAEs.

const SVG = "http://www.w3.org/2000/svg";

function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (key === "class") node.className = value;
    else if (key === "text") node.textContent = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

function svg(name, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  return node;
}

function colour(i) { return `var(--c${i % 6})`; }

// Numbers as people write them: 0.9731, 57.6, 1,200, 3.1e-5.
function figure(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size < 1e-3) return value.toExponential(1).replace("e-", "e−").replace("-", "−");
  return value.toPrecision(digits).replace("-", "−");
}

function percent(value, digits = 3) {
  if (value > 0 && value < 1e-4) return `${(100 * value).toExponential(1)} %`.replace("e-", "e−");
  return `${Number((100 * value).toPrecision(digits))} %`;
}

// The same on an axis: no zeros at the end, or as many decimals as the others have.
function tick(value, decimals = null) {
  if (value !== 0 && Math.abs(value) < 1e-3 && decimals === null) return value.toExponential(0).replace("e-", "e−");
  const fixed = decimals === null ? { maximumFractionDigits: 6 } : { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return Number(value.toPrecision(4)).toLocaleString("en", fixed).replace("-", "−");
}

function decimals(values, log) {
  if (log) return null;
  return Math.max(0, ...values.map((v) => (String(Number(v.toPrecision(4))).split(".")[1] ?? "").length));
}

function ticks(low, high, count) {
  const step0 = (high - low) / Math.max(1, count);
  const power = Math.pow(10, Math.floor(Math.log10(step0)));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= step0 * 0.999);
  const out = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) out.push(k * step);
  return out;
}

function logTicks(low, high) {
  const out = [];
  const wide = Math.log10(high / low);
  const mantissas = wide > 2.5 ? [1] : wide > 1.6 ? [1, 3] : wide > 0.9 ? [1, 2, 5] : [1, 1.5, 2, 3, 5, 7];
  for (let d = Math.floor(Math.log10(low)); d <= Math.ceil(Math.log10(high)); d++) {
    for (const m of mantissas) {
      const t = m * Math.pow(10, d);
      if (t >= low * 0.999 && t <= high * 1.001) out.push(t);
    }
  }
  return out.length > 1 ? out : ticks(low, high, 4);
}

function scale(domain, range, log) {
  const map = log ? Math.log : (v) => v;
  const [a, b] = domain.map(map);
  const wide = b - a || 1;
  const at = (v) => range[0] + ((map(v) - a) / wide) * (range[1] - range[0]);
  at.ticks = log ? logTicks(...domain) : ticks(domain[0], domain[1], Math.abs(range[1] - range[0]) > 160 ? 5 : 3);
  return at;
}

function padded(values, log, share = 0.08) {
  let low = Math.min(...values), high = Math.max(...values);
  if (log) {
    const grow = Math.max(Math.pow(high / low, share), 1.15);
    return [low / grow, high * grow];
  }
  const grow = (high - low || Math.abs(high) || 1) * share;
  return [low - grow, high + grow];
}

// A frame with axes; `draw(add, x, y)` fills it.
function chart({ width = 420, height = 220, x, y, xLabel, yLabel, xLog = false, yLog = false, label, draw }) {
  const left = 50, right = 14, top = 10, bottom = 36;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const atX = scale(x, [left, width - right], xLog), atY = scale(y, [height - bottom, top], yLog);
  for (const t of atY.ticks) {
    root.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: atY(t), y2: atY(t) }));
    root.append(svg("text", { x: left - 7, y: atY(t) + 3.5, "text-anchor": "end" }, tick(t, decimals(atY.ticks, yLog))));
  }
  for (const t of atX.ticks) root.append(svg("text", { x: atX(t), y: height - bottom + 15, "text-anchor": "middle" }, tick(t, decimals(atX.ticks, xLog))));
  root.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  root.append(svg("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, xLabel));
  if (yLabel) root.append(svg("text", { x: -(top + height - bottom) / 2, y: 11, transform: "rotate(-90)", "text-anchor": "middle" }, yLabel));
  draw((name, attributes, text) => { const node = svg(name, attributes, text ?? null); root.append(node); return node; }, atX, atY, height - bottom);
  return root;
}

function captioned(title, names, body) {
  const caption = el("figcaption", {}, el("b", { text: title }));
  names.forEach((name, i) => {
    const dot = el("i");
    dot.style.background = colour(i);
    caption.append(el("span", { class: "key" }, dot, document.createTextNode(name)));
  });
  return el("figure", {}, caption, body);
}

// series: [{name, points: [{x, y, label, ringed}]}]
function scatter(series, options) {
  const points = series.flatMap((s) => s.points);
  return chart({
    ...options,
    x: padded(points.map((p) => p.x), options.xLog), y: padded(points.map((p) => p.y), options.yLog),
    draw(add, atX, atY) {
      series.forEach((s, i) => {
        const sorted = [...s.points].sort((a, b) => a.x - b.x);
        if (sorted.length > 1) add("polyline", { points: sorted.map((p) => `${atX(p.x)},${atY(p.y)}`).join(" "), fill: "none", stroke: colour(i), "stroke-width": 1.5, opacity: 0.6 });
        for (const p of sorted) {
          add("circle", { cx: atX(p.x), cy: atY(p.y), r: 5, fill: colour(i) });
          if (p.ringed) add("circle", { class: "ring", cx: atX(p.x), cy: atY(p.y), r: 9, stroke: colour(i) });
          add("circle", { class: "hit", cx: atX(p.x), cy: atY(p.y), r: 12, "data-tip": p.label });
        }
      });
    },
  });
}

// series: [{name, edges, counts}]
function histogram(series, options) {
  const tallest = Math.max(1, ...series.flatMap((s) => s.counts));
  const edges = series.flatMap((s) => s.edges);
  const floor = options.yLog ? 0.7 : 0;
  return chart({
    ...options,
    x: [Math.min(...edges), Math.max(...edges)], y: [floor, tallest * (options.yLog ? 1.5 : 1.06)],
    draw(add, atX, atY, base) {
      series.forEach((s, i) => {
        let path = `M${atX(s.edges[0])},${base}`;
        s.counts.forEach((count, j) => {
          const h = count > floor ? atY(count) : base;
          path += `L${atX(s.edges[j])},${h}L${atX(s.edges[j + 1])},${h}`;
        });
        path += `L${atX(s.edges[s.counts.length])},${base}Z`;
        add("path", { d: path, fill: colour(i), "fill-opacity": series.length > 1 ? 0.16 : 0.4, stroke: colour(i), "stroke-width": 1.4, "stroke-linejoin": "round" });
      });
      const first = series[0];
      if (series.length === 1) first.counts.forEach((count, j) => {
        const a = atX(first.edges[j]), b = atX(first.edges[j + 1]);
        add("rect", { class: "hit", x: a, width: Math.max(b - a, 0.5), y: 10, height: base - 10, "data-tip": `${tick(first.edges[j])} to ${tick(first.edges[j + 1])}: ${count.toLocaleString("en")}` });
      });
    },
  });
}

// series: [{name, x: [], y: []}]
function curves(series, options) {
  const ys = series.flatMap((s) => s.y).filter((v) => v !== null && (!options.yLog || v > 0));
  return chart({
    ...options,
    x: [Math.min(...series.flatMap((s) => s.x)), Math.max(...series.flatMap((s) => s.x))], y: padded(ys, options.yLog, 0.05),
    draw(add, atX, atY) {
      series.forEach((s, i) => {
        const points = s.x.map((v, j) => [v, s.y[j]]).filter(([, v]) => v !== null && (!options.yLog || v > 0));
        add("polyline", { points: points.map(([a, b]) => `${atX(a).toFixed(1)},${atY(b).toFixed(1)}`).join(" "), fill: "none", stroke: colour(i), "stroke-width": 1.5, "stroke-linejoin": "round" });
      });
    },
  });
}
