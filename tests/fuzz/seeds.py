#!/usr/bin/env python3
"""seeds.py TARGET FOLDER: writes what the fuzz target TARGET begins with into FOLDER: small inputs that get past the
first checks. A target that is not known here begins with nothing."""

import base64
import json
import os
import struct
import sys


def text(s):
    return s.encode()


def gguf():
    def string(s):
        return struct.pack("<Q", len(s)) + text(s)

    def key(name, kind, value):
        return string(name) + struct.pack("<I", kind) + value

    keys = [
        key("general.architecture", 8, string("llama")),
        key("general.alignment", 4, struct.pack("<I", 32)),
        key("llama.block_count", 4, struct.pack("<I", 1)),
        key("llama.rope.freq_base", 6, struct.pack("<f", 10000)),
        key("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + string("a") + string("b")),
        key("tokenizer.ggml.add_bos_token", 7, b"\1"),
    ]
    tensors = [string("token_embd.weight") + struct.pack("<IQQIQ", 2, 32, 2, 8, 0)]  # Q8_0: 68 bytes
    for version in (2, 3):
        head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
        yield head + bytes(-len(head) % 32) + bytes(96)
    yield b"GGUF" + struct.pack("<IQQ", 3, 0, 0)


def http():
    yield b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:7531\r\n\r\n"
    yield b"GET /a%20b?c=%7B&d HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"
    body = b'{"prompt":"x"}'
    post = b"POST /execute HTTP/1.1\r\nHost: [::1]:7531\r\nContent-Type: application/json\r\n"
    yield post + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    yield post + b"Transfer-Encoding: chunked\r\n\r\n%x;a=b\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    yield post + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n{}"
    yield b"5\r\nhello\r\n3;a=b\r\nabc\r\n0\r\n\r\n"  # a body alone, in chunks
    for name in (b"localhost:7531", b"[::1]:7531", b"https://example.org", b"127.0.0.1"):
        yield name
    yield text('a "quoted" \\ text\n\t\u00e9\u65e5\U0001f600\x7f') + b"\x00\xff\xed\xa0\x80"


def body():
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    called = messages + [
        {"role": "assistant", "content": None, "reasoning_content": "R", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "assistant", "content": "A"},
    ]
    thought = [{"type": "thinking", "thinking": "R", "signature": "s"}, {"type": "redacted_thinking", "data": "x"}]
    options = {"num_predict": 3, "num_ctx": 512, "stop": ["b"], "repeat_penalty": 1.1, "repeat_last_n": 0}
    call = {"function": {"name": "f", "arguments": {"x": 1}}}
    ollama = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "thinking": "T", "tool_calls": [call, dict(call, id="c")]},
        {"role": "tool", "content": "1", "tool_name": "f"},
        {"role": "tool", "content": "2", "tool_call_id": "c"},
    ]
    for document in (
        {"prompt": "x", "max_tokens": 3, "temperature": 0.7, "top_k": 4, "top_p": 0.9, "seed": 18446744073709551615},
        {"prompt": "x", "job_id": "a", "stop": ["b", "c"], "priority": 3, "logit_bias": {"3": -1.5}, "chat": True},
        {"handle_id": "h", "prompt": "x", "repetition_penalty": 1.1, "min_p": 0.1, "metrics": True},
        {
            "prompt": ["x", [1, 2, "y"]],
            "n_predict": -1,
            "samplers": ["top_k"],
            "logit_bias": [[3, False]],
            "n_probs": 2,
        },
        {"input_prefix": "x", "input_suffix": "y", "input_extra": [{"text": "z"}], "response_fields": ["content"]},
        {"model": "m", "messages": messages, "stream": True, "stream_options": {"include_usage": True}, "n": 1},
        {"messages": called, "chat_template_kwargs": {"a": [1]}, "documents": [{}], "continue_final_message": True},
        {"prompt": "a\"b\\\\", "max_tokens": 10**40, "top_k": -(10**20), "temperature": 0.1},
        {"model": "m", "prompt": [1, 2, 3], "max_tokens": 4, "presence_penalty": 0.5, "echo": False, "logprobs": None},
        {"prompt": ["a", [1, 2], "b"], "n": 2, "best_of": 2, "logprobs": 3, "echo": True, "max_tokens": 0},
        {"messages": messages, "n": 16, "logprobs": True, "top_logprobs": 20, "prompt_logprobs": 1},
        {
            "system": [{"type": "text", "text": "x-anthropic-billing-header: a"}, {"type": "text", "text": "S"}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": ""}]},
                {"role": "assistant", "content": thought + [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": True}]},
                {"role": "system", "content": "T"},
                {"role": "assistant", "content": "A"},
            ],
            "tools": [{"name": "f", "description": "D", "input_schema": {"type": "object"}, "strict": True}],
            "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
            "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
            "output_config": {"effort": "max", "format": {"type": "json_schema", "schema": {}}},
            "max_tokens": 9,
            "stop_sequences": ["b"],
            "context_management": {"edits": []},
        },
        {"messages": ollama, "tools": [], "options": options, "format": "json", "think": "low", "keep_alive": "0s"},
        {"prompt": "x", "system": "S", "options": options, "format": {"type": "object"}, "think": False},
        {"prompt": "x", "raw": True, "options": {"num_predict": -1}, "logprobs": True, "top_logprobs": 2},
    ):
        yield text(json.dumps(document))


def chat():
    messages = [{"role": "user", "content": "U"}, {"role": "assistant", "content": "<think>a</think>b"}]
    messages += [{"role": "tool", "content": "R", "name": "f"}, {"role": "user", "content": "V"}]
    for template in (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + m.content + '<|im_end|>' }}{% endfor %}",
        "{% for m in messages if m.role != 'system' %}{{ m.content | trim }}{{ m.reasoning_content }}{% endfor %}",
    ):
        yield text(template) + b"\0" + text(json.dumps(messages))


def hf_json():
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], "byte_fallback": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [{"id": 3, "content": "<x>", "special": True, "normalized": False}]
    document = {"version": "1.0", "added_tokens": added, "normalizer": {"type": "NFC"}, "pre_tokenizer": byte_level}
    yield text(json.dumps(dict(document, decoder=byte_level, model=model))) + b"\0ab <x> ba"
    yield text(json.dumps(dict(document, model=dict(model, merges=[["a", "b"]], byte_fallback=True)))) + b"\0ab"
    for which in (0, 1, 2, 3, 4, 5):
        yield b"#" + bytes([which]) + b'{"type":"NFC"}\0text'


def tokenizer():
    words = text("<|im_start|>user\nThe caf\u00e9 has 1234 \u65e5\u672c\u8a9e \U0001f600  <|im_end|>\r\n\t don't")
    for kind in range(11):
        yield bytes([kind, 12]) + words


def harmony():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "description": "d", "enum": ["x"]}, "b": {"$ref": "#/$defs/c"}},
        "required": ["a"],
        "$defs": {"c": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "number"}}]}},
    }
    yield b"\0" + text(json.dumps(schema))
    yield b"\1\5analysis\6think\1\0assistant to=functions.f\5commentary\7json\6{}\4"


def jinja():
    context = {
        "messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": [{"type": "text"}]}],
        "s": "x\u00e9",
    }
    for template in (
        "{% for m in messages if m.role != 's' %}{{ loop.index ~ m['content'] | string }}{% else %}e{% endfor %}",
        "{% macro f(a, b=1) %}{{ a }}{{ varargs }}{{ kwargs }}{{ caller() }}{% endmacro %}",
        "{% macro f(a) %}{{ a }}{{ caller() }}{% endmacro %}{% call f(1) %}x{% endcall %}{{ f(*[1], **{'b': 2}) }}",
        "{% set ns = namespace(a=[]) %}{% set ns.a = ns.a + [s[::-1]] %}{{ ns.a | tojson(indent=2) }}",
        "{% set q %}x{% endset %}{{ '%5.2f|%s' | format(1.5, s) }}{{ '{:>{w}}'.format(s, w=5) }}",
        "{{ 2 ** 70 // 3 % 7 }}{{ s.split('x', 1) }}{{ s.title() }}{{ -7 // 2.0 }}{{ [1, 'a'] < [1, 'b'] }}",
        "a {%- if s is string and 1 < 2 <= 3 -%} {# c #} {% raw %}{{ x }}{% endraw %}{% elif not s %}{% endif %}",
        "{% for x in [1, [2]] recursive %}{{ loop(x) if x is iterable else x }}{{ loop.changed(x) }}{% endfor %}",
        "{{ messages | groupby('role') | map('first') | sort | unique | join(',') }}",
        "{{ {} }}{{ [] }}{{ () }}",
        "{% filter upper %}{{ s | indent(2, true) | wordwrap(3) | truncate(4) }}{% endfilter %}",
        "{% block b %}{% endblock %}{{ messages | selectattr('role') | list }}{% with a = 1 %}{{ a }}{% endwith %}",
    ):
        yield text(template) + b"\0" + text(json.dumps(context))


def tools():
    arguments = '{"s": "x", "n": 3}'
    answers = (
        'a <tool_call>\n{"name": "f", "arguments": %s}\n</tool_call>' % arguments,
        '[TOOL_CALLS][{"name": "f", "arguments": %s, "id": "abcdef123"}]' % arguments,
        "[TOOL_CALLS]f[CALL_ID]abcdef123[ARGS]" + arguments,
        "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n<parameter=u>\nnull\n</parameter>\n</function>"
        "\n</tool_call>",
        "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="n">3</parameter>\n</invoke>\n</minimax:tool_call>',
        "<|tool_call_start|>[f(s='x', n=3), g()]<|tool_call_end|>",
        '<|tool_call>call:f{s:<|"|>x<|"|>,n:3}<tool_call|>',
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="s" type="string"<|sep|>x'
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
        '{"name": "f", "parameters": %s}' % arguments,
        '[{"name": "f", "arguments": %s}]' % arguments,
        '<function name="f"><param name="s"><![CDATA[a < b]]]]><![CDATA[>\n]]></param></function>',
        "f\n%s>>>all\nx>>>g\n{}" % arguments,
    )
    for row in range(64):
        for answer in answers:
            yield bytes([row, 5]) + text(answer)
            yield bytes([row, 0xC5]) + text(answer)
        yield bytes([row, 0x45]) + b"more"
        yield bytes([row, 0x85]) + b"\x80<"


def grammar():
    for source, words in (
        ('root ::= "a" (b | [^c-e\\n]+)* # x\nb ::= "(" root? ")" {1,3}\n', "a(a)(ax)"),
        ('root ::= "\\u00e9" x{2,} | <[5]> !<[6]>\nx ::= . |\n  "y"', "\u00e9\u65e5y"),
        ("root ::= a a\na ::= ([a-z]{0,20} ws)*\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}", "ab c\n  d"),
    ):
        yield b"\1" + text(source) + b"\0" + text(words)
    for pattern, words in (
        (r"^(?=.*\d)[a-z\d]{4,8}$", "abc12"),
        (r"(?:[\w.-]+@)?\u00e9\x41(a|b{2,}?)*\.\p{Lu}", "a@\u00e9Aabb.X"),
        (r"(?!ab)[^\s\]-]+|\D\W\S$", "xyz"),
    ):
        yield b"\0" + text(pattern) + b"\0" + text(words)


def blocklist():
    for phrases, said in (
        ("bad word\ncaf\u00e9 noir\n*sex", "un CAFE\u0301 noir, a bad\n\tword, Essex"),
        (
            "\ud55c\uae00\n\u30ac\u30b9\no\ufb03ce",
            "\u1112\u1161\u11ab\u1100\u1173\u11af \uff76\uff9e\uff7d of\u200dfice",
        ),
        ("a\naa\naaa\naab\n*\u0301", "a\u0323\u0301aaaab \u0130I\u0131"),
    ):
        yield text(phrases) + b"\0" + text(said)
    yield b"x\xff\0\xff\xe2\x82x \xed\xa0\x80"


def policy():
    secret = {"hash": "0123456789abcdef" * 4, "hint": "AbCd", "created": 1, "expires": 9}
    limits = {"requests_per_minute": 60, "tokens_per_minute": "none"}
    key = {"id": "a.b", "name": "A", "tenant": "t", "scopes": ["inference", "admin:read"], "expires": 5}
    key.update(disabled=False, limits=limits, max_priority=3)
    stored = dict(key, secrets=[secret], created=1, last_used=60)
    sections = {
        "limits": {"requests_per_minute": 0, "tokens_per_minute": 1000},
        "guardrails": {
            "blocklist": ["x", "caf\u00e9"],
            "block_output": True,
            "opa": {"url": "http://127.0.0.1:8181", "path": "worker/allow", "send_text": False},
        },
        "scheduler": {"preempt": True, "high_priority": 5, "timeslice_tokens": 64},
        "roles": {"r": {"scopes": ["embed"], "limits": limits, "tenant": "t", "max_priority": 0}},
    }
    header = b"WKPOLICY" + struct.pack("<6IQQ", 1, 1, 15, 8, 1, 0, 3, 2)
    yield b"\0" + header + bytes(16 + 16 + 12) + b"{}" + bytes(16)
    yield b"\1" + text(json.dumps(dict(sections, format=1, generation=3, keys=[stored, {"id": "c"}])))
    yield b"\1" + text(json.dumps({"format": 1, "generation": 0}))
    yield b"\6" + text(json.dumps(key))
    del key["id"]
    yield b"\7" + text(json.dumps(dict(key, name=None)))
    for i, section in enumerate(sections.values()):
        yield bytes([2 + 6 + i]) + text(json.dumps(section))


def jwt():
    def part(document):
        return base64.urlsafe_b64encode(text(document)).rstrip(b"=")

    who = '"iss":"https://issuer.test","aud":["worker"],"sub":"a","exp":1700000600,"nbf":1,"iat":1.5'
    claims = (
        "{%s}" % who,
        '{%s,"scope":"inference embed","azp":"chat","a":{"roles":["x"]}}' % who,
        '{%s,"scp":["a"],"client_id":"chat","a":{"roles":"x"}}' % who,
        '{"iss":"i","aud":"w","sub":"a","exp":1e10,"azp":"chat"}',
        '{%s,"x":[[{"y":"\\u00e4"}]]}' % who,
    )
    for header in (
        '{"alg":"ES256","kid":"e1","typ":"at+jwt"}',
        '{"alg":"ES256"}',
        '{"alg":"RS256","kid":"r1","crit":[]}',
    ):
        for c in claims:
            yield b"\0" + part(header) + b"." + part(c) + b"." + b"A" * 86
            yield b"\2" + text(header) + b"\0" + text(c)
    rsa = '{"kty":"RSA","kid":"r1","use":"sig","alg":"RS256","e":"AQAB","n":"%s"}' % ("_" * 342)
    ec = '{"kty":"EC","crv":"P-256","key_ops":["verify"],"x":"%s","y":"%s"}' % (
        "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
        "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU",
    )
    for members in (rsa, ec, rsa + "," + ec, "{}"):
        yield b"\1" + text('{"keys":[%s]}' % members)
    for result in ("true", "false", '{"allow":true,"max_tokens":5,"obligations":[]}', '{"allow":false,"reason":"x"}'):
        yield b"\3" + text('{"decision_id":"1","result":%s}' % result)


def packet():
    def one(tokens, groups):
        blocks = tokens // 32
        rest = struct.pack("<64s32s32sIIQQ", b"request", b"d" * 32, b"f" * 32, tokens and tokens - 1, 0, 1, 0)
        rest += struct.pack("<IIIIII", 0, 1, 0, 1, 0, 4)
        rows = []
        for window, chunk, first, size in groups:
            rows.append(struct.pack("<IIIIIIQ", window, chunk, first, blocks - first, 1, 0, size))
        rest += struct.pack("<QII", sum((blocks - g[2]) * g[3] for g in groups), len(groups), 0) + b"".join(rows)
        rest += struct.pack("<%dI" % tokens, *range(tokens))
        return b"WKVP" + struct.pack("<HHII", 1, 1, 16 + len(rest) + 4, tokens) + rest + bytes(4)

    # the target itself puts the check sum right
    yield one(0, ())
    yield one(64, ((0, 0, 0, 2048),))
    yield one(96, ((0, 0, 0, 512), (40, 0, 1, 256), (0, 64, 2, 128)))


def frames():
    def one(kind, at, to, payload, total=0):
        return b"WKVF" + struct.pack("<HHIIQII", 1, kind, at, to, len(payload), total, 0) + payload

    yield one(1, 0, 0, b"packet") + one(2, 0, 2, bytes(64)) + one(2, 2, 3, bytes(32)) + one(5, 0, 0, b"")
    yield one(1, 0, 0, b"packet") + one(3, 0, 2, b"/worker_kv_" + b"0" * 32 + b"_1") + one(5, 0, 0, b"")
    yield one(1, 0, 0, b"packet") + one(4, 0, 3, b"worker-peer") + one(5, 0, 0, b"")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    target, folder = sys.argv[1].removeprefix("fuzz_"), sys.argv[2]
    makers = {
        f.__name__: f
        for f in (
            gguf,
            http,
            body,
            hf_json,
            tokenizer,
            harmony,
            jinja,
            tools,
            grammar,
            blocklist,
            policy,
            jwt,
            packet,
            frames,
        )
    }
    os.makedirs(folder, exist_ok=True)
    for i, data in enumerate(makers.get(target, lambda: ())()):
        with open(os.path.join(folder, "seed-%d" % i), "wb") as f:
            f.write(data)


main()
