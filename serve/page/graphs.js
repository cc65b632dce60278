/* graphs.js: lines over the last two minutes and histograms, on canvases whose newest value stands beside them as
 * text. */

const KEPT = 120; // samples, one a second

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name);

/* The canvas's context, cleared, at the screen's own resolution; [context, width, height] in CSS pixels. */
function fresh(canvas) {
  const ratio = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  canvas.width = w * ratio;
  canvas.height = h * ratio;
  const c = canvas.getContext("2d");
  c.scale(ratio, ratio);
  c.strokeStyle = css("--line");
  c.beginPath();
  for (const y of [.5, h / 2, h - .5]) { c.moveTo(0, y); c.lineTo(w, y); }
  c.stroke();
  return [c, w, h];
}

function drawLines(canvas, series, colors, top) {
  const [c, w, h] = fresh(canvas), most = top || Math.max(1, ...series.flat()) * 1.15;
  series.forEach((values, i) => {
    if (values.length < 2) return;
    const x = k => w - (values.length - 1 - k) * w / (KEPT - 1);
    const y = k => h - 1 - values[k] / most * (h - 3);
    c.beginPath();
    values.forEach((_, k) => k ? c.lineTo(x(k), y(k)) : c.moveTo(x(k), y(k)));
    c.strokeStyle = c.fillStyle = css(colors[i]);
    c.lineWidth = 1.75;
    c.lineJoin = "round";
    c.stroke();
    if (i) return;
    c.lineTo(w, h);
    c.lineTo(x(0), h);
    c.globalAlpha = .14;
    c.fill();
    c.globalAlpha = 1;
  });
}

function drawBars(canvas, counts) {
  const [c, w, h] = fresh(canvas), most = Math.max(1, ...counts), wide = w / counts.length;
  c.fillStyle = css("--accent");
  counts.forEach((n, i) => {
    const high = n ? Math.max(2, n / most * (h - 3)) : 0;
    c.fillRect(i * wide + 1, h - high, wide - 2, high);
  });
}

function panel(id, title, dots = []) {
  const heading = make("h2", {}, ...(dots.length ? dots.flatMap((dot, i) =>
    [make("span", { className: i ? "dot two" : "dot" }), dot + " "]) : [title]));
  const canvas = make("canvas", { attr: { "aria-hidden": "true" } });
  const attr = { "aria-label": title, "aria-live": "off" }; // not read out each second
  const output = make("output", { id: "v-" + id, textContent: "–", attr });
  const card = make("div", { className: "card graph" }, heading, output, canvas);
  card.dataset.graph = id;
  $("graphs").append(card);
  return { canvas, output };
}

/* values(now, before): the newest of each line, from two samples; text(values): what stands beside. */
function lineGraph(id, title, { values, text, dots, top }) {
  const { canvas, output } = panel(id, title, dots), series = (dots || [title]).map(() => []);
  const draw = () => drawLines(canvas, series, ["--accent", "--second"], top);
  const add = (now, before) => {
    const newest = values(now, before);
    newest.forEach((value, i) => { series[i].push(value); if (series[i].length > KEPT) series[i].shift(); });
    output.textContent = text(newest);
  };
  return { draw, add };
}

/* The bound below which a share of all lies; the last bucket has none. */
function quantile(counts, bounds, share) {
  const wanted = counts.reduce((a, b) => a + b, 0) * share;
  let sum = 0;
  for (let i = 0; i < bounds.length; i++) if ((sum += counts[i]) >= wanted) return "≤ " + duration(bounds[i]);
  return "> " + duration(bounds[bounds.length - 1]);
}

/* Of all since the worker began; buckets without anything at either end are left out. */
function barGraph(id, title, name) {
  const { canvas, output } = panel(id, title), axis = make("div", { className: "axis" });
  let counts = [];
  canvas.parentElement.classList.add("bars");
  canvas.after(axis);
  const draw = () => drawBars(canvas, counts);
  const add = now => {
    const all = now[name].buckets, first = all.findIndex(n => n), last = all.findLastIndex(n => n);
    const from = Math.max(0, first - 1), bounds = about.bucket_seconds.slice(from, last + 2);
    counts = first < 0 ? [0] : all.slice(from, last + 2);
    axis.replaceChildren(...(first < 0 ? [] : [bounds[0], bounds[bounds.length - 1]])
      .map(s => make("span", { textContent: duration(s) })));
    output.textContent = first < 0 ? "–" : ["0.5", "0.99"].map(q =>
      "p" + q * 100 + " " + quantile(all, about.bucket_seconds, q)).join("  ");
  };
  return { draw, add };
}
