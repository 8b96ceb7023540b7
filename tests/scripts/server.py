"""A web server on this machine, for tests of downloads: it continues downloads, breaks off, loses files."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Headers = dict[str, str] | None

PAGE = b"<!DOCTYPE html>\n<html><body>The file has moved.</body></html>\n"


class Server:
    """Files of the server, and a record of the requests.

    ``files`` has the content of each NAME, or of a whole path.

    ``/whole/NAME`` gives the file and continues it; ``/plain/NAME`` cannot continue; ``/drops/NAME`` breaks off after
    1,000 bytes each time; ``/page/NAME`` gives a web page; ``/moved/NAME`` redirects to ``/whole/NAME``;
    ``/busy/NAME`` is 503; the rest is 404.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.url = ""

    def asked_for(self) -> list[str]:
        """The requested paths, in order."""
        return [path for path, _ in self.asked]


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler(server))
    server.url = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class ForServer(Handler):
        of = server

    return ForServer


class Handler(BaseHTTPRequestHandler):
    of: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.of.asked.append((self.path, wanted))
        _, how, name = self.path.split("/", 2)
        content = self.of.files.get(name, self.of.files.get(self.path))
        how = "whole" if self.path in self.of.files else how
        if how == "page":
            self.give(200, PAGE)
        elif how == "busy":
            self.give(503, b"")
        elif how == "moved":
            self.give(302, b"", {"Location": f"/whole/{name}"})
        elif content is None or how not in ("whole", "plain", "drops"):
            self.give(404, PAGE)
        else:
            self.give_part(content, "" if how == "plain" else wanted, 1000 if how == "drops" else None)

    def give_part(self, content: bytes, wanted: str, most: int | None) -> None:
        found = re.fullmatch(r"bytes=(\d+)-", wanted)
        start = int(found.group(1)) if found else 0
        if found is None:
            self.give(200, content, most=most)
        elif start >= len(content):
            self.give(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        else:
            whole = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.give(206, content[start:], {"Content-Range": whole}, most)

    def give(self, code: int, body: bytes, headers: dict[str, str] | None = None, most: int | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:most])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass
