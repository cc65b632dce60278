#!/usr/bin/env python3
"""test_oidc.py PROBE: tokens of an issuer behind https, with a CA of the test's own: keys that are found, that rotate,
that are not there, and issuers that misbehave."""

import json
import os
import sys
import tempfile
import threading

from servers import Authority, Issuer, Key, Probe, b64, check, done, drip, flood, hang, raw, until


class Test:
    def __init__(self, program, folder):
        self.folder, self.authority, self.probe = folder, Authority(folder), Probe(program)
        self.keys = [Key(folder, "one"), Key(folder, "two"), Key(folder, "three", "ES256"), Key(folder, "four")]
        self.other = Key(folder, "other")
        self.n = 0

    def issuer(self, keys=None, **more):
        self.n += 1
        return Issuer(self.authority, self.keys[:1] if keys is None else keys, "issuer%d" % self.n, **more)

    def open(self, served, **more):
        options = dict({"issuer": served.url, "audience": "worker", "ca": self.authority.file}, **more)
        return self.probe.ask("oidc", **options)

    def token(self, token):
        return self.probe.ask("check", token=token)

    def expect(self, name, token, result):
        got = self.token(token)
        status = "ok" if result == "fine" else "invalid"
        check(name, got["status"] == status and got["result"] == result and (got["text"] != "" or status == "ok"), got)
        return got


def tokens(t):
    issuer = t.issuer([t.keys[0], t.keys[2]])
    t.open(issuer, roles="realm_access.roles")
    check("keys are fetched", t.probe.ask("ready")["status"] == "ok", t.probe.ask("state"))
    rs, es = t.keys[0], t.keys[2]
    more = {"scope": "inference embed", "realm_access": {"roles": ["ops"]}, "azp": "chat"}
    got = t.expect("RS256", rs.token(issuer.claims(**more)), "fine")
    good = got["names"] == ["inference", "embed", "ops"] and got["scopes"] == 2 and got["subject"] == "alice"
    check("who it is", good and got["client"] == "chat", got)
    t.expect("ES256", es.token(issuer.claims()), "fine")
    t.expect("another issuer", rs.token(issuer.claims(iss="https://other.test")), "issuer")
    t.expect("another audience", rs.token(issuer.claims(aud="billing")), "audience")
    t.expect("expired", rs.token(issuer.claims(exp=1)), "expired")
    t.expect("another's signature", t.other.token(issuer.claims(), kid="one"), "signature")
    t.expect("alg none", b64(b'{"alg":"none"}') + "." + b64(json.dumps(issuer.claims()).encode()) + ".AAAA", "alg")
    t.expect("empty", "", "size")
    t.expect("long", "a" * 16385, "size")
    token = rs.token(issuer.claims(sub="cached"))
    before = t.probe.ask("state")["remembered"]
    for _ in range(5):
        t.expect("again and again", token, "fine")
    check("verified once", t.probe.ask("state")["remembered"] == before + 4)
    end = token[:-3] + ("AAA" if token[-3:] != "AAA" else "BBA")
    t.expect("a remembered token of another signature", end, "signature")
    all_ = t.probe.ask("check", token=rs.token(issuer.claims(sub="many")), times=200)["all"]
    check("200 at one time", all(a["status"] == "ok" and a["subject"] == "many" for a in all_))
    check("the issuer was asked once", issuer.asked() == 1, issuer.asked())


def rotation(t):
    issuer = t.issuer()
    t.open(issuer)
    t.expect("before the rotation", t.keys[0].token(issuer.claims()), "fine")
    check("a token does not wait for the start", issuer.asked() == 1)
    issuer.keys = [t.keys[0], t.keys[1]]
    new = t.keys[1].token(issuer.claims())
    all_ = t.probe.ask("check", token=new, times=40)["all"]
    check("a rotation loses no request", all(a["status"] == "ok" for a in all_), all_[0])
    check("for one fetch", issuer.asked() == 2, issuer.asked())
    t.expect("the old key goes on", t.keys[0].token(issuer.claims()), "fine")
    issuer.keys = [t.keys[3]]
    all_ = t.probe.ask("check", token=t.other.token(issuer.claims()), times=100)["all"]
    check("unknown keys within the minute", all(a["result"] == "no_key" and a["status"] == "invalid" for a in all_))
    check("ask nobody", issuer.asked() == 2, issuer.asked())
    t.expect("and the keys are as they were", t.keys[0].token(issuer.claims()), "fine")
    # one that the issuer does not have is asked for once
    issuer = t.issuer()
    t.open(issuer)
    t.probe.ask("ready")
    all_ = t.probe.ask("check", token=t.other.token(issuer.claims()), times=60)["all"]
    check("a key that is nowhere", all(a["result"] == "no_key" for a in all_), all_[0])
    check("is asked for once", issuer.asked() == 2, issuer.asked())


def no_kid(t):
    """Keys without names: a signature that does not fit may mean a new key."""

    class Bare(Key):
        def jwk(self):
            return {k: v for k, v in super().jwk().items() if k != "kid"}

        def token(self, claims, **header):
            return super().token(claims, kid=None, **header)

    first, second = Bare(t.folder, "bare1"), Bare(t.folder, "bare2")
    issuer = t.issuer([first])
    t.open(issuer)
    t.expect("without kid", first.token(issuer.claims()), "fine")
    issuer.keys = [second]
    t.expect("rotated without kid", second.token(issuer.claims()), "fine")
    check("for one fetch", issuer.asked() == 2, issuer.asked())
    t.expect("the old key is gone", first.token(issuer.claims(sub="b")), "no_key")


def waiting(t):
    """The first token comes before the keys: it waits for them."""
    issuer, gate = t.issuer(), threading.Event()
    document = json.dumps({"keys": [k.jwk() for k in issuer.keys]}).encode()

    def slow(c):
        gate.wait(100)
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(document) + document)

    issuer.jwks = slow
    t.open(issuer)
    answer = t.probe.later("check", token=t.keys[0].token(issuer.claims()), times=10)
    until(lambda: issuer.asked() == 1, "the keys are asked for")
    gate.set()
    check("tokens wait for the first keys", all(a["status"] == "ok" for a in answer()["all"]))
    # an issuer that hangs: they wait some seconds, not for ever, and who comes when 64 wait does not wait at all
    issuer = t.issuer()
    issuer.jwks = hang
    t.open(issuer)
    all_ = t.probe.ask("check", token=t.keys[0].token(issuer.claims()), times=100)["all"]
    check("but not for ever", all(a["status"] == "io" and "keys are not there" in a["text"] for a in all_), all_[0])


def failures(t):
    def discovery(i, **more):
        return 200, json.dumps(dict({"issuer": i.url, "jwks_uri": i.url + "/keys"}, **more)).encode()

    def keys(*jwks):
        return 200, json.dumps({"keys": list(jwks)}).encode()

    good, weak = t.keys[0].jwk(), dict(t.keys[0].jwk(), e="Aw")
    for name, where, what, text in (
        (
            "discovery names another issuer",
            "discovery",
            lambda i: discovery(i, issuer="https://other.test"),
            "another issuer",
        ),
        ("discovery with a slash more", "discovery", lambda i: discovery(i, issuer=i.url + "/"), "another issuer"),
        ("discovery without issuer", "discovery", lambda i: discovery(i, issuer=None), "another issuer"),
        ("discovery without jwks_uri", "discovery", lambda i: discovery(i, jwks_uri=None), "jwks_uri"),
        ("jwks_uri by http", "discovery", lambda i: discovery(i, jwks_uri="http://127.0.0.1:1/keys"), "jwks_uri"),
        ("jwks_uri is a file", "discovery", lambda i: discovery(i, jwks_uri="file:///etc/passwd"), "jwks_uri"),
        ("jwks_uri is a list", "discovery", lambda i: discovery(i, jwks_uri=[i.url]), "jwks_uri"),
        ("jwks_uri with a user", "discovery", lambda i: discovery(i, jwks_uri="https://a@127.0.0.1/"), "without user"),
        ("discovery is not JSON", "discovery", lambda i: (200, b"<html>"), "not JSON"),
        (
            "discovery says issuer twice",
            "discovery",
            lambda i: (200, b'{"issuer":"x","issuer":"%s"}' % i.url.encode()),
            "not JSON",
        ),
        ("discovery fails", "discovery", lambda i: (500, b""), "500"),
        ("discovery moves", "discovery", lambda i: (302, b"", {"Location": i.url + "/keys"}), "302"),
        ("discovery is large", "discovery", lambda i: (200, b" " * 300000), "longer than allowed"),
        (
            "discovery drips",
            "discovery",
            lambda i: drip(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"),
            "no complete",
        ),
        ("discovery hangs", "discovery", lambda i: hang, "no complete answer"),
        ("no keys there", "jwks", lambda i: (404, b""), "404"),
        ("keys are large", "jwks", lambda i: (200, b'{"keys":[' + b" " * (256 << 10) + b"]}"), "longer than allowed"),
        ("keys without end", "jwks", lambda i: flood(b"HTTP/1.1 200 OK\r\n\r\n{"), "longer than allowed"),
        ("keys are cut", "jwks", lambda i: raw(b'HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n{"keys":['), "/keys"),
        ("keys are not JSON", "jwks", lambda i: (200, b"keys"), "not JSON"),
        ("keys are empty", "jwks", lambda i: keys(), "none of"),
        ("keys are weak", "jwks", lambda i: keys(weak), "e is even, below 65537"),
        ("keys are for encryption", "jwks", lambda i: keys(dict(good, use="enc")), "use is not sig"),
        ("keys are secrets", "jwks", lambda i: keys({"kty": "oct", "k": "AAAA", "kid": "one"}), "kty"),
        ("keys come twice in one", "jwks", lambda i: (200, b'{"keys":[],"keys":[]}'), "not JSON"),
    ):
        issuer = t.issuer()
        setattr(issuer, where, what(issuer))
        t.open(issuer)
        no = t.probe.ask("ready")
        check(name, no["status"] == "io" and text in no["text"], no)
        got = t.token(t.keys[0].token(issuer.claims()))
        check(
            name + ": nobody comes in", got["status"] == "io" and text in got["text"] or "fetched" in got["text"], got
        )
        issuer.close()


def fallback(t):
    issuer = t.issuer()
    issuer.discovery = (404, b"")
    issuer.fallback = (200, json.dumps({"keys": [t.keys[0].jwk()]}).encode())
    t.open(issuer)
    check("without discovery: jwks.json", t.probe.ask("ready")["status"] == "ok", t.probe.ask("state"))
    t.expect("its tokens", t.keys[0].token(issuer.claims()), "fine")


def down(t):
    """An issuer that is gone: its keys stay; one that comes later is found."""
    issuer = t.issuer()
    t.open(issuer)
    t.expect("while it is there", t.keys[0].token(issuer.claims()), "fine")
    issuer.close()
    issuer.discovery = raw(b"")  # for connections that are still open
    got = t.token(t.other.token(issuer.claims()))
    check("gone: unknown keys", got["status"] == "invalid" and got["result"] == "no_key", got)
    until(lambda: t.probe.ask("state")["failed"] >= 1, "a fetch fails")
    state = t.probe.ask("state")
    check("the state says so", state["keys"] == 1 and state["failure"] != "" and state["fetched"] == 1, state)
    t.expect("gone: known keys", t.keys[0].token(issuer.claims(sub="later")), "fine")
    late = t.issuer()
    late.jwks = (503, b"")
    t.open(late)
    no = t.probe.ask("ready")
    check("not ready yet", no["status"] == "io" and "503" in no["text"], no)
    late.jwks = None
    until(lambda: t.probe.ask("state")["keys"] == 1, "it is asked again")
    t.expect("later", t.keys[0].token(late.claims()), "fine")


def certificates(t):
    stranger = Authority(t.folder, "stranger-ca")
    for name, issuer, ca in (
        ("another CA", t.issuer(), stranger.file),
        ("the system's CAs", t.issuer(), None),
        ("a certificate for another host", t.issuer(hosts="DNS:other.test"), t.authority.file),
    ):
        t.open(issuer, ca=ca)
        no = t.probe.ask("ready")
        check(name, no["status"] == "io" and "certificate" in no["text"].lower() or "ssl" in no["text"].lower(), no)
        check(name + ": not a byte of a request came", not issuer.requests)


def configuration(t):
    issuer = t.issuer()
    for name, more in (
        ("by http", {"issuer": issuer.url.replace("https", "http")}),
        ("a query", {"issuer": issuer.url + "/?a"}),
        ("a user", {"issuer": "https://a@127.0.0.1"}),
        ("no host", {"issuer": "https://"}),
        ("none", {"issuer": None}),
        ("no audience", {"audience": None}),
        ("an empty audience", {"audience": ""}),
        ("no such CA file", {"ca": os.path.join(t.folder, "nowhere")}),
        ("a CA file without a certificate", {"ca": __file__}),
        ("unknown algs", {"algs": 4}),
    ):
        no = t.open(issuer, **more)
        check("refused: " + name, no["status"] == "invalid" and no["text"], no)
    t.open(issuer, typ="at+jwt", clients=["chat", "batch"], algs=1)
    key = t.keys[0]
    t.expect("typ is looked at", key.token(issuer.claims(azp="chat")), "typ")
    t.expect("and found", key.token(issuer.claims(azp="chat"), typ="at+jwt"), "fine")
    t.expect("clients are looked at", key.token(issuer.claims(azp="evil"), typ="at+jwt"), "client")
    t.expect("algs are looked at", t.keys[2].token(issuer.claims(), typ="at+jwt"), "alg")


def main():
    with tempfile.TemporaryDirectory() as folder:
        t = Test(sys.argv[1], folder)
        for part in (configuration, tokens, rotation, no_kid, waiting, failures, fallback, down, certificates):
            part(t)
        issuer = t.issuer()
        issuer.jwks = hang
        t.open(issuer)
        until(lambda: issuer.asked() == 1, "a fetch is under way")
        check("the end does not wait for it", t.probe.end() == 0)
    done()


main()
