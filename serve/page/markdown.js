/* markdown.js: what models write, as elements. Every text goes through textContent, so nothing of it becomes markup
 * but what is made here; links are of http and https alone. Depths are bounded, and each text is read once. */

const DEEPEST = 6;

/* Where a run of the marker ends the one at `from`, or -1; `none` remembers markers that do not come again. */
function closing(text, marker, from, none) {
  if (none.has(marker)) return -1;
  const at = text.indexOf(marker, from);
  if (at < 0) none.add(marker);
  return at;
}

function link(label, url, depth) {
  if (!/^https?:\/\//i.test(url)) return document.createTextNode(label + " (" + url + ")");
  const a = make("a", { href: url, target: "_blank", rel: "noreferrer noopener" });
  a.append(...inline(label, depth + 1));
  return a;
}

/* [node, index behind it] of the marked text at i; null: there is none. */
function marked(text, i, depth, none) {
  const c = text[i];
  if (c === "`") {
    let run = 1;
    while (text[i + run] === "`") run++;
    const end = closing(text, "`".repeat(run), i + run, none);
    return end < 0 ? null : [make("code", { textContent: text.slice(i + run, end) }), end + run];
  }
  if (c === "[") {
    const middle = closing(text, "](", i, none), end = middle < 0 ? -1 : closing(text, ")", middle, none);
    return end < 0 ? null : [link(text.slice(i + 1, middle), text.slice(middle + 2, end), depth), end + 1];
  }
  const marker = text[i + 1] === c ? c + c : c, n = marker.length;
  if (/\s|^$/.test(text[i + n] || "") || (c === "_" && /\w/.test(text[i - 1] || ""))) return null;
  const end = closing(text, marker, i + n, none);
  if (end <= i + n) return null;
  return [make(n === 2 ? "strong" : "em", {}, ...inline(text.slice(i + n, end), depth + 1)), end + n];
}

function inline(text, depth = 0) {
  const out = [], none = new Set(), special = /[`[*_\\]/g;
  let from = 0;
  if (depth > DEEPEST) return [text];
  for (let found; (found = special.exec(text));) {
    const i = found.index;
    const escape = text[i] === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] || "");
    const hit = escape ? [text[i + 1], i + 2] : text[i] === "\\" ? null : marked(text, i, depth, none);
    if (!hit) continue;
    out.push(text.slice(from, i), hit[0]);
    special.lastIndex = from = hit[1];
  }
  out.push(text.slice(from));
  return out;
}

function codeBlock(language, lines) {
  const text = lines.join("\n");
  const row = make("div", { className: "row" }, make("span", { className: "label", textContent: language || "text" }),
    make("span", { className: "grow" }), button("Copy", e => copy(e.target, text)));
  const pre = make("pre", { tabIndex: 0, attr: { role: "group", "aria-label": "code" } });
  pre.append(make("code", { textContent: text }));
  return make("div", { className: "block" }, row, pre);
}

function tableOf(lines) {
  const cells = line => line.trim().replace(/^\||\|$/g, "").split("|").map(cell => cell.trim());
  const row = (line, tag) => make("tr", {}, ...cells(line).map(cell => make(tag, {}, ...inline(cell))));
  return make("table", {}, make("thead", {}, row(lines[0], "th")),
    make("tbody", {}, ...lines.slice(2).map(line => row(line, "td"))));
}

/* Items of a list whose first line is lines[at]; what is indented below an item belongs to it. */
function listOf(lines, depth) {
  const ordered = /^\s*\d/.test(lines[0]), items = [];
  for (const line of lines) {
    const item = line.match(/^(?:[-*+]|\d{1,9}[.)])\s+(.*)/);
    if (item) items.push([item[1]]);
    else items[items.length - 1].push(line.replace(/^ {1,4}|^\t/, ""));
  }
  const list = make(ordered ? "ol" : "ul", {}, ...items.map(item => make("li", {}, ...tight(item, depth))));
  if (ordered) list.start = Number(lines[0].match(/\d+/)[0]);
  return list;
}

/* A paragraph that is all of an item needs no space around it. */
function tight(lines, depth) {
  const nodes = markdown(lines.join("\n"), depth + 1);
  if (nodes[0] && nodes[0].tagName === "P") nodes.splice(0, 1, ...nodes[0].childNodes);
  return nodes;
}

const ITEM = /^(?:[-*+]|\d{1,9}[.)])\s+/;

/* [element, lines that it takes] of the block that begins at lines[i]. */
function block(lines, i, depth) {
  const rest = test => { let n = i; while (n < lines.length && test(lines[n], n)) n++; return n - i; };
  const fence = lines[i].match(/^ {0,3}(```+|~~~+)\s*([^`\s]*)/);
  if (fence) {
    const n = rest((line, at) => at === i || !line.trim().startsWith(fence[1]));
    return [codeBlock(fence[2], lines.slice(i + 1, i + n)), n + 1];
  }
  const heading = lines[i].match(/^(#{1,6})\s+(.*?)\s*#*$/);
  if (heading) return [make("h" + Math.min(6, 3 + heading[1].length), {}, ...inline(heading[2])), 1];
  if (/^ {0,3}([-*_])( *\1){2,}\s*$/.test(lines[i])) return [make("hr"), 1];
  if (lines[i].startsWith(">")) {
    const n = rest(line => line.startsWith(">"));
    const inner = lines.slice(i, i + n).map(line => line.replace(/^> ?/, "")).join("\n");
    return [make("blockquote", {}, ...markdown(inner, depth + 1)), n];
  }
  if (lines[i].includes("|") && /^[\s|:-]*-[\s|:-]*$/.test(lines[i + 1] || "") && lines[i + 1].includes("|")) {
    const n = rest(line => line.includes("|"));
    return [tableOf(lines.slice(i, i + n)), n];
  }
  if (ITEM.test(lines[i])) {
    const inside = line => /^\s+\S/.test(line || "");
    const n = rest((line, at) => ITEM.test(line) || inside(line) || (!line && inside(lines[at + 1])));
    return [listOf(lines.slice(i, i + n), depth), n];
  }
  const n = Math.max(1, rest((line, at) =>
    line.trim() && (at === i || !/^(#{1,6}\s|>| {0,3}(```|~~~))/.test(line) && !ITEM.test(line))));
  return [make("p", {}, ...inline(lines.slice(i, i + n).join("\n"))), n];
}

function markdown(text, depth = 0) {
  const out = [], lines = text.split("\n");
  if (depth > DEEPEST) return [make("p", { textContent: text })];
  for (let i = 0; i < lines.length;) {
    if (!lines[i].trim()) { i++; continue; }
    const [element, n] = block(lines, i, depth);
    out.push(element);
    i += n;
  }
  return out;
}
