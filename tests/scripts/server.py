"""A web server on this machine, for tests of downloads: it continues downloads, breaks off, loses files."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b"<!DOCTYPE html>\n<html><body>The file has moved.</body></html>\n"


class Server(ThreadingHTTPServer):
    """The content of each file by its name, and a record of the requests: path and range.

    ``/whole/NAME`` gives the file and continues it; ``/plain/NAME`` cannot continue; ``/drops/NAME`` breaks off after
    1,000 bytes each time; ``/page/NAME`` gives a web page; ``/moved/NAME`` redirects to ``/whole/NAME``; the rest is
    404.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.asked.append((self.path, wanted))
        _, how, name = self.path.split("/", 2)
        content, code, headers = self.server.files.get(name, b""), 200, {}
        if how in ("page", "moved"):
            content, code, headers = PAGE, 200 if how == "page" else 302, {"Location": f"/whole/{name}"}
        elif how not in ("whole", "plain", "drops"):
            content, code = PAGE, 404
        elif wanted and how != "plain":
            start, size = int(wanted.removeprefix("bytes=").removesuffix("-")), len(content)
            code, headers = 206, {"Content-Range": f"bytes {start}-{size - 1}/{size}"}
            if start >= size:
                code, headers = 416, {"Content-Range": f"bytes */{size}"}
            content = content[start:]
        self.send_response(code)
        for header, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(content[:1000] if how == "drops" else content)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
