/* main.js: tabs, controls, and what is asked for again and again. */

const TABS = ["talk", "works"];

function showTab(name, focus) {
  for (const one of TABS) {
    const on = one === name, tab = $("tab-" + one);
    tab.setAttribute("aria-selected", on);
    tab.tabIndex = on ? 0 : -1;
    $(one).hidden = !on;
    if (on && focus) tab.focus();
  }
  if (name === "works") { redraw(); showJobs().catch(() => {}); showCapabilities().catch(() => {}); }
  else unwatch();
}

let model = null; // whose abilities are known
async function look() {
  const h = await (await ask("/health")).json();
  if (refused || !h.state) return;
  const pill = $("state"), ready = h.state === "ready" && h.status === "healthy";
  if (ready && !h.model) await ask("/v1/models"); // of the model it is not told who has no key: then one is wanted
  if (refused) return;
  pill.textContent = ready ? "ready" : h.reason ? h.reason.replace(/_/g, " ") : h.state;
  pill.className = "pill " + (h.status === "healthy" ? "good" : "bad");
  pill.title = h.detail || "";
  $("model").textContent = h.model || "";
  showFacts(h);
  $("chat").disabled = h.model !== undefined && !h.chat;
  if (!ready || !h.model || model === h.fingerprint) return;
  model = h.fingerprint;
  $("top_k").max = h.vocab_size;
  $("chat").checked = !!h.chat;
}

function addExamples() {
  for (const text of ["Write a haiku about GPU computing", "What is a KV cache?", "How do I use my own model?"]) {
    $("chips").append(button(text, () => { $("prompt").value = text; $("prompt").focus(); }));
  }
}

function addControls() {
  $("form").addEventListener("submit", e => { e.preventDefault(); send(); });
  $("halt").addEventListener("click", halt);
  $("entry").addEventListener("submit", e => { e.preventDefault(); useKey(); look().catch(() => {}); });
  $("entry").hidden = !key;
  $("key").value = key;
  $("new").addEventListener("click", () => { openConversation(begin(readSettings())); $("prompt").focus(); });
  $("title").addEventListener("change", e => { rename(e.target.value, true); save(); e.target.value = current.title; });
  $("export").addEventListener("click", exportConversation);
  $("delete").addEventListener("click", deleteConversation);
  $("delete").addEventListener("blur", () => sure(false));
  $("effort").addEventListener("focus", () => findEfforts().catch(() => {}), { once: true });
  $("show").addEventListener("change", () => { if (!job) showLog(); });
  $("curl").addEventListener("click", e => copy(e.target, curl()));
  for (const name of ["tools", "schema"]) $(name).addEventListener("input", () => checkJson(name));
  for (const name of FIELDS) $(name).addEventListener("change", () => {
    current.settings = readSettings();
    if (current.messages.length) save();
  });
}

function addTabs() {
  for (const name of TABS) $("tab-" + name).addEventListener("click", () => showTab(name));
  document.querySelector("[role=tablist]").addEventListener("keydown", e => {
    const at = TABS.findIndex(name => !$(name).hidden);
    const to = { ArrowRight: at + 1, ArrowLeft: at + 1, Home: 0, End: TABS.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    showTab(TABS[to % TABS.length], true);
  });
}

addEventListener("keydown", e => {
  if (e.key === "Escape") halt();
  if (e.key === "Enter" && (e.ctrlKey || e.metaKey) && e.target.closest("#talk")) { e.preventDefault(); send(); }
});
addEventListener("resize", redraw);
document.addEventListener("visibilitychange", () => { if (document.hidden) unwatch(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

addExamples();
addControls();
addTabs();
conversations = readAll();
openConversation(conversations[0] || begin(DEFAULTS));
every(5, look);
every(1, watch);
every(2, showJobs);
