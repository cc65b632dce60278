/* chat.js: the conversation that is open: sending, the answer as it comes, stop, calls and their results. */

let job = null; // the answer under way: { message, view, tokens, controller, began, first, last, rate }

function say(text, bad = false) {
  $("stats").textContent = text;
  $("stats").classList.toggle("error", bad);
}

/* ---- the log ---- */

const atEnd = () => $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 40;
const toEnd = () => { $("log").scrollTop = $("log").scrollHeight; };

function openCalls() {
  const results = new Set(current.messages.map(m => m.tool_call_id));
  const last = current.messages.filter(m => m.role === "assistant").pop();
  const after = last ? current.messages.slice(current.messages.indexOf(last) + 1) : [];
  return last && last.calls && after.every(m => m.role === "tool") ? last.calls.filter(c => !results.has(c.id)) : [];
}

function showLog() {
  const results = new Map(current.messages.filter(m => m.tool_call_id).map(m => [m.tool_call_id, m]));
  const views = current.messages.filter(m => m.role !== "tool").map(m => messageView(m, results));
  const waiting = job ? [] : openCalls();
  const last = current.messages[current.messages.length - 1];
  if (waiting.length) views.push(resultForm(waiting, sendResults));
  else if (!job && last && last.role === "assistant")
    views[views.length - 1].querySelector(".foot").append(button("Again", again));
  $("log").replaceChildren(...views);
  $("chips").hidden = current.messages.length > 0;
  toEnd();
}

function openConversation(conversation) {
  if (job) halt();
  if (current) current.settings = readSettings();
  current = conversation;
  showSettings(current.settings);
  $("title").value = current.title;
  rename(current.title, current.named);
  sure(false);
  say("");
  listConversations();
  showLog();
}

/* ---- the answer as it comes ---- */

function busy(on) {
  $("go").disabled = on;
  $("halt").disabled = !on;
  $("log").setAttribute("aria-busy", on);
}

function tick() {
  const now = performance.now();
  const gap = now - (job.last || job.began);
  if (!job.first) job.first = now;
  job.last = now;
  job.ticks++;
  return gap;
}

function addProbabilities(logprobs) {
  for (const one of (logprobs && logprobs.content) || []) {
    const top = (one.top_logprobs || []).map(t => ({ text: t.token, p: Math.exp(t.logprob) }));
    job.tokens.push({ text: one.token, p: Math.exp(one.logprob), top, gap: job.gap || 0 });
    job.gap = 0;
  }
}

/* Calls come in parts: the first has id and name, the others more of the arguments. */
function addCalls(parts) {
  const calls = job.message.calls || (job.message.calls = []);
  for (const part of parts) {
    const call = calls[part.index] || (calls[part.index] = { id: "", name: "", arguments: "" });
    if (part.id) call.id = part.id;
    if (part.function.name) call.name = part.function.name;
    call.arguments += part.function.arguments || "";
  }
}

/* A chunk of /v1/chat/completions. */
function onChunk(name, data) {
  if (data === "[DONE]") { job.ended = true; return; }
  const chunk = JSON.parse(data), message = job.message, f = message.figures;
  if (chunk.error) { message.failure = chunk.error.message; job.ended = true; return; }
  if (chunk.usage) {
    Object.assign(f, { in: chunk.usage.prompt_tokens, out: chunk.usage.completion_tokens });
    f.cached = (chunk.usage.prompt_tokens_details || {}).cached_tokens;
  }
  const choice = chunk.choices[0];
  if (!choice) return;
  const delta = choice.delta;
  if (delta.content || delta.reasoning_content || delta.tool_calls || choice.logprobs) job.gap = tick();
  if (delta.reasoning_content) message.reasoning = (message.reasoning || "") + delta.reasoning_content;
  if (delta.content) message.content += delta.content;
  if (delta.tool_calls) addCalls(delta.tool_calls);
  addProbabilities(choice.logprobs);
  if (choice.finish_reason) f.finish = choice.finish_reason;
}

/* An event of /execute. */
function onEvent(name, data) {
  const e = JSON.parse(data.replace(/("seed":)(\d+)/, '$1"$2"')); // a seed has 64 bits, a number here 53
  const message = job.message, f = message.figures;
  if (name === "started") f.seed = e.seed;
  if (name === "token") {
    job.tokens.push({ text: e.t, id: e.id, gap: tick() });
    message.content += e.t;
  }
  if (name === "end") {
    Object.assign(f, { in: e.tokens_in, out: e.tokens_out, cached: e.tokens_cached, finish: e.finish_reason });
    if (e.tokens_out > 1 && e.decode_time_ms) f.rate = (e.tokens_out - 1) / e.decode_time_ms * 1000;
  }
  if (name === "error") message.failure = e.message;
  job.ended = job.ended || name === "end" || name === "error";
}

/* What has come, into the page: what was there stays as it is where it can, so that a long answer is not laid out
 * again for each token. */
function showAnswer() {
  const { message, view, tokens } = job, end = atEnd();
  if (message.reasoning) {
    if (!job.thinking) { job.thinking = thinkingView("", true); view.querySelector("h3").after(job.thinking); }
    job.thinking.lastChild.textContent = message.reasoning;
    if (message.content) job.thinking.open = false;
  }
  const text = view.querySelector(".text");
  if (text.classList.contains("tokens")) text.append(...tokens.slice(text.children.length).map(tokenSpan));
  else if (message.content !== job.shown) text.replaceChildren(...markdown(message.content));
  job.shown = message.content;
  if (message.calls && job.calls) job.calls.replaceChildren(...message.calls.map(call => callView(call)));
  if (end) toEnd();
}

function startView() {
  const { message, tokens } = job, withTokens = $("show").checked;
  job.calls = make("div");
  job.view = make("article", { className: "said assistant busy" }, make("h3", { textContent: WHO.assistant }),
    withTokens ? tokenView(tokens) : make("div", { className: "text" }), job.calls);
  tokensOf.set(message, tokens);
  $("log").append(job.view);
  toEnd();
}

/* What was measured here, where chunks are tokens; the worker's own figures, where it told them, stay. */
function endFigures() {
  const f = job.message.figures, s = (job.last - job.first) / 1000;
  if (job.first) f.first = (job.first - job.began) / 1000;
  if (!f.rate && job.ticks > 1 && s > 0) f.rate = (job.ticks - 1) / s;
  if (!job.tokens.length) tokensOf.delete(job.message);
}

async function request(path, body) {
  const options = { signal: job.controller.signal };
  const response = await post(path, body, options);
  if (response.ok) return response;
  const e = await response.json();
  throw new Error(e.error ? e.error.message : e.message);
}

async function answer() {
  const conversation = current, messages = current.messages.slice();
  const message = { role: "assistant", content: "", figures: {} };
  const chat = isChat(), prompt = messages[messages.length - 1].content;
  const body = chat ? chatBody(messages) : textBody(prompt);
  job = { message, tokens: [], controller: new AbortController(), began: performance.now(), first: 0, last: 0,
    ticks: 0 };
  current.messages.push(message);
  busy(true);
  say("");
  showLog();
  $("log").lastChild.remove(); // the empty answer: its view is the one that grows
  startView();
  try {
    const response = await request(chat ? "/v1/chat/completions" : "/execute", body);
    await readEvents(response, chat ? onChunk : onEvent, showAnswer);
    if (!job.ended) message.failure = "the connection was closed before the end";
  } catch (e) {
    message.failure = job.controller.signal.aborted ? "stopped" : e.message;
  }
  endFigures();
  job = null;
  busy(false);
  save(conversation);
  if (conversation !== current) return;
  showLog();
  say(message.failure || "");
}

/* ---- what people do ---- */

function send() {
  checkJson("tools");
  checkJson("schema");
  for (const details of document.querySelectorAll(".settings details"))
    if (details.querySelector(":invalid")) details.open = true;
  const fields = document.querySelectorAll(".settings input, .settings textarea");
  const text = $("prompt").value;
  if (job || !text.trim() || ![...fields].every(field => field.reportValidity())) return;
  $("prompt").value = "";
  current.settings = readSettings();
  current.messages.push({ role: "user", content: text });
  if (!current.named && current.messages.length === 1) rename(text.trim().split("\n")[0].slice(0, 60), false);
  save();
  answer();
}

function sendResults(results) {
  if (job) return;
  $("chat").checked = true; // a result is part of a chat alone
  current.messages.push(...results);
  save();
  answer();
}

/* The last answer once more, without the results of its calls. */
function again() {
  if (job) return;
  while (current.messages.pop().role !== "assistant");
  answer();
}

/* Leaving cancels: the worker ends the job of a request whose client has gone. */
function halt() {
  if (job) job.controller.abort();
}

/* Delete asks once more, on the button itself. */
function sure(on) {
  $("delete").classList.toggle("sure", on);
  $("delete").textContent = on ? "Delete for good" : "Delete";
}

function deleteConversation() {
  if (!$("delete").classList.contains("sure")) { sure(true); return; }
  halt();
  remove(current);
  current = null;
  openConversation(conversations[0] || begin(readSettings()));
  $("title").focus();
}
