"""A web server on this machine, for tests of downloads: it continues downloads, breaks off, loses files."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b"<!DOCTYPE html>\n<html><body>The file has moved.</body></html>\n"


class Server:
    """The content of each file by its name, and a record of the requests: path and range.

    ``/whole/NAME`` gives the file and continues it; ``/plain/NAME`` cannot continue; ``/drops/NAME`` breaks off after
    1,000 bytes each time; ``/page/NAME`` gives a web page; ``/moved/NAME`` redirects to ``/whole/NAME``; the rest is
    404.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.url = ""

    def answer(self, path: str, wanted: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, content and headers."""
        _, how, name = path.split("/", 2)
        content = self.files.get(name)
        if how == "page":
            return 200, PAGE, {}
        if how == "moved":
            return 302, b"", {"Location": f"/whole/{name}"}
        if content is None or how not in ("whole", "plain", "drops"):
            return 404, PAGE, {}
        if not wanted or how == "plain":
            return 200, content, {}
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            return 416, b"", {"Content-Range": f"bytes */{len(content)}"}
        return 206, content[start:], {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            server.asked.append((self.path, wanted))
            code, content, headers = server.answer(self.path, wanted)
            self.send_response(code)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content[:1000] if self.path.startswith("/drops/") else content)
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
