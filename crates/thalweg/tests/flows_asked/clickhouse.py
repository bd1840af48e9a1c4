"""A server of HTTP in front of ClickHouse's engine (chdb): SQL RECORDS, the shipped tables and lines of JSON.

Prints its port, and answers until its standard input ends.
"""

import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from chdb import session

with open(sys.argv[1]) as file:
    lines = [line for line in file.read().splitlines() if not line.startswith(("--", "TTL"))]
table = next(part for part in "\n".join(lines).split(";\n") if "EXISTS flows\n" in part)
engine = session.Session()
engine.query(table)
settings = "date_time_input_format = 'best_effort'"
with open(sys.argv[2]) as records:
    engine.query(f"INSERT INTO flows SETTINGS {settings} FORMAT JSONEachRow {records.read()}")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        status, pieces = 200, []
        if (self.headers["X-ClickHouse-User"], self.headers["X-ClickHouse-Key"]) != ("reader", "secret"):
            status, pieces = 403, [b"Authentication failed"]
        else:
            try:
                answer = engine.query(text).bytes()
                # In pieces, as the real one answers.
                pieces = [answer[at:at + 1000] for at in range(0, len(answer), 1000)]
            except Exception as error:
                status, pieces = 500, [str(error).encode()]
        self.send_response(status)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        for piece in pieces + [b""]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
