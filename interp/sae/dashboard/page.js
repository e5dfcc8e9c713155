const DATA = JSON.parse(document.getElementById("data").textContent);
const FEATURES = DATA.features;
const BY_INDEX = new Map(FEATURES.map((f) => [f.index, f]));
const $ = (id) => document.getElementById(id);

// White space as faint signs, everything else as it is; only text nodes are ever made of data.
const SIGNS = { " ": "·", "\n": "⏎", "\r": "␍", "\t": "⇥" };
function write(node, string) {
  for (const part of string.split(/([ \n\r\t]+)/)) {
    if (part === "") continue;
    if (node.hasChildNodes() && SIGNS[part[0]] !== undefined) node.append(el("wbr"));
    if (SIGNS[part[0]] === undefined) node.append(part);
    else node.append(el("i", { class: part.length > 2 ? "run" : null, text: [...part].map((c) => SIGNS[c]).join("") }));
  }
  return node;
}
const token = (string, name = "span", cls = "token") => write(el(name, { class: cls }), string);

// ---- the run -------------------------------------------------------------------------------------

function showRun() {
  $("eyebrow").textContent = DATA.eyebrow;
  $("lede").textContent = DATA.lede;
  for (const [name, value, note] of DATA.headline) {
    $("headline").append(el("div", { "data-tip": note }, el("dt", { text: name }), el("dd", { text: value })));
  }
  const { columns, rows } = DATA.metrics;
  if (rows.length) {
    const head = el("tr", {}, el("th", { scope: "col" }, el("span", { class: "visually-hidden", text: "metric" })));
    columns.forEach((c) => head.append(el("th", { scope: "col", class: "num", text: c.name }, el("small", { text: c.note }))));
    const body = el("tbody");
    for (const row of rows) {
      const line = el("tr", {}, el("th", { scope: "row", text: row.label, "data-tip": row.note }));
      row.values.forEach((v, i) => line.append(el("td", { class: i === 0 ? "num first" : "num", text: v })));
      body.append(line);
    }
    $("metrics").append(el("table", {}, el("thead", {}, head), body));
  } else {
    $("metrics").append(el("p", { class: "note", text: "No evaluation was given: run evaluate on held-out text and make the report again." }));
  }
  $("latents-note").textContent = DATA.latents_note;
  $("footer").textContent = DATA.footer;
  drawCharts();
}

function drawCharts() {
  const box = $("charts");
  const { frontier, densities, histories } = DATA.charts;
  const names = frontier.map((s) => s.name);
  for (const [key, title, label] of [["loss_recovered", "Loss recovered against L0", "loss recovered"], ["fvu", "FVU against L0", "fraction of variance unexplained"]]) {
    const series = frontier.map((s) => ({
      name: s.name,
      points: s.points.filter((p) => p[key] !== null && p.l0 > 0).map((p) => ({ x: p.l0, y: p[key], ringed: p.browsed, label: `${p.name}\nL0 ${figure(p.l0)}, ${label} ${figure(p[key], 4)}` })),
    }));
    if (series.some((s) => s.points.length)) {
      box.append(captioned(title, names, scatter(series, { xLog: true, xLabel: "L0, latents per token (log)", yLabel: null, label: title })));
    }
  }
  if (densities.length) {
    const body = histogram(densities, { xLabel: "log10 of the share of tokens on which a latent fires", label: "Firing density" });
    box.append(captioned("Firing density", densities.map((d) => `${d.name} (${d.dead.toLocaleString("en")} dead)`), body));
  }
  for (const [key, title] of [["loss", "Training loss"], ["l0", "L0 in training"]]) {
    const series = histories.filter((h) => h[key] && h[key].length > 1).map((h) => ({ name: h.name, x: h.step, y: h[key] }));
    if (series.length) box.append(captioned(title, series.map((s) => s.name), curves(series, { yLog: true, xLabel: "step", label: title })));
  }
}

// ---- the list ------------------------------------------------------------------------------------

const SORTS = {
  score: ["easiest to read", (a, b) => (b.score ?? -1) - (a.score ?? -1)],
  density: ["most frequent", (a, b) => b.density - a.density],
  rare: ["rarest", (a, b) => a.density - b.density],
  max: ["strongest", (a, b) => b.max - a.max],
  index: ["number", (a, b) => a.index - b.index],
};
const KINDS = { on: "on", after: "after", before: "before", near: "near" };
const state = { query: "", sort: "score", kind: null, shown: [], selected: null };

function haystack(f) {
  if (f.text === undefined) {
    const ids = new Set(f.groups.flatMap((g) => g.examples.flatMap((e) => e[4])));
    const words = [...ids].map((t) => DATA.tokens[t]);
    // The words of the first example in order, too, so that a phrase can be found.
    const strips = f.groups.slice(0, 1).flatMap((g) => g.examples.map((e) => e[4].map((t) => DATA.tokens[t]).join("")));
    f.text = [f.word ?? "", ...words, ...(f.promoted ?? []).map(([t]) => DATA.tokens[t]), ...strips].join("\u0000").toLowerCase();
  }
  return f.text;
}

function matches(f) {
  if (state.kind !== null && f.kind !== state.kind) return false;
  const query = state.query.trim().toLowerCase();
  if (query === "") return true;
  const number = query.match(/^#?(\d+)$/);
  if (number && String(f.index).startsWith(number[1])) return true;
  return haystack(f).includes(query);
}

function refresh() {
  state.shown = FEATURES.filter(matches).sort(SORTS[state.sort][1]);
  const query = state.query.trim().toLowerCase();
  // Descriptions that name the query come first, the latent of that very number before all.
  if (query !== "") {
    const rank = (f) => (String(f.index) === query.replace("#", "") ? 2 : 0) + ((f.word ?? "").trim() === query ? 1 : 0);
    state.shown.sort((a, b) => rank(b) - rank(a));
  }
  const list = $("list");
  list.replaceChildren(...state.shown.map(listItem));
  if (!state.shown.length) list.append(el("li", { class: "empty", role: "presentation", text: "No latent shown here matches. Others can be asked for by number when the report is made." }));
  $("count").textContent = `${state.shown.length.toLocaleString("en")} of ${FEATURES.length.toLocaleString("en")}`;
  mark();
}

function listItem(f) {
  const word = el("span", { class: "word" });
  if (f.kind) { word.append(el("em", { text: f.kind })); write(word, f.word); } else word.append(el("em", { text: "no description" }));
  const meter = el("span", { class: "meter" }, el("i"));
  meter.firstChild.style.width = `${100 * Math.sqrt((f.top ?? 0) * (f.sample ?? 0))}%`;
  return el("li", { role: "option", id: `item-${f.index}`, "data-index": f.index, onclick: () => open(f.index) },
    word, el("span", { class: "no", text: f.index }), meter);
}

function mark() {
  for (const item of $("list").children) item.setAttribute("aria-selected", String(Number(item.dataset.index) === state.selected));
  $("list").setAttribute("aria-activedescendant", `item-${state.selected}`);
}

function step(by) {
  const at = state.shown.findIndex((f) => f.index === state.selected);
  const next = state.shown[Math.min(Math.max(at + by, 0), state.shown.length - 1)];
  if (next) open(next.index);
}

function open(index, fromHash = false) {
  const f = BY_INDEX.get(index);
  if (!f) return;
  state.selected = index;
  if (!fromHash) history.replaceState(null, "", `#latent-${index}`);
  mark();
  const item = $(`item-${index}`), list = $("list");
  if (item) {
    if (item.offsetTop < list.scrollTop + list.offsetTop) list.scrollTop = item.offsetTop - list.offsetTop;
    else if (item.offsetTop + item.offsetHeight > list.scrollTop + list.offsetTop + list.clientHeight) list.scrollTop = item.offsetTop + item.offsetHeight - list.offsetTop - list.clientHeight;
  }
  $("detail").replaceChildren(...detail(f));
}

// ---- one latent ----------------------------------------------------------------------------------

const SENTENCE = { on: "Fires on", after: "Fires right after", before: "Fires right before", near: "Fires within 16 tokens after" };

function detail(f) {
  const line = el("p");
  if (f.kind) {
    line.append(`${SENTENCE[f.kind]} `, token(f.word), `: ${percent(f.top, 2)} of its strongest firings and ${percent(f.sample, 2)} of a random sample, weighted by activation, but ${percent(f.base, 2)} of all tokens.`);
  } else line.append("Not ranked: too rare, too common, or asked for by number.");
  const head = el("div", { class: "detail-head" }, el("div", {}, el("h3", { text: `Latent ${f.index}` }), line),
    el("div", { class: "steps" },
      el("button", { type: "button", "aria-label": "Previous latent (k)", "data-tip": "previous (k)", text: "←", onclick: () => step(-1) }),
      el("button", { type: "button", "aria-label": "Next latent (j)", "data-tip": "next (j)", text: "→", onclick: () => step(1) })));
  const facts = el("dl", { class: "facts" });
  for (const [name, value] of [["fires on", `${percent(f.density)} of tokens`], ["firings", f.hits.toLocaleString("en")], ["strongest", figure(f.max)], ["mean when firing", figure(f.mean)], ["score", f.score === null ? "–" : `${f.score.toFixed(2)} bits`]]) {
    facts.append(el("div", {}, el("dt", { text: name }), el("dd", { text: value })));
  }
  const panels = el("div", { class: "panels" });
  if (f.histogram.counts.length) panels.append(activationPanel(f));
  if (f.promoted) panels.append(...logitPanels(f));
  const parts = [head, facts, panels];
  f.groups.forEach((group, i) => parts.push(exampleGroup(f, group, i)));
  const related = el("div", { class: "panels" });
  if (f.companions.length) related.append(companionPanel(f));
  if (f.neighbours.length) related.append(neighbourPanel(f));
  if (related.children.length) parts.push(el("div", { class: "group" }, related));
  return parts;
}

function panel(title, note, body) {
  return el("div", { class: "panel" }, el("h4", {}, `${title} `, el("small", { text: note })), body);
}

function activationPanel(f) {
  const { counts, width } = f.histogram;
  const edges = Array.from({ length: counts.length + 1 }, (_, i) => i * width);
  const body = histogram([{ name: "", edges, counts }], { width: 300, height: 190, yLog: true, xLabel: "activation", label: "Histogram of activations" });
  return panel("Activations", "number of tokens, log scale", body);
}

function bars(rows, rgb) {
  const most = Math.max(...rows.map(([, v]) => Math.abs(v))) || 1;
  return el("ul", { class: "bars" }, ...rows.map(([t, v]) => {
    const item = el("li", {}, token(DATA.tokens[t], "span", "t"), el("span", { class: "v", text: figure(v) }));
    item.style.backgroundImage = `linear-gradient(rgba(var(${rgb}), .17), rgba(var(${rgb}), .17))`;
    item.style.backgroundSize = `${(100 * Math.abs(v)) / most}% 100%`;
    return item;
  }));
}

function logitPanels(f) {
  return [panel("Promotes", "next tokens", bars(f.promoted, "--heat")), panel("Suppresses", "next tokens", bars(f.suppressed, "--cold"))];
}

function link(index) {
  if (!BY_INDEX.has(index)) return el("span", { text: `Latent ${index}` });
  const f = BY_INDEX.get(index);
  const a = el("a", { href: `#latent-${index}`, text: `Latent ${index}` });
  return f.kind ? el("span", {}, a, " ", el("small", { class: "note", text: `${f.kind} ` }), token(f.word)) : a;
}

function companionPanel(f) {
  return panel("Fires together with", "share of a sample of its firings, and times the usual rate", el("ul", { class: "bars" }, ...f.companions.map(([i, share, lift]) =>
    el("li", {}, link(i), el("span", { class: "v", text: `${percent(share, 2)}  ×${figure(lift, 2)}` })))));
}

function neighbourPanel(f) {
  return panel("Nearest decoder directions", "cosine", el("ul", { class: "bars" }, ...f.neighbours.map(([i, cosine]) =>
    el("li", {}, link(i), el("span", { class: "v", text: cosine.toFixed(3) })))));
}

function exampleGroup(f, group, number) {
  const items = el("ul", { class: "examples" });
  const range = `${figure(group.low)} to ${figure(group.high)}`;
  const fill = () => items.append(...group.examples.map((e) => example(f, e)));
  if (number === 0) {
    fill();
    return el("div", { class: "group" }, el("h4", {}, "Strongest firings ", el("small", { text: `one per context, ${range}` })), items);
  }
  const n = f.groups.length - 1;
  const title = n === 1 ? "A random sample" : `Random sample, ${n === 4 ? "quarter" : "part"} ${number} of ${n}`;
  const fold = el("details", {}, el("summary", {}, `${title} `, el("small", { text: range })), items);
  fold.addEventListener("toggle", () => { if (fold.open && !items.children.length) fill(); });
  return fold;
}

function example(f, [context, document_, position, peak, ids, fired]) {
  const strip = el("div", { class: "strip" });
  const values = new Map(fired);
  ids.forEach((t, j) => {
    const value = values.get(j) ?? 0;
    const at = position - peak + j;
    const span = write(el("span", { "data-tip": `${value ? figure(value) : "does not fire"}\nposition ${at}` }), DATA.tokens[t]);
    if (value > 0 && f.max > 0) span.style.backgroundColor = `rgba(var(--heat), ${(0.08 + 0.62 * Math.min(1, value / f.max)).toFixed(3)})`;
    if (j === peak) span.className = "peak";
    // Lines break before a token, so that none is torn apart.
    if (/^\s/.test(DATA.tokens[t])) strip.append(el("wbr"));
    strip.append(span);
  });
  const act = el("div", { class: "act", text: figure(values.get(peak) ?? 0), "data-tip": `document ${document_}, context ${context}` });
  return el("li", {}, act, strip);
}

// ---- the page as a whole -------------------------------------------------------------------------

function tooltips() {
  const tip = $("tip");
  const show = (event) => {
    const target = event.target.closest ? event.target.closest("[data-tip]") : null;
    tip.hidden = target === null;
    if (target === null) return;
    tip.textContent = target.dataset.tip;
    const box = target.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const x = Math.min(Math.max(6, (event.clientX || box.left) - own.width / 2), window.innerWidth - own.width - 6);
    const y = box.top - own.height - 7 < 0 ? box.bottom + 7 : box.top - own.height - 7;
    tip.style.left = `${x}px`;
    tip.style.top = `${y}px`;
  };
  document.addEventListener("mouseover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
}

function listen() {
  for (const [key, [name]] of Object.entries(SORTS)) $("sort").append(el("option", { value: key, text: name }));
  $("sort").addEventListener("change", () => { state.sort = $("sort").value; refresh(); });
  $("search").addEventListener("input", () => { state.query = $("search").value; refresh(); });
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && state.shown.length) open(state.shown[0].index);
    if (event.key === "Escape") { $("search").value = state.query = ""; refresh(); $("search").blur(); }
  });
  for (const kind of Object.keys(KINDS).filter((k) => FEATURES.some((f) => f.kind === k))) {
    const button = el("button", { type: "button", text: KINDS[kind], "aria-pressed": "false", "data-kind": kind });
    button.addEventListener("click", () => {
      state.kind = state.kind === kind ? null : kind;
      for (const other of $("kinds").children) other.setAttribute("aria-pressed", String(other.dataset.kind === state.kind));
      refresh();
    });
    $("kinds").append(button);
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); $("search").focus(); }
    else if (!typing && (event.key === "j" || (event.key === "ArrowDown" && event.target === $("list")))) { event.preventDefault(); step(1); }
    else if (!typing && (event.key === "k" || (event.key === "ArrowUp" && event.target === $("list")))) { event.preventDefault(); step(-1); }
  });
  window.addEventListener("hashchange", openFromHash);
}

function openFromHash() {
  const match = location.hash.match(/^#latent-(\d+)$/);
  if (match) open(Number(match[1]), true);
  return match !== null;
}

showRun();
tooltips();
listen();
refresh();
if (!openFromHash() && state.shown.length) {
  open(state.shown[0].index, true);
}
if (!FEATURES.length) $("detail").append(el("p", { class: "note", text: "No latent fired in enough contexts to be shown." }));
