/* works.js: the second tab: live figures by one stream, jobs with cancel, and what this worker is. Nothing is asked for
 * while the tab is not shown. */

let about = null;     // what the stream told first
let before = null;    // the last sample
let watching = null;  // AbortController of the stream that is open

const rateOf = (name, now, was) =>
  was ? Math.max(0, now[name] - was[name]) / Math.max(0.001, now.uptime_seconds - was.uptime_seconds) : 0;

const hitShare = (now, was) => {
  const read = was ? now.prompt_tokens_total - was.prompt_tokens_total : 0;
  return read > 0 ? Math.min(1, (now.prefix_matched_tokens_total - was.prefix_matched_tokens_total) / read) : 0;
};

const graphs = [
  lineGraph("rate", "tokens / s", { values: (n, b) => [rateOf("tokens_generated_total", n, b)],
    text: v => number.format(v[0]) }),
  lineGraph("jobs", "jobs that run and wait", { values: n => [n.requests_running, n.requests_queued],
    text: v => v.join(" / "), dots: ["running", "queued"] }),
  lineGraph("kv", "KV cache in use", { values: n => [n.kv_cache_usage_ratio], text: v => percent(v[0]), top: 1 }),
  lineGraph("batch", "tokens and jobs of a step", { values: n => [n.batch_tokens, n.batch_size],
    text: v => v.join(" / "), dots: ["step: tokens", "jobs"] }),
  lineGraph("prompt", "prompt tokens / s", { values: (n, b) => [rateOf("prompt_tokens_total", n, b)],
    text: v => number.format(v[0]) }),
  lineGraph("prefix", "prefix cache hits", { values: (n, b) => [hitShare(n, b)],
    text: v => percent(v[0]), top: 1 }),
  barGraph("first", "time to the first token", "time_to_first_token_seconds"),
  barGraph("gap", "time between tokens", "inter_token_latency_seconds"),
];

const redraw = () => graphs.forEach(graph => graph.draw());

function notice(text) {
  $("live-state").textContent = text;
  $("live-state").hidden = !text;
}

function onAbout() {
  const m = about.memory;
  describe($("memory"), m ? Object.entries(m).map(([kind, n]) => [kind, bytes(n)]) : [["model", "none yet"]]);
  describe($("plugins"), about.plugins.map(p => [p.id, p.claims || "–", "SHA-256 " + p.sha256]));
}

function onSample(now) {
  graphs.forEach(graph => graph.add(now, before));
  before = now;
  const rows = about.kernels.map(k => [k.type, bytes(k.bytes) + " by " + k.plugin]);
  rows.push(["attention", about.attention_layers + " layers"]);
  rows.push(["steps with prompts", number.format(now.prompt_steps_total)]);
  rows.push(["steps of generated tokens", number.format(now.steps_total - now.prompt_steps_total)]);
  describe($("kernels"), rows);
}

function onLive(name, data) {
  const e = JSON.parse(data);
  if (name === "about") { about = e; onAbout(); }
  if (name === "sample") onSample(e);
}

/* One stream, until it ends. */
async function watch() {
  if (refused || forbidden || $("works").hidden || document.hidden) return;
  watching = new AbortController();
  try {
    const response = await ask("/worker/live", { signal: watching.signal });
    forbidden = response.status === 403;
    if (response.ok) notice("");
    else if (response.status !== 401) notice((await response.json()).message);
    if (response.ok) await readEvents(response, onLive, redraw);
  } catch (e) {
    if (!watching.signal.aborted) throw e;
  } finally {
    watching = null;
  }
}

function unwatch() {
  if (watching) watching.abort();
}

/* ---- jobs ---- */

const ENDED_SHOWN = 8;
const LIVE = ["queued", "prefill", "decode", "yielded", "preempted"];
const jobRows = new Map(); // job_id -> row: rows stay, so that the focus does

function jobRow(id) {
  const cells = [0, 1, 2, 3, 4].map(i => make("td", { className: i > 1 ? "n" : "" }));
  const cancel = button("Cancel", () => post("/cancel", { job_id: id }).then(showJobs).catch(() => {}));
  cancel.setAttribute("aria-label", "Cancel job " + id);
  cells[0].textContent = id;
  return Object.assign(make("tr", {}, ...cells, make("td", { className: "n" }, cancel)), { parts: cells, cancel });
}

async function showJobs() {
  if (refused || $("works").hidden) return;
  const response = await ask("/worker/jobs");
  if (!response.ok) return;
  const { jobs } = await response.json();
  const shown = [...jobs.filter(j => !j.end), ...jobs.filter(j => j.end).slice(0, ENDED_SHOWN)];
  for (const [id, row] of jobRows) if (!shown.some(j => j.job_id === id)) { row.remove(); jobRows.delete(id); }
  shown.forEach((j, i) => {
    const row = jobRows.get(j.job_id) || jobRow(j.job_id);
    jobRows.set(j.job_id, row);
    const done = j.prompt_tokens_done, of = j.tokens_in;
    const texts = [j.state + (j.end ? ": " + j.end : ""), done !== undefined && done < of ? done + "/" + of : of,
      j.tokens_out, duration(j.seconds)];
    texts.forEach((text, k) => { row.parts[k + 1].textContent = text; });
    row.cancel.hidden = !LIVE.includes(j.state);
    if ($("jobs").children[i] !== row) $("jobs").insertBefore(row, $("jobs").children[i] || null);
  });
  $("no-jobs").hidden = shown.length > 0;
}

/* ---- what this worker is ---- */

function showFacts(h) {
  const weights = h.tensor_types && Object.values(h.tensor_types).reduce((a, b) => a + b, 0);
  const memory = h.vram_bytes_used && bytes(h.vram_bytes_used) + " of " + bytes((h.device_memory || {}).total || 0);
  describe($("facts"), [["model", h.model], ["architecture", h.capabilities && h.capabilities.architecture],
    ["plugin", h.plugin], ["quantization", h.quant_kind], ["device", h.device_text], ["device memory", memory],
    ["weights", weights && bytes(weights)], ["context", h.context && number.format(h.context) +
      (h.context_length > h.context ? " of " + number.format(h.context_length) : "")],
    ["tokenizer", h.tokenizer_kind && h.tokenizer_kind + ", " + number.format(h.vocab_size)],
    ["chat template", h.chat], ["digest", h.digest && h.digest.slice(0, 16) + "…", h.digest],
    ["sealed", h.digest && (h.sealed ? "yes" : "not yet")], ["fingerprint", h.fingerprint], ["worker", h.worker_id],
    ["version", h.version], ["up", duration(h.uptime_seconds)]]);
}

let capable = false;
async function showCapabilities() {
  if (capable || refused || $("works").hidden) return;
  const response = await ask("/capabilities");
  if (!response.ok) return;
  const w = (await response.json()).worker;
  capable = true;
  describe($("capabilities"), [["architectures", w.supports_architecture.join(" ")],
    ["types", w.supports_quant.join(" ")], ["positions", w.supports_positional.join(" ")],
    ["attention", w.supports_attention.join(" ")], ["devices", w.devices.join(" ")]]);
}
