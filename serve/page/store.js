/* store.js: conversations, in the browser's own storage and nowhere else: each under a name of its own, so that two
 * tabs do not overwrite each other's. Where storage is not allowed or full, a conversation lives as long as its page.
 *
 * A conversation is { id, title, named, at, settings, messages }; a message { role, content } of a user, of an answer
 * (also reasoning, calls, figures, failure), or of a tool (tool_call_id). */

const PREFIX = "worker.conversation.";
let conversations = [], current = null;

function readAll() {
  const out = [];
  try {
    for (const name of Object.keys(localStorage).filter(n => n.startsWith(PREFIX))) {
      try { out.push(JSON.parse(localStorage.getItem(name))); } catch { /* another program's */ }
    }
  } catch { /* not allowed */ }
  return out.filter(c => c && c.id && c.settings && Array.isArray(c.messages)).sort((a, b) => b.at - a.at);
}

function save(conversation = current) {
  if (!conversations.includes(conversation)) return; // deleted, while its answer was under way
  conversation.at = Date.now();
  try {
    localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
  } catch {
    say("this browser keeps no more: the conversation is gone with the page", true);
  }
  listConversations();
}

function begin(settings) {
  const id = Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
  const one = { id, title: "New conversation", named: false, at: Date.now(), settings: { ...settings }, messages: [] };
  conversations = [one, ...conversations.filter(c => c.messages.length)];
  return one;
}

function remove(conversation) {
  conversations = conversations.filter(c => c !== conversation);
  try { localStorage.removeItem(PREFIX + conversation.id); } catch { /* it was never there */ }
}

/* A conversation is called by what was asked first, until somebody gives it a name. */
function rename(title, named) {
  current.title = title.trim().slice(0, 120) || "New conversation";
  current.named = named;
  if (document.activeElement !== $("title")) $("title").value = current.title;
  document.title = current.title + " · worker";
}

function listConversations() {
  conversations.sort((a, b) => b.at - a.at);
  const focus = document.activeElement && document.activeElement.dataset.id;
  $("conversations").replaceChildren(...conversations.map(c => {
    const open = button(c.title, () => openConversation(c), "");
    open.dataset.id = c.id;
    open.title = c.title;
    if (c === current) open.setAttribute("aria-current", "true");
    return make("li", {}, open);
  }));
  const again = focus && [...$("conversations").querySelectorAll("button")].find(b => b.dataset.id === focus);
  if (again) again.focus();
}

function exportConversation() {
  const { title, settings, messages } = current;
  const text = JSON.stringify({ title, model: $("model").textContent, settings, messages }, null, 2) + "\n";
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const name = title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "conversation";
  make("a", { href: url, download: name + ".json" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
