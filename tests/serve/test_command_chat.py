#!/usr/bin/env python3
"""`worker chat`: by a model in the process and by a running worker; lines from a pipe, and a terminal with editing, dim
reasoning and Ctrl-C. usage: test_command_chat.py PROGRAM SOURCE"""

import json
import os
import signal
import subprocess
import sys
import time

from gated import Gated
from service import LONG, PATIENCE, Worker, check, done, scratch
from terminal import Terminal
from thinking import thinker

program = sys.argv[1]
folder = scratch("worker-chat-")
GREEDY = ("--temperature", "0")
RAIN = "Write a haiku about rain"
MINUTE = "Write a haiku about rivers that includes the current minute"
ROLES = ["user", "assistant", "tool", "assistant"]
TOOLS = [{"type": "function", "function": {"name": "current_minute", "description": "The minute of the clock."}}]


def path(name):
    return os.path.join(folder, name)


def chat(*words, lines=(), environment=None):
    """(exit status, standard output, standard error) of lines that come from a pipe."""
    r = subprocess.run(
        [program, "chat", *words],
        input="".join(line + "\n" for line in lines).encode(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        env=dict(os.environ, **(environment or {})),
    )
    return r.returncode, r.stdout.decode(), r.stderr.decode()


def saved(name):
    with open(path(name), encoding="utf-8") as f:
        return json.load(f)


def contents(name):
    return [m["content"] for m in saved(name)["messages"]]


# ---- lines from a pipe -------------------------------------------------------------------------------------


def conversation(name, *words):
    """What was said goes on; commands. The texts that were answered."""
    status, out, err = chat(*words, *GREEDY, lines=[RAIN, "Another one, please", "/save " + path("a.json")])
    said = contents("a.json")
    roles = [m["role"] for m in saved("a.json")["messages"]]
    good = (
        status == 0 and err == "" and roles == ["user", "assistant"] * 2 and said[0::2] == [RAIN, "Another one, please"]
    )
    check(name + "two messages", good and out == said[1] + "\n" + said[3] + "\n", (status, out, err))
    check(name + "a file is its owner's", os.stat(path("a.json")).st_mode & 0o777 == 0o600)
    status, out, _ = chat(
        *words, *GREEDY, lines=["/load " + path("a.json"), "And one about snow", "/save " + path("b.json")]
    )
    check(name + "/load goes on", contents("b.json")[:4] == said and out == contents("b.json")[5] + "\n", out)
    with open(path("list.json"), "w", encoding="utf-8") as f:
        json.dump(saved("a.json")["messages"], f)
    chat(*words, *GREEDY, lines=["/load " + path("list.json"), "And one about snow", "/save " + path("c.json")])
    check(name + "/load of a list alone", contents("c.json") == contents("b.json"))
    lines = [
        "/system Talk like a sailor",
        RAIN,
        "/clear",
        RAIN,
        "/system",
        "//help",
        "",
        "/save " + path("d.json"),
        "/quit",
        RAIN,
    ]
    status, out, err = chat(*words, *GREEDY, lines=lines)
    m = [(m["role"], m["content"]) for m in saved("d.json")["messages"]]
    good = [w for w in m if w[0] != "assistant"] == [("user", RAIN), ("user", "/help")] and len(m) == 4
    check(name + "/system, /clear, //, /quit", status == 0 and good, (m, err))
    chat(*words, *GREEDY, lines=["/system Be brief", RAIN, "/clear", "/save " + path("e.json")])
    check(name + "/clear keeps the system prompt", contents("e.json") == ["Be brief"])
    status, out, _ = chat(*words, lines=["/help"])
    check(
        name + "/help",
        status == 0 and all("/" + c in out for c in ("system", "tools", "save", "load", "clear", "quit")),
    )
    check(name + "/help fits into 80 columns", all(len(line) <= 80 for line in out.splitlines()), out)
    for word in ("/exit", "/bye"):
        status, out, err = chat(*words, lines=[word, RAIN])
        check(name + word, status == 0 and out == "" and err == "", (out, err))
    seeded = [chat(*words, "--seed", "5", lines=[RAIN])[1] for _ in range(2)]
    check(name + "a seed", seeded[0] == seeded[1] and seeded[0].strip(), seeded)
    return said


def turns():
    """A turn computes what was added: all whole pages of the prompt before are found, also when an answer is drawn, and
    the ids are those of a conversation that is computed at once."""
    first = "Write a haiku about rain on the old garden wall, " * 8
    lines = [first, "Another one, please", "And one about snow", "/save " + path("turns.json"), "/clear", first]
    for words in (GREEDY, ("--seed", "3", "--temperature", "0.8")):
        status, out, err = chat("--log", "json", *words, lines=lines)
        events = [json.loads(line) for line in err.splitlines()]
        told = [e for e in events if e["event"] == "chat_answer"]
        read, found = [e["tokens_in"] for e in told], [e["tokens_cached"] for e in told]
        check("four answers", status == 0 and len(told) == 4 and read[0] > 64, (status, told, err))
        check("a turn computes what is new", found[:3] == [0, read[0] // 32 * 32, read[1] // 32 * 32], (read, found))
        check("... also one that was said before", found[3] == (read[0] - 1) // 32 * 32, (read, found))
        said = saved("turns.json")["messages"]
        with open(path("begun.json"), "w", encoding="utf-8") as f:
            json.dump(said[:4], f)
        again = ["/load " + path("begun.json"), "And one about snow", "/save " + path("again.json")]
        chat(*words, lines=again)
        check("the answer is that of one prompt", saved("again.json")["messages"] == said, said)


def functions(name, *words):
    with open(path("tools.json"), "w", encoding="utf-8") as f:
        json.dump(TOOLS, f)
    lines = ["/tools " + path("tools.json"), MINUTE, "forty-two", "/save " + path("f.json")]
    status, out, err = chat(*words, *GREEDY, lines=lines)
    m = saved("f.json")["messages"]
    call = m[1].get("tool_calls", [{}])[0]
    good = call.get("function") == {"name": "current_minute", "arguments": "{}"} and m[1]["content"] is None
    check(name + "a call", status == 0 and good and saved("f.json")["tools"] == TOOLS, (m, err))
    check(name + "it is shown", out == "[calls current_minute({})]\n" + m[3]["content"] + "\n", out)
    good = (
        m[2] == {"role": "tool", "tool_call_id": call["id"], "content": "forty-two"} and "forty-two" in m[3]["content"]
    )
    check(name + "its result is what is typed next", good, m)
    status, out, _ = chat(*words, *GREEDY, lines=[*lines[:2], "/clear", "/tools", RAIN, "/save " + path("g.json")])
    check(name + "/clear forgets a call", [m["role"] for m in saved("g.json")["messages"]] == ["user", "assistant"])
    check(name + "/tools without a file", "tools" not in saved("g.json"))
    lines[2:3] = ["a " * 2000, "/system Be brief", "forty-two"]
    status, out, err = chat(*words, *GREEDY, lines=lines)
    roles = [m["role"] for m in saved("f.json")["messages"]]
    good = status == 1 and "context_length_exceeded" in err.lower()
    check(name + "a result that does not fit is asked for again", good and roles[1:] == ROLES, (roles, err))
    return m[3]["content"]


def mistakes(name, *words):
    with open(path("no.json"), "w", encoding="utf-8") as f:
        f.write('{"messages": [7]}')
    for line, text in (
        ("/foo", "/foo: unknown command"),
        ("/save", "/save: expected a file's name"),
        ("/quit now", "/quit takes nothing behind it"),
        ("/load " + path("nowhere"), "cannot be opened"),
        ("/load " + path("no.json"), "expected {\"messages\""),
        ("/tools " + path("no.json"), "expected a list of functions"),
        ("/save " + path("no/where"), "OUTPUT_FAILED"),
    ):
        status, out, err = chat(*words, *GREEDY, lines=[line, RAIN])
        check(
            name + "refused: " + line.split("/")[1],
            status == 1 and text in err and out.count("\n") >= 3,
            (status, out, err),
        )
    long = "a " * 2000
    status, out, err = chat(*words, *GREEDY, lines=[long, RAIN, "/save " + path("h.json")])
    check(name + "a text that does not fit", status == 1 and "context_length_exceeded" in err.lower(), err)
    check(name + "... is taken back, and the next one answered", contents("h.json")[0] == RAIN and out.strip() != "")
    status, out, err = chat(*words, *GREEDY, "-n", "2", lines=[RAIN])
    check(name + "a cut answer is told", status == 0 and "the limit came before the answer's end" in err, err)


def cancelled(w):
    """Waits until every job of the worker has ended so."""
    w.until(lambda: {j["state"] for j in w.get("/worker/jobs")[1]["jobs"]} == {"cancelled"})


def pipes_are_interrupted(w):
    words = ["--url", w.url, "-n", "20000", "--repetition-penalty", "0.01", *GREEDY]
    p = subprocess.Popen(
        [program, "chat", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    p.stdin.write(b"Once upon a time\nand then\n")
    p.stdin.flush()
    p.stdout.read(1)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=PATIENCE)
    check("Ctrl-C without a terminal", p.returncode == 130, (p.returncode, err))
    cancelled(w)
    check("... cancels the job", True)


# ---- a terminal --------------------------------------------------------------------------------------------


def edited():
    t = Terminal(program, *GREEDY)
    t.type("Writte a häiku".encode() + b"\x7f" * 5 + b"ocean")
    t.type(b"\x01" + b"\x06" * 3 + b"\x04" + b"\x05" + b"!\r")  # to the beginning, three on, delete; to the end
    t.until(b"\r\n> ")
    t.type(b"\x1b[A" + " süß\r".encode())  # the line before, and more
    t.until(b"\r\n> ")
    t.type(b"dropped\x03")
    shown = t.until(b"\r\n> ")
    check("Ctrl-C drops a line", b"^C" in shown, shown)
    t.line("/save " + path("typed.json"))
    said = contents("typed.json")[0::2]
    check("keys edit, in UTF-8, and lines come again", said == ["Write a ocean!", "Write a ocean! süß"], said)
    check("Ctrl-D ends it", t.end() == 0)


def stopped(name, *words):
    """Ctrl-C stops an answer; the program goes on."""
    t = Terminal(program, *words, "-n", "20000", "--repetition-penalty", "0.01", *GREEDY)
    t.type(b"Once upon a time\r")
    t.until(b"\r\n")
    t.read()
    t.type(b"\x03")
    t.until(b"\r\n> ")
    t.line("/save " + path("stopped.json"))
    said = contents("stopped.json")
    check(name + "Ctrl-C stops an answer, which stays as far as it came", len(said) in (0, 2), said)
    t.type(b"And then?\r")
    t.until(b"\r\n")
    t.read()
    t.type(b"\x03\x03\x03")
    t.until(b"\r\n> ")
    status = t.end(b"/quit\r")
    check(name + "and again", status == 0, (status, t.shown))


def calls_on_a_terminal():
    t = Terminal(program, *GREEDY, NO_COLOR="1")
    shown = t.line("/tools " + path("tools.json"))
    check("one function is not several", b"(1 function)\r\n" in shown, shown)
    t.type(MINUTE.encode() + b"\r")
    shown = t.until(b"result of current_minute> ")
    good = b"[calls current_minute({})]\r\n" in shown and b"\x1b[2m" not in shown and b"\x1b[0m" not in shown
    check("a call is not dim with NO_COLOR", good, shown)
    t.end()
    t = Terminal(program, *GREEDY)
    t.line("/tools " + path("tools.json"))
    t.type(MINUTE.encode() + b"\r")
    shown = t.until(b"result of current_minute> ")
    check("a call is dim", b"\x1b[2m[calls current_minute({})]\x1b[0m\r\n" in shown, shown)
    shown = t.line("forty-two")
    check("an answer is not", b"forty-two" in shown and b"\x1b[2m" not in shown, shown)
    t.end()


def reasons(name, end_id, *words):
    """Dim on a terminal, left out elsewhere, kept in files."""
    words = (*words, "--logit-bias", "%d=2" % end_id, "--seed", "3", "-n", "450")
    status, out, err = chat(*words, lines=["Yes or no?", "/save " + path("thought.json")])
    m = saved("thought.json")["messages"][1]
    good = status == 0 and m["reasoning_content"].strip() and out == m["content"] + "\n"
    check(name + "reasoning is no part of what a pipe gets", good, (m, err))
    t = Terminal(program, *words)
    t.line("/system")
    shown = t.line("Yes or no?")
    dim, rest = shown.split(b"\x1b[0m", 1)
    good = dim.startswith(b"\x1b[2m") and b"\x1b[2m" not in rest and rest.startswith(b"\r\n\r\n")
    check(name + "reasoning is dim", good, shown)
    escapes = [c for c in shown.replace(b"\x1b[2m", b"").replace(b"\x1b[0m", b"") if c < 32 and c not in (9, 10, 13)]
    check(name + "control characters are shown, not obeyed", not escapes, shown)
    t.end()


def at(w):
    w.url = "http://127.0.0.1:%d" % w.port
    return "--url", w.url


here = conversation("here: ")
spoken = functions("here: ")
mistakes("here: ")
turns()
with Worker(program) as plain:
    there = at(plain)
    check("a worker says the same", conversation("worker: ", *there) == here)
    check("... also with functions", functions("worker: ", *there) == spoken)
    mistakes("worker: ", *there)
with Worker(program, *LONG) as long_worker:
    stopped("worker: ", *at(long_worker))
    cancelled(long_worker)
    check("... and the worker has cancelled", True)
    pipes_are_interrupted(long_worker)
stopped("here: ", "--context", "32768")
edited()
calls_on_a_terminal()
thinking_model = path("thinker.gguf")
ends_with = thinker(thinking_model)
reasons("here: ", ends_with, "--model", thinking_model)
with Worker(program, "--model", thinking_model) as w:
    reasons("worker: ", ends_with, *at(w))
with Gated(program) as w:
    status, out, err = chat(*at(w), lines=[RAIN])
    check("without a key it ends at once", status == 1 and "WORKER_API_KEY" in err and out == "", (status, err))
    key = w.key("alice")
    status, out, err = chat(*at(w), *GREEDY, lines=[RAIN], environment={"WORKER_API_KEY": key})
    check("a key", status == 0 and out == here[1] + "\n" and key not in err, err)
done()
