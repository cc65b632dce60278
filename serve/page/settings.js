/* settings.js: the fields beside a conversation, and the request that they make. */

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens"];
const FIELDS = [...NUMBERS, "seed", "stop", "system", "effort", "tools", "tool_choice", "schema"];
const DEFAULTS = { temperature: "0.7", top_p: "1", top_k: "0", min_p: "0", repetition_penalty: "1", max_tokens: "256",
  seed: "", stop: "", system: "", effort: "", tools: "", tool_choice: "auto", schema: "" };

function readSettings() {
  return Object.fromEntries(FIELDS.map(name => [name, $(name).value]));
}

function showSettings(settings) {
  for (const name of FIELDS) $(name).value = settings[name] ?? DEFAULTS[name];
  for (const name of ["tools", "schema"]) {
    if ($(name).value) $("has-" + name).open = true;
    checkJson(name);
  }
}

/* What the field holds as JSON, undefined if it is empty; what is wrong with it is said beside it, and where the form
 * is sent. */
function checkJson(name) {
  const field = $(name);
  let value, wrong = "";
  try {
    if (field.value.trim()) value = JSON.parse(field.value);
    if (name === "tools" && value !== undefined) value = functionsOf(value);
  } catch (e) {
    wrong = e.message;
  }
  $(name + "-wrong").textContent = wrong;
  field.setCustomValidity(wrong);
  field.setAttribute("aria-invalid", wrong !== "");
  return wrong ? undefined : value;
}

/* A list of functions, each as OpenAI has it or without the object around it. */
function functionsOf(value) {
  const list = Array.isArray(value) ? value : [value];
  return list.map(one => {
    const f = one && one.function ? one.function : one;
    if (!f || typeof f.name !== "string") throw new Error("expected functions with a name");
    return one.function ? one : { type: "function", function: f };
  });
}

/* What /execute and /v1/chat/completions call the same. */
function sampling() {
  const out = {};
  for (const name of NUMBERS) if ($(name).value !== "") out[name] = Number($(name).value);
  if ($("seed").value) out.seed = $("seed").value; // as text: it has 64 bits, a number here 53
  const stops = $("stop").value.split("\n").filter(line => line);
  if (stops.length) out.stop = stops;
  const schema = checkJson("schema");
  if (schema !== undefined) out.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  return out;
}

/* A message as the interface takes it. */
function asked(message) {
  if (message.role !== "assistant") {
    const { role, content, tool_call_id } = message;
    return tool_call_id ? { role, content, tool_call_id } : { role, content };
  }
  const out = { role: "assistant", content: message.content || null };
  if (message.reasoning) out.reasoning_content = message.reasoning;
  if (message.calls) {
    out.tool_calls = message.calls.map(call =>
      ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
  }
  return out;
}

function chatBody(messages) {
  const system = $("system").value.trim() ? [{ role: "system", content: $("system").value }] : [];
  const said = messages.filter(m => m.role !== "assistant" || m.content || m.calls);
  const out = { messages: [...system, ...said.map(asked)], ...sampling(), stream: true };
  out.stream_options = { include_usage: true };
  if ($("effort").value) out.reasoning_effort = $("effort").value;
  const tools = checkJson("tools");
  if (tools && tools.length) Object.assign(out, { tools, tool_choice: $("tool_choice").value });
  if ($("show").checked) Object.assign(out, { logprobs: true, top_logprobs: 5 });
  return out;
}

/* The text as it is, without a template and without what was said before. */
function textBody(prompt) {
  const id = "page-" + Date.now().toString(36) + "-" + Math.random().toString(36).slice(2, 8);
  return { job_id: id, prompt, ...sampling() };
}

const isChat = () => $("chat").checked;

function curl() {
  const text = $("prompt").value || "Hello";
  const body = isChat() ? chatBody([...current.messages, { role: "user", content: text }])
    : { ...textBody(text), job_id: "job-1" };
  const path = isChat() ? "/v1/chat/completions" : "/execute";
  return "curl -N " + location.origin + path + " -H 'Content-Type: application/json'" +
    (key ? ' -H "Authorization: Bearer $KEY"' : "") + " -d '" + JSON.stringify(body).replace(/'/g, "'\\''") + "'";
}

/* Which levels of thinking the model's template can be told: each is tried without being computed. */
async function findEfforts() {
  for (const option of $("effort").options) {
    if (!option.value) continue;
    const body = { messages: [{ role: "user", content: "Hi" }], reasoning_effort: option.value };
    const response = await post("/v1/chat/completions/render", body);
    option.disabled = response.status === 400;
  }
}
