"""`worker chat` as who sits before a terminal meets it, for the tests of this folder."""

import os
import pty
import select

from service import PATIENCE


class Terminal:
    """`worker chat` with a terminal: what it shows, until something is there."""

    def __init__(self, program, *words, **environment):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(dict({"TERM": "xterm", "LC_ALL": "C"}, **environment))
            os.execv(program, [program, "chat", *words])
        self.shown = b""
        self.until(b"> ")

    def read(self):
        if not select.select([self.fd], [], [], PATIENCE)[0]:
            raise TimeoutError(self.shown)
        try:
            piece = os.read(self.fd, 65536)
        except OSError:  # it has ended
            piece = b""
        self.shown += piece
        return piece

    def until(self, what):
        """What was shown up to and with it; what follows is looked at next time."""
        while what not in self.shown:
            if not self.read():
                raise EOFError(self.shown)
        at = self.shown.index(what) + len(what)
        before, self.shown = self.shown[:at], self.shown[at:]
        return before

    def type(self, keys):
        os.write(self.fd, keys)

    def line(self, text):
        """Types a line; what is shown until the next prompt."""
        self.type(text.encode() + b"\r")
        self.until(b"\r\n")
        return self.until(b"\r\n> ")

    def end(self, keys=b"\x04"):
        """The exit status, after Ctrl-D or other keys."""
        self.type(keys)
        while self.read():
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
