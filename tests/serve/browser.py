"""A headless Chromium driven through its debugging pipe: two pipes of JSON messages, each ended by a zero byte; nothing
but the standard library."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    """Path of a Chromium, or None."""
    return next((p for p in map(shutil.which, NAMES) if p), None)


class Browser:
    def __init__(self, width=1240, height=860, dark=False):
        self.profile = tempfile.mkdtemp(prefix="worker-page-")
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def give():  # the browser reads 3 and writes 4; via high numbers, so that neither is overwritten
            os.dup2(to_read, 1003)
            os.dup2(to_write, 1004)
            os.dup2(1003, 3)
            os.dup2(1004, 4)

        command = [
            find(),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-sync",
            "--user-data-dir=" + self.profile,
            "--remote-debugging-pipe",
            "about:blank",
        ]
        self.process = subprocess.Popen(
            command,
            preexec_fn=give,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.number, self.text, self.events, self.session = 0, b"", [], None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def message(self):
        while b"\0" not in self.text:
            more = os.read(self.back, 1 << 20)
            if not more:
                raise RuntimeError("the browser has gone")
            self.text += more
        one, self.text = self.text.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            m = self.message()
            if m.get("id") == self.number:
                if "error" in m:
                    raise RuntimeError(method + ": " + json.dumps(m["error"]))
                return m["result"]
            self.events.append(m)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href.startsWith('http')")

    def run(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(expression + ": " + json.dumps(r["exceptionDetails"]))
        return r["result"].get("value")

    def wait(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while not self.run(expression):
            if time.monotonic() > end:
                raise TimeoutError("did not become true: " + expression)
            time.sleep(0.03)

    def key(self, key, code, number, modifiers=0):
        for kind in ("rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=code,
                windowsVirtualKeyCode=number,
                modifiers=modifiers,
            )

    def complaints(self):
        """What the page threw, logged as an error, or was forbidden by its policy."""
        self.run("0")
        out = []
        for e in self.events:
            p = e.get("params", {})
            if e.get("method") == "Runtime.exceptionThrown":
                out.append(json.dumps(p["exceptionDetails"]))
            elif e.get("method") == "Log.entryAdded" and p["entry"]["level"] == "error":
                out.append(p["entry"]["text"])
        return out

    def hosts(self):
        """Where it asked for anything."""
        return {
            e["params"]["request"]["url"].split("/")[2]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent" and e["params"]["request"]["url"].startswith("http")
        }

    def shot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
