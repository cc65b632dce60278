/* base.js: what the other parts share: elements, requests with the key, events of streams, numbers for people. */

const $ = id => document.getElementById(id);
const number = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/* An element with properties (text, className, ...), attributes (in `attr`) and children. Texts are never HTML. */
function make(tag, properties = {}, ...children) {
  const { attr = {}, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  for (const [name, value] of Object.entries(attr)) element.setAttribute(name, value);
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

const button = (text, act, className = "quiet") =>
  make("button", { type: "button", className, textContent: text, onclick: act });

/* ---- the key, where the worker asks for one: kept until the tab is closed, and sent to this worker alone ---- */

let key = "", refused = false; // refused: the worker wants a key, or another one
let forbidden = false;         // this key may not see live figures
try { key = sessionStorage.getItem("key") || ""; } catch { /* then it is kept in the page alone */ }

async function ask(path, options = {}) {
  const sent = key;
  const headers = { ...options.headers, ...(sent && !refused && { Authorization: "Bearer " + sent }) };
  const response = await fetch(path, { cache: "no-store", ...options, headers });
  if (response.status === 401 && sent === key) wantKey();
  return response;
}

function post(path, body, options = {}) {
  const headers = { "Content-Type": "application/json" };
  return ask(path, { method: "POST", headers, body: JSON.stringify(body), ...options });
}

function wantKey() {
  if (!refused || $("entry").hidden) { $("entry").hidden = false; $("key").focus(); }
  refused = true;
  $("state").textContent = key ? "another API key is needed" : "an API key is needed";
  $("state").className = "pill bad";
}

function useKey() {
  key = $("key").value.trim();
  refused = forbidden = false;
  try { if (key) sessionStorage.setItem("key", key); else sessionStorage.removeItem("key"); } catch { /* as above */ }
}

/* ---- events of a stream ---- */

/* Calls onEvent(name, data) for each event as it comes, data being its text; and show(), which may take a while, now
 * and then and at the end: keys and buttons have their turn in between, however fast events come. */
async function readEvents(response, onEvent, show) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "", timer = 0, next = 0;
  const draw = () => {
    const began = performance.now();
    timer = 0;
    show();
    next = began + Math.max(30, 4 * (performance.now() - began));
  };
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const blocks = (text + value).split("\n\n");
      text = blocks.pop();
      blocks.forEach(block => takeEvent(block, onEvent));
      if (!timer) timer = setTimeout(draw, Math.max(0, next - performance.now()));
    }
    show();
  } finally {
    clearTimeout(timer);
  }
}

function takeEvent(block, onEvent) {
  let name = "", data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data = line.slice(6);
  }
  if (data) onEvent(name, data);
}

/* ---- for people ---- */

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < 4; i++) n /= 1024;
  return (i ? n.toFixed(n < 10 ? 2 : 1) : n) + " " + units[i];
}

function duration(s) {
  if (s < 0.001) return (s * 1e6).toFixed(0) + " µs";
  if (s < 1) return (s * 1000).toFixed(s < 0.01 ? 1 : 0) + " ms";
  return s < 120 ? s.toFixed(s < 10 ? 1 : 0) + " s" : s < 7200 ? (s / 60).toFixed(0) + " min"
    : s < 172800 ? (s / 3600).toFixed(1) + " h" : (s / 86400).toFixed(1) + " d";
}

const percent = share =>
  share > 0 && share < 0.001 ? "<0.1 %" : (share * 100).toFixed(share && share < 0.1 ? 1 : 0) + " %";

/* Rows of a <dl>: [name, value, title]; those without a value are left out. */
function describe(list, rows) {
  list.replaceChildren(...rows.filter(row => row[1] || row[1] === 0).flatMap(([name, value, title]) =>
    [make("dt", { textContent: name }), make("dd", { textContent: value, title: title || "" })]));
}

function copy(at, text) {
  const said = at.textContent;
  navigator.clipboard.writeText(text)
    .then(() => { at.textContent = "Copied"; }, () => { at.textContent = "Not allowed here"; })
    .finally(() => setTimeout(() => { at.textContent = said; }, 1500));
}

async function every(seconds, what) {
  for (;;) {
    if (!document.hidden) {
      try {
        await what();
      } catch {
        $("state").textContent = "no connection";
        $("state").className = "pill bad";
      }
    }
    await new Promise(resolve => setTimeout(resolve, seconds * 1000));
  }
}
