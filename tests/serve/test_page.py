"""The page in a headless Chromium, with the real worker: chats with history, stop, tools, schemas, probabilities,
thinking; markdown that is no markup; live figures, jobs and their cancel; keys; names, roles and order of all controls;
light, dark and narrow. Nothing is fetched from elsewhere and nothing breaks the page's own policy.
usage: test_page.py PROGRAM SOURCE [FOLDER]; FOLDER: the pictures of the documents are made there instead"""

import json
import math
import os
import re
import sys
import tempfile
import threading
import time

import browser
from gated import stored_key
from service import DEVICE, LONG, MOST, Job, Metrics, Worker, check, done, scratch, skip
from thinking import thinker

program = sys.argv[1]
if not browser.find():
    skip("no Chromium is installed (package chromium)")

IDLE = "!job && !document.getElementById('go').disabled"
STATE = "document.getElementById('state').textContent"
LAST = "current.messages[current.messages.length - 1]"
COUNT = {
    "name": "count_syllables",
    "description": "The number of syllables of a word.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
}
PET = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "kind": {"enum": ["cat", "dog"]}},
    "required": ["name", "kind"],
    "additionalProperties": False,
}


# ---- what a person does ---------------------------------------------------------------------------------------------


def address(w):
    return "http://127.0.0.1:%d/" % w.port


def opened(w, *size):
    b = browser.Browser(*size)
    b.open(address(w))
    b.wait(STATE + " === 'ready'")
    return b


def fill(b, **fields):
    for name, value in fields.items():
        b.run(
            "(e => { e.value = %s; e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change')); })"
            "(document.getElementById('%s'))" % (json.dumps(value), name)
        )


def click(b, selector):
    b.run("document.querySelector(%s).click()" % json.dumps(selector))


def send(b, text):
    """Types the message, sends it by keyboard and waits for the answer; the last message."""
    fill(b, prompt=text)
    b.run("document.getElementById('prompt').focus()")
    b.key("Enter", "Enter", 13, 2)
    b.wait(IDLE)
    return b.run(LAST)


def switch(b, name, on):
    if b.run("document.getElementById('%s').checked" % name) != on:
        click(b, "#" + name)


def new(b):
    click(b, "#new")


def at_rest(b, w, expected=()):
    """No complaints but those that are expected, and nobody else was asked."""
    complaints = [c for c in b.complaints() if not any(re.search(e, c) for e in expected)]
    check("no complaints", not complaints, complaints)
    check("nothing is asked of anybody else", b.hosts() <= {"127.0.0.1:%d" % w.port}, b.hosts())


# ---- the file -------------------------------------------------------------------------------------------------------


def policy(w):
    status, headers, data = w.ask("GET", "/")
    p = headers.get("content-security-policy", "")
    check(
        "policy",
        status == 200
        and "default-src 'none'" in p
        and "unsafe" not in p
        and "connect-src 'self'" in p
        and len(re.findall("'sha256-[A-Za-z0-9+/]{43}='", p)) == 2,
        p,
    )
    check("self-contained", not re.search(rb'(src|href)="(https?:)?//', data) and b"<script src" not in data)
    check("of all its parts", not re.search(rb"^@\w+\.(css|js)@", data, re.M), data[:200])
    check("no markup is made of text", not re.search(rb"innerHTML|outerHTML|insertAdjacent|document\.write", data))
    check("small", len(data) < 80000, len(data))


# ---- chat -----------------------------------------------------------------------------------------------------------


def history(b, w):
    """Two turns: the second answer is what the interface gives for the conversation as a whole."""
    new(b)
    fill(b, temperature="0", system="", max_tokens="64")
    first = send(b, "Write a haiku about rivers")
    second = send(b, 'now with the word "lantern"')
    said = [
        {"role": "user", "content": "Write a haiku about rivers"},
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": 'now with the word "lantern"'},
    ]
    expected = w.post("/v1/chat/completions", {"messages": said, "temperature": 0, "max_tokens": 64})[1]
    expected = expected["choices"][0]["message"]["content"]
    check("the answer to a conversation", second["content"] == expected != "", (second, expected))
    texts = b.run("[...document.querySelectorAll('.said.assistant .text')].map(e => e.innerText.trim())")
    check("is shown", texts == [first["content"], second["content"]], texts)
    foot = b.run("document.querySelector('.said:last-child .foot').textContent")
    check("with figures", "tokens %d" % second["figures"]["out"] in foot and "finish stop" in foot, foot)
    again = "[...document.querySelectorAll('.foot button')].pop()"
    check("it can be had again", b.run(again + ".textContent") == "Again")
    b.run(again + ".click()")
    b.wait(IDLE)
    check("... in its place", b.run("current.messages.length") == 4 and b.run(LAST)["content"] == expected)
    fill(b, system="Answer as ever.")
    third = send(b, "What is a KV cache?")
    body = dict(
        temperature=0,
        max_tokens=64,
        messages=[{"role": "system", "content": "Answer as ever."}]
        + said
        + [{"role": "assistant", "content": expected}, {"role": "user", "content": "What is a KV cache?"}],
    )
    with_system = w.post("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"]
    check("with a system prompt", third["content"] == with_system, (third, with_system))


def conversations(b, w):
    """They are kept, named, left and deleted; another one is not sent along."""
    names = "[...document.querySelectorAll('#conversations button')].map(e => e.textContent)"
    check("called by what was asked", b.run(names + "[0]") == "Write a haiku about rivers", b.run(names))
    fill(b, title="Rivers")
    new(b)
    send(b, "What is worker?")
    check("two of them", b.run(names) == ["What is worker?", "Rivers"], b.run(names))
    check("the one that is open", b.run("document.querySelector('[aria-current]').textContent") == "What is worker?")
    b.open(address(w) + "?again")
    b.wait(STATE + " === 'ready'")
    check("they are there after a reload", b.run(names) == ["What is worker?", "Rivers"], b.run(names))
    b.run("[...document.querySelectorAll('#conversations button')].find(e => e.textContent === 'Rivers').click()")
    check("with their messages", b.run("document.querySelectorAll('.said').length") == 6)
    check("and settings", b.run("document.getElementById('system').value") == "Answer as ever.")
    folder = scratch("worker-page-")
    b.call("Page.setDownloadBehavior", behavior="allow", downloadPath=folder)
    click(b, "#export")
    path = os.path.join(folder, "Rivers.json")
    w.until(lambda: os.path.exists(path))
    with open(path, encoding="utf-8") as f:
        text = json.load(f)
    check("exported", text["title"] == "Rivers" and len(text["messages"]) == 6 and text["model"] == "haiku", text)
    click(b, "#delete")
    check("deleted only when asked twice", b.run(names) == ["What is worker?", "Rivers"])
    click(b, "#delete")
    check("deleted", b.run(names) == ["What is worker?"], b.run(names))
    b.open(address(w))
    b.wait(STATE + " === 'ready'")
    check("for good", b.run(names) == ["What is worker?"], b.run(names))


def tools(b, w):
    """A call, its result typed in, and the answer that has it."""
    new(b)
    fill(b, system="", temperature="0", max_tokens="100", tools="[{")
    wrong = "document.getElementById('tools-wrong').textContent"
    check("what is no JSON is told", b.run(wrong) != "" and b.run("!document.getElementById('tools').checkValidity()"))
    fill(b, prompt="How many syllables does \"lantern\" have?")
    click(b, "#go")
    check("and not sent", b.run("!job && current.messages.length === 0"))
    fill(b, tools=json.dumps([COUNT]))
    check("what is, is not", b.run(wrong) == "", b.run(wrong))
    call = send(b, 'How many syllables does "lantern" have?')["calls"][0]
    check("a call", call["name"] == "count_syllables" and json.loads(call["arguments"]) == {"word": "lantern"}, call)
    check("is shown", "count_syllables(" in b.run("document.querySelector('.call code').textContent"))
    field = "document.querySelector('.results textarea')"
    check("its result is asked for", b.run(field + ".labels[0].textContent").startswith("result of count_syllables"))
    b.run(field + ".value = '2'")
    click(b, ".results button")
    b.wait(IDLE)
    answer = b.run(LAST)
    check("and the answer has it", "two" in answer["content"] and answer["figures"]["finish"] == "stop", answer)
    check("the result stands with its call", "2" in b.run("document.querySelector('.call').innerText").split("\n"))
    check("nothing is asked any more", b.run(field) is None)
    fill(b, tools="", tool_choice="auto")


def schema(b, w):
    new(b)
    fill(b, schema="nothing", tools="")
    check("a schema is JSON", b.run("document.getElementById('schema').getAttribute('aria-invalid')") == "true")
    fill(b, schema=json.dumps(PET), temperature="1", seed="1", max_tokens="100")
    pet = json.loads(send(b, "A pet as JSON")["content"])
    check("an answer of the schema", sorted(pet) == ["kind", "name"] and pet["kind"] in ("cat", "dog"), pet)
    fill(b, schema='{"type": "nonsense"}')
    failure = send(b, "And now?")["failure"]
    shown = b.run("document.querySelector('.said:last-child .error').textContent")
    check("what is refused is told", "type" in failure and failure == shown, (failure, shown))
    fill(b, schema="", seed="")


def point(b, selector, i):
    """The tip of the token that the pointer is on."""
    box = b.run(
        "(() => { const e = document.querySelectorAll('%s')[%d]; e.scrollIntoView();"
        " const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()"
        % (selector, i)
    )
    b.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    b.wait("!document.getElementById('tip').hidden")
    return b.run("document.getElementById('tip').textContent")


def probabilities(b, w):
    """Those of the interface, on the tokens of the answer."""
    new(b)
    switch(b, "show", True)
    fill(b, temperature="0", max_tokens="40")
    answer = send(b, "Write a haiku about snow")
    body = {"messages": [{"role": "user", "content": "Write a haiku about snow"}], "temperature": 0, "max_tokens": 40}
    expected = w.post("/v1/chat/completions", dict(body, logprobs=True, top_logprobs=5))[1]["choices"][0]["logprobs"]
    expected = expected["content"]
    texts = b.run("[...document.querySelectorAll('.tokens span')].map(e => e.textContent)")
    check("token by token", texts == [t["token"] for t in expected] and "".join(texts) == answer["content"], texts)
    p = math.exp(expected[1]["logprob"])
    tip = point(b, ".tokens span", 1)
    said = re.search(r"^ *<?([\d.]+) %%  %s$" % re.escape(json.dumps(expected[1]["token"])), tip, re.M)
    check("pointing shows the probability", said and abs(float(said.group(1)) - 100 * p) <= 0.5, (tip, p))
    others = [t["token"] for t in expected[1]["top_logprobs"] if t["token"] != expected[1]["token"]]
    check("and others", all(json.dumps(t, ensure_ascii=False) in tip for t in others), (tip, others))
    b.run("document.querySelector('.tokens').focus()")
    for _ in range(3):
        b.key("ArrowRight", "ArrowRight", 39)
    check("so do the arrow keys", b.run("document.getElementById('tip').textContent").startswith("#2 "))
    switch(b, "show", False)
    check("or the text", b.run("document.querySelectorAll('.tokens').length") == 0)


def text(b, w):
    """Without a template: ids as /execute gives them; and its stop by keyboard."""
    new(b)
    switch(b, "chat", False)
    switch(b, "show", True)
    fill(b, temperature="0", max_tokens="20")
    send(b, "Once upon a time")
    tokens = [e for n, e in w.execute(prompt="Once upon a time", temperature=0, max_tokens=20)[1] if n == "token"]
    seen = [e for e in tokens if e["t"].strip()][:3]  # what the pointer can be on
    told = [point(b, ".tokens span", e["i"]) for e in seen]
    check(
        "ids of tokens", all("#%d  id %d " % (e["i"], e["id"]) in t for e, t in zip(seen, told)) and seen, (told, seen)
    )
    fill(b, max_tokens=str(MOST), repetition_penalty="0.05", seed="18446744073709551615")
    for n, chat in ((1, False), (2, True)):
        switch(b, "chat", chat)
        fill(b, prompt="Once upon a time")
        click(b, "#go")
        b.wait("document.querySelectorAll('.said.busy .tokens span').length > 2")
        check("stop can be pressed", not b.run("document.getElementById('halt').disabled"))
        b.key("Escape", "Escape", 27)
        b.wait(IDLE)
        check("stopped, with what has come", b.run(LAST)["failure"] == "stopped" and b.run(LAST)["content"] != "")
        w.until(lambda: w.metrics()("worker_requests_total", outcome="cancelled") == n)
    seed = b.run("current.messages[3].figures.seed")
    check("seeds keep their digits", seed == "18446744073709551615", seed)
    fill(b, max_tokens="64", repetition_penalty="1", seed="")
    switch(b, "show", False)
    switch(b, "chat", True)


def errors(b, w):
    new(b)
    failure = send(b, "word " * 40000)["failure"]
    check("a prompt that is too long is told", "maximum context length" in failure, failure)
    b.run("document.getElementById('effort').focus()")
    b.wait("document.getElementById('effort').options[5].disabled")
    levels = b.run("[...document.getElementById('effort').options].filter(o => o.disabled).map(o => o.textContent)")
    check("a kind of thinking that there is not cannot be chosen", levels == ["low", "medium", "high"], levels)


HOSTILE = """# Title <img src=x onerror="document.title='taken'">

Some **bold _and italic_**, `co<b>de`, [good](https://example.org/a_b) and [bad](javascript:alert(1)).
<script>document.title = 'taken'</script> 2 * 3 * 4 snake_case_name \\*not this\\*

- one
- two
  1. inner

> said

| a | b |
|---|---|
| 1 | <i>2</i> |

```c
int main(void) { return "<b>" == 0; }
```
"""


def markdown(b, w):
    """Answers are elements, and nothing that they say becomes markup."""
    new(b)
    b.run(
        "current.messages.push({ role: 'user', content: '<b>x</b>' }, { role: 'assistant', content: %s }); save();"
        "showLog()" % json.dumps(HOSTILE)
    )
    q = lambda s: b.run("[...document.querySelectorAll('.said.assistant .text %s')].map(e => e.textContent)" % s)
    check("what is markdown", q("strong") == ["bold and italic"] and q("em") == ["and italic"], (q("strong"), q("em")))
    check("code", q("p code") == ["co<b>de"] and "<b>" in q("pre code")[0] and q(".block .label") == ["c"], q("code"))
    check("lists", q("ul > li")[0] == "one" and q("ol > li") == ["inner"], (q("li"),))
    check("tables", q("td") == ["1", "<i>2</i>"] and q("blockquote") == ["said"], (q("td"), q("blockquote")))
    links = b.run("[...document.querySelectorAll('.said a')].map(a => [a.href, a.rel])")
    check("links lead to the web alone", links == [["https://example.org/a_b", "noreferrer noopener"]], links)
    check("no markup", q("img, .text script, .text b, .text i") == [] and b.run("document.title") != "taken")
    check("as it was written", "snake_case_name *not this*" in " ".join(q("p")) and "2 * 3 * 4" in " ".join(q("p")))
    check("what people say is text", b.run("document.querySelector('.said.user .text').textContent") == "<b>x</b>")
    b.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    b.call("Page.bringToFront")
    click(b, ".block button")
    b.wait("document.querySelector('.block button').textContent === 'Copied'")
    copied = b.run("navigator.clipboard.readText()")
    check("code is copied", copied == 'int main(void) { return "<b>" == 0; }', copied)
    took = b.run(
        "(() => { const began = performance.now(); markdown('[*_`'.repeat(20000) + '\\n' + '> '.repeat(5000));"
        " return document.querySelectorAll('script').length; })()"
    )
    check("nothing hangs on what does not end", took == 1, took)


def thinks():
    """A model that thinks, small and random: it may think for ever, and is told not to."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "thinker.gguf")
        thinker(path)
        with Worker(program, "--model", path) as w:
            b = opened(w)
            fill(b, max_tokens="30", seed="1")
            answer = send(b, "Yes or no?")
            check("it thinks", answer.get("reasoning", "") != "", answer)
            folded = b.run("[...document.querySelectorAll('.said details')].map(d => [d.open, d.innerText.trim()])")
            check("which is shown folded", folded == [[False, "Thinking"]], folded)
            b.run("document.getElementById('effort').focus()")
            fill(b, effort="none")
            answer = send(b, "And now?")
            check("and can be turned off", not answer.get("reasoning") and answer.get("content"), answer)
            at_rest(b, w, ["status of 400"])
            b.close()


# ---- the worker -----------------------------------------------------------------------------------------------------

PIXELS = "[...document.querySelectorAll('#graphs canvas')].map(c => c.toDataURL())"


def live(b, w):
    """Graphs move, a job is cancelled, and what the worker is stands there."""
    click(b, "#tab-works")
    b.wait("document.getElementById('v-kv').textContent !== '–'")
    before = b.run(PIXELS)
    jobs = [Job(w, "graph-%d" % i) for i in range(2)]
    w.until(lambda: all(j.events for j in jobs))
    b.wait("document.getElementById('v-jobs').textContent === '2 / 0'")
    b.wait("Number(document.getElementById('v-rate').textContent.replace(/,/g, '')) > 0")
    b.wait("parseFloat(document.getElementById('v-kv').textContent.replace('<', '')) > 0")
    b.wait("document.getElementById('v-batch').textContent === '2 / 2'")
    b.wait("/p50 .*p99 /.test(document.getElementById('v-gap').textContent)")
    w.until(lambda: all(was != now for was, now in list(zip(before, b.run(PIXELS)))[:4]))  # the graphs move
    cancel = "document.querySelector('[aria-label=\"Cancel job graph-0\"]')"
    b.wait(cancel + " && !%s.hidden" % cancel)
    b.run(cancel + ".click()")
    over = jobs[0].over()
    check("a job is cancelled", over[-1][0] == "error" and over[-1][1]["code"] == "CANCELLED", over[-1])
    b.wait("[...document.querySelectorAll('#jobs tr')].some(r => /^graph-0cancelled/.test(r.textContent))")
    check("and cannot be cancelled again", b.run(cancel + ".hidden"))
    jobs[1].cancel()
    b.wait("document.getElementById('v-jobs').textContent === '0 / 0'")
    facts = b.run(
        "['facts', 'memory', 'kernels', 'plugins', 'capabilities'].map(i => document.getElementById(i).innerText)"
    )
    check("facts", all(f in facts[0] for f in ("llama", w.get("/health")[1]["fingerprint"], DEVICE)), facts[0])
    check("memory as planned", all(f in facts[1] for f in ("weights", "kv", "total", "MiB")), facts[1])
    check("kernels", "q4_K" in facts[2] and "by org.worker." in facts[2] and "8 layers" in facts[2], facts[2])
    check("plugins", "org.worker.llama" in facts[3], facts[3])
    check("capabilities", "qwen3" in facts[4] and "mxfp4" in facts[4], facts[4])
    check("nothing is wider than the window", b.run("document.documentElement.scrollWidth <= innerWidth"))
    click(b, "#tab-talk")
    b.wait("watching === null")
    check("who does not look holds no stream", b.run(STATE) == "ready", b.run(STATE))


# ---- people who use keyboards and screen readers ---------------------------------------------------------------------

CONTROLS = {"button", "textbox", "spinbutton", "searchbox", "checkbox", "switch", "combobox", "tab", "link"}
LANDMARKS = {"banner", "main", "navigation", "contentinfo", "tablist", "tabpanel", "log", "status"}


def tree(b):
    """[(role, name, focusable)] of the accessibility tree."""
    value = lambda n, k: n.get(k, {}).get("value", "")
    nodes = [n for n in b.call("Accessibility.getFullAXTree")["nodes"] if not n.get("ignored")]
    return [
        (value(n, "role"), value(n, "name"), any(p["name"] == "focusable" for p in n.get("properties", [])))
        for n in nodes
    ]


def accessible(b, expected):
    nodes = tree(b)
    unnamed = [n for n in nodes if n[0] in CONTROLS and not n[1].strip()]
    check("every control has a name", not unnamed, unnamed)
    roles = {r for r, _, _ in nodes}
    check("parts have their roles", expected <= roles, expected - roles)
    strange = [n for n in nodes if n[2] and n[0] in ("generic", "none", "") and not n[1]]
    check("nothing takes the focus without a role", not strange, strange)


def tab_order(b, first):
    """What Tab comes to, from the top, until it begins again."""
    b.run("document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)")
    b.run("document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')")
    seen = []
    for _ in range(120):
        b.key("Tab", "Tab", 9)
        seen.append(b.run("(e => e.id || e.textContent.slice(0, 30))(document.activeElement)"))
        if len(seen) > 1 and seen[-1] == seen[0]:
            break
    wanted = iter(seen)
    check("Tab comes to all of them, in order", all(name in wanted for name in first), seen)
    outline = b.run("document.getElementById('prompt').focus(); getComputedStyle(document.activeElement).outlineStyle")
    check("the focus is seen", outline == "solid", outline)


def keyboard(b):
    b.run("document.getElementById('tab-talk').focus()")
    b.key("ArrowRight", "ArrowRight", 39)
    on = "['talk', 'works'].map(t => document.getElementById('tab-' + t).getAttribute('aria-selected')).join()"
    check("arrow keys choose the tab", b.run(on) == "false,true" and b.run("!document.getElementById('works').hidden"))
    check("and the focus goes along", b.run("document.activeElement.id") == "tab-works")
    accessible(b, (LANDMARKS | {"table", "columnheader"}) - {"log", "navigation"})
    b.key("Home", "Home", 36)
    check("back", b.run(on) == "true,false")


def contrast(b):
    """WCAG's ratio of texts to what is behind them: 4.5 at least."""
    worst = b.run(
        """(() => {
        const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
        const light = name => {
          context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
          context.fillRect(0, 0, 1, 1);
          const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map(v => v / 255)
            .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
          return .2126 * r + .7152 * g + .0722 * b;
        };
        const ratio = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        const pairs = ['--ink', '--soft', '--bad'].flatMap(t => ['--bg', '--card', '--field'].map(g => [t, g]));
        return Math.min(...[...pairs, ['--accent-ink', '--accent'], ['--ink', '--accent-soft']]
          .map(([t, g]) => ratio(light(t), light(g))));
        })()"""
    )
    check("texts can be read", worst >= 4.5, worst)


# ---- keys -----------------------------------------------------------------------------------------------------------


def use(b, key):
    b.run("document.getElementById('key').value = %s" % json.dumps(key))
    click(b, "#entry button")


def keys(b, w, root, talker):
    """A worker that asks for keys: the page asks for one, sends it with everything and keeps it as long as its tab."""
    b.open(address(w))
    b.wait("!document.getElementById('entry').hidden")
    check("the page asks for a key", "API key" in b.run(STATE), b.run(STATE))
    check("nothing is wider for it", b.run("document.documentElement.scrollWidth <= innerWidth"))
    before = w.asked()
    b.wait("new Promise(done => setTimeout(() => done(true), 1500))")
    check("and does not go on without", w.asked() == before, (before, w.asked()))
    use(b, "wk_" + "0" * 36)
    b.wait(STATE + ".includes('another')")
    use(b, root)
    b.wait(STATE + " === 'ready'")
    click(b, "#tab-works")
    b.wait("document.getElementById('v-rate').textContent !== '–'")
    click(b, "#tab-talk")
    check("then text is generated", send(b, "Write a haiku about rain")["content"] != "")
    stored = b.run("[sessionStorage.getItem('key'), JSON.stringify({ ...localStorage }), document.cookie, curl()]")
    check("the key is in the tab's storage alone", stored[0] == root and not stored[2], stored)
    check("neither with what was said nor in what is copied", not any(root in s for s in stored[1:]), stored)
    check("but named there", "Bearer $KEY" in stored[3], stored[3])
    b.open(address(w) + "?again")
    b.wait(STATE + " === 'ready'")
    check("it is there after a reload", b.run("document.getElementById('facts').textContent") != "")
    use(b, talker)
    check("a key without metrics generates", send(b, "Write a haiku about wind")["content"] != "")
    click(b, "#tab-works")
    b.wait("document.getElementById('live-state').textContent.includes('scope')")
    check("and is told what it may not see", not b.run("document.getElementById('live-state').hidden"))
    b.wait("document.querySelectorAll('#jobs tr').length > 0")
    check("its own jobs it sees", b.run("document.querySelectorAll('#jobs tr').length") == 1)


class Counted(Worker):
    def asked(self):
        """Authentications that failed."""
        return self.metrics()("worker_gate_refused_total", reason="unauthorized")


def with_keys():
    with tempfile.TemporaryDirectory() as folder:
        policy_file = os.path.join(folder, "policy")
        root = stored_key(program, policy_file, "root", "scopes=admin,inference")
        talker = stored_key(program, policy_file, "talker", "scopes=inference")
        with Counted(program, "--policy-file", policy_file) as w:
            w.metrics = lambda: Metrics(w.ask("GET", "/metrics", headers={"x-api-key": root})[2].decode())
            b = browser.Browser(375, 860)
            keys(b, w, root, talker)
            at_rest(b, w, ["status of (401|403)"])  # they are what it is about
            b.close()


# ---- pictures -------------------------------------------------------------------------------------------------------


def picture_chat(w, dark, path):
    b = opened(w, 1240, 820, dark)
    fill(b, tools=json.dumps([COUNT]), temperature="0", seed="42")
    send(b, 'How many syllables does "lantern" have?')
    b.run("document.querySelector('.results textarea').value = '2'")
    click(b, ".results button")
    b.wait(IDLE)
    switch(b, "show", True)
    fill(b, tools="", temperature="0.7")
    b.run("document.getElementById('has-tools').open = false")
    send(b, 'Write a haiku about GPU computing that includes the word "forty-two"')
    b.run("document.querySelector('.tokens').focus({ focusVisible: false })")
    for _ in range(4):
        b.key("ArrowRight", "ArrowRight", 39)
    b.shot(path)
    b.close()


def picture_works(w, dark, path):
    """While clients come and go."""
    over = threading.Event()

    def client(i):
        while not over.wait(0.1 * i):
            name = "client-%d-%d" % (i, time.monotonic_ns() // 1000000)
            w.execute(prompt="Once upon a time %d" % i, max_tokens=450, repetition_penalty=0.05, job_id=name)

    b = opened(w, 1240, 820, dark)
    click(b, "#tab-works")
    clients = [threading.Thread(target=client, args=(i,)) for i in range(1, 8)]
    for c in clients:
        time.sleep(3)
        c.start()
    time.sleep(15)
    b.shot(path)
    over.set()
    for c in clients:
        c.join()
    b.close()


def pictures(folder):
    os.makedirs(folder, exist_ok=True)
    with Worker(program, "--max-sequences", "4") as w:
        for dark in (False, True):
            light = "dark" if dark else "light"
            picture_chat(w, dark, os.path.join(folder, "page-chat-%s.png" % light))
            picture_works(w, dark, os.path.join(folder, "page-worker-%s.png" % light))


# ---- all of it ------------------------------------------------------------------------------------------------------


def desktop(w):
    b = opened(w, 1240, 860)
    for part in (history, conversations, tools, schema, probabilities, text, errors, markdown, live):
        part(b, w)
    accessible(b, LANDMARKS)
    order = ["tab-talk", "new", "title", "export", "delete", "prompt", "chat", "show", "curl", "go", "temperature"]
    tab_order(b, order)
    keyboard(b)
    contrast(b)
    at_rest(b, w, ["status of 400"])  # what was refused
    b.close()


def phone(w):
    b = opened(w, 375, 860, True)
    check("nothing is wider than a phone", b.run("document.documentElement.scrollWidth <= innerWidth"))
    behind = b.run("getComputedStyle(document.body).backgroundColor")
    check("dark where that is wanted", behind == "rgb(16, 19, 20)", behind)
    contrast(b)
    click(b, "#tab-works")
    b.wait("document.getElementById('v-kv').textContent !== '–'")
    check("nor are figures", b.run("document.documentElement.scrollWidth <= innerWidth"))
    at_rest(b, w)
    b.close()


if len(sys.argv) > 3:
    pictures(sys.argv[3])
    done()
with_keys()
thinks()
with Worker(program, *LONG, "--max-tokens-in", "4000") as w:
    policy(w)
    desktop(w)
    phone(w)
    check("the worker ends", w.end() == 0, w.said())
done()
