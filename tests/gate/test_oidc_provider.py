#!/usr/bin/env python3
"""test_oidc_provider.py PROBE: tokens of an issuer that others wrote: PyPI's oidc-provider-mock (Flask, Authlib,
joserfc) behind https. A person logs in, a client exchanges the code, and the token is taken; after the issuer has
changed its key as well. Skipped where the package is not installed."""

import base64
import gc
import http.client
import json
import logging
import ssl
import sys
import tempfile
import threading
import urllib.parse
import warnings

from servers import Authority, Probe, check, done, skip

warnings.simplefilter("ignore")
try:
    import oidc_provider_mock
    import oidc_provider_mock._storage
    import werkzeug.serving
except ImportError as error:
    skip("PyPI's oidc-provider-mock is not installed: %s" % error)

CLIENT, SECRET, BACK = "worker", "anything", "https://127.0.0.1/back"


class Login:
    """What a browser and a client do for one person."""

    def __init__(self, port, ca):
        self.connection = http.client.HTTPSConnection("127.0.0.1", port, context=ssl.create_default_context(cafile=ca))

    def post(self, path, form, **headers):
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        self.connection.request("POST", path, urllib.parse.urlencode(form), dict(kind, **headers))
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def token(self, person):
        query = {"client_id": CLIENT, "redirect_uri": BACK, "response_type": "code", "scope": "openid email"}
        status, headers, body = self.post("/oauth2/authorize?" + urllib.parse.urlencode(query), {"sub": person})
        check("%s logs in" % person, status == 302, body)
        code = urllib.parse.parse_qs(urllib.parse.urlparse(headers["Location"]).query)["code"][0]
        who = "Basic " + base64.b64encode(("%s:%s" % (CLIENT, SECRET)).encode()).decode()
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK}
        status, _, body = self.post("/oauth2/token", form, Authorization=who)
        check("the code becomes a token", status == 200, body)
        return json.loads(body)["id_token"]


def main():
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(folder)
        app = oidc_provider_mock.app()
        server = werkzeug.serving.make_server(
            "127.0.0.1", 0, app, threaded=True, ssl_context=authority.server("server")
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        issuer, login = "https://127.0.0.1:%d" % server.server_port, Login(server.server_port, authority.file)
        probe = Probe(sys.argv[1])
        probe.ask("oidc", issuer=issuer, audience=CLIENT, ca=authority.file)
        ready = probe.ask("ready")
        check("its keys are found", ready["status"] == "ok", ready)
        token = login.token("alice")
        got = probe.ask("check", token=token)
        check("its token is taken", got["status"] == "ok" and got["subject"] == "alice", got)
        for storage in storages():
            storage.jwk = type(storage.jwk).generate_key(is_private=True)
        got = probe.ask("check", token=login.token("bob"))
        check("after it changed its key", got["status"] == "ok" and got["subject"] == "bob", got)
        no = probe.ask("check", token=token[:-4] + "AAAA")
        check("not with another signature", no["status"] == "invalid", no)
        probe.ask("oidc", issuer=issuer, audience="billing", ca=authority.file)
        no = probe.ask("check", token=login.token("carol"))
        check("not for another audience", no["result"] == "audience", no)
        check("the end", probe.end() == 0)
        server.shutdown()
    done()


def storages():
    """The issuer's own memory, which has its key."""
    return [o for o in gc.get_objects() if isinstance(o, oidc_provider_mock._storage.Storage)]


main()
