/* messages.js: messages as they are shown: text, folded thinking, calls with a field for their results, figures, and
 * token by token with probabilities. */

const tokensOf = new WeakMap(); // message -> [{ text, p, top, id, gap }], of answers of this page

/* ---- token by token ---- */

function tokenSpan(token) {
  const span = make("span", { textContent: token.text });
  span.style.setProperty("--doubt", token.p === undefined ? 0 : 1 - token.p);
  return span;
}

const shown = text => JSON.stringify(text);

function tipOf(token, i) {
  const id = token.id === undefined ? "" : "  id " + token.id;
  const lines = ["#" + i + id + "  +" + token.gap.toFixed(1) + " ms"];
  if (token.p === undefined) lines.push(shown(token.text));
  else lines.push(percent(token.p).padStart(6) + "  " + shown(token.text));
  for (const other of token.top || []) {
    if (other.text !== token.text) lines.push(percent(other.p).padStart(6) + "  " + shown(other.text));
  }
  return lines.join("\n");
}

function showTip(token, i, x, y) {
  const tip = $("tip");
  tip.textContent = tipOf(token, i);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(8, Math.min(x - box.width / 2, innerWidth - box.width - 8)) + "px";
  tip.style.top = (y - box.height - 12 > 8 ? y - box.height - 12 : y + 22) + "px";
}

const hideTip = () => { $("tip").hidden = true; };

/* The tokens of an answer; with the pointer, or with the arrow keys, one of them tells its probability. */
function tokenView(tokens) {
  const attr = { role: "group", "aria-label": "Tokens of the answer; with the arrow keys, one by one" };
  const view = make("div", { className: "text tokens", tabIndex: 0, attr });
  let at = -1;
  const step = to => {
    const spans = view.children;
    if (at >= 0 && spans[at]) spans[at].classList.remove("at");
    at = Math.max(0, Math.min(to, spans.length - 1));
    if (!spans[at]) return;
    spans[at].classList.add("at");
    spans[at].scrollIntoView({ block: "nearest" });
    const box = spans[at].getBoundingClientRect();
    showTip(tokens[at], at, box.left + box.width / 2, box.top);
  };
  view.onmousemove = e => {
    const i = [...view.children].indexOf(e.target);
    if (i < 0) hideTip();
    else showTip(tokens[i], i, e.clientX, e.clientY);
  };
  view.onmouseleave = hideTip;
  view.onblur = () => { hideTip(); if (view.children[at]) view.children[at].classList.remove("at"); };
  view.onkeydown = e => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tokens.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    step(to);
  };
  return view;
}

/* ---- parts of an answer ---- */

function figures(message) {
  const f = message.figures || {};
  const rows = [["tokens", f.out], ["prompt", f.in], ["cached", f.cached || undefined],
    ["first token", f.first === undefined ? undefined : duration(f.first)],
    ["tokens/s", f.rate ? number.format(f.rate) : undefined], ["finish", f.finish], ["seed", f.seed]];
  return rows.filter(row => row[1] !== undefined && row[1] !== null)
    .map(([name, value]) => make("span", {}, name + " ", make("b", { textContent: value })));
}

function callView(call, result) {
  const view = make("div", { className: "call" },
    make("div", { className: "label", textContent: "calls" }),
    make("code", { textContent: call.name + "(" + call.arguments + ")" }));
  if (result) view.append(make("div", { className: "label", textContent: "result" }),
    make("code", { textContent: result.content }));
  return view;
}

/* Fields for the results of calls that have none; send(results) gets a text for each. */
function resultForm(calls, send) {
  const fields = calls.map(call => make("textarea", { rows: 1, required: true, className: "code" }));
  const form = make("form", { className: "results", attr: { "aria-label": "Results of the calls" } },
    ...calls.map((call, i) => make("label", { className: "field" }, "result of " + call.name, fields[i])),
    make("div", { className: "row end" }, make("button", { className: "main", textContent: "Send results" })));
  form.onsubmit = e => {
    e.preventDefault();
    send(calls.map((call, i) => ({ role: "tool", content: fields[i].value, tool_call_id: call.id })));
  };
  return form;
}

function thinkingView(text, open) {
  return make("details", { open }, make("summary", { textContent: "Thinking" }), make("div", { textContent: text }));
}

const WHO = { user: "You", assistant: "Model" };

function answerText(message) {
  const tokens = $("show").checked && tokensOf.get(message);
  if (!tokens) return make("div", { className: "text" }, ...markdown(message.content));
  const view = tokenView(tokens);
  view.append(...tokens.map(tokenSpan));
  return view;
}

/* A message as an element; answers get the results of their calls from those behind them. */
function messageView(message, results) {
  const view = make("article", { className: "said " + message.role }, make("h3", { textContent: WHO[message.role] }));
  if (message.role !== "assistant") {
    view.append(make("div", { className: "text", textContent: message.content }));
    return view;
  }
  if (message.reasoning) view.append(thinkingView(message.reasoning, false));
  view.append(answerText(message));
  for (const call of message.calls || []) view.append(callView(call, results.get(call.id)));
  if (message.failure) view.append(make("p", { className: "error", textContent: message.failure }));
  const foot = make("div", { className: "foot" }, ...figures(message));
  if (message.content) foot.append(button("Copy", e => copy(e.target, message.content)));
  view.append(foot);
  return view;
}
