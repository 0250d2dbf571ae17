"""A stand-in for an engine: opens its port, says 503 for a while and then 200, and ends in various ways.

STUB_DIR         folder for what it notes down:
                   argv.json    its arguments, working folder and environment
                   asked        the path of every request, one a line
                   pids         the number of each of its processes, one a line: NAME PID
STUB_PORT        the port; otherwise the one after --port
STUB_READY       the path that is answered; every other gets a 404
STUB_BUSY        how often that is a 503 before it is a 200
STUB_GATE        the port stays closed until STUB_DIR has a file called open
STUB_SAY         written to standard error at the start
STUB_CRASH       exit status, taken instead of opening the port
STUB_DIE         exit status, taken after the first 200
STUB_TERM        "ignore" SIGTERM
STUB_CHILDREN    any of: session (in a session of its own), daemon (forked twice), stubborn (ignores SIGTERM)
"""

import json
import os
import signal
import socket
import sys
import time

FOLDER = os.environ["STUB_DIR"]


def note(name, text):
    # One write: other processes of this stub write here too.
    file = os.open(os.path.join(FOLDER, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, text.encode())
    os.close(file)


def here_i_am(name):
    note("pids", "%s %d\n" % (name, os.getpid()))


def sleep_for_ever(name):
    here_i_am(name)
    while True:
        time.sleep(1000)


def child(kind):
    if os.fork() != 0:
        return
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        os.setsid()
    if kind == "daemon" and os.fork() != 0:
        os._exit(0)
    sleep_for_ever(kind)


def answer(listener, ready, busy):
    die = os.environ.get("STUB_DIE")
    while True:
        peer, _ = listener.accept()
        try:
            request = b""
            while b"\r\n\r\n" not in request:
                more = peer.recv(4096)
                if not more:
                    break
                request += more
            if not request:
                continue
            path = request.split(b" ")[1].decode()
            note("asked", path + "\n")
            status = 200
            if path != ready:
                status = 404
            elif busy > 0:
                busy, status = busy - 1, 503
            peer.sendall(b"HTTP/1.1 %d Stub\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}" % status)
        finally:
            peer.close()
        if status == 200 and die is not None:
            print("the stub dies", file=sys.stderr, flush=True)
            os._exit(int(die))


def main():
    here_i_am("first")
    facts = {"argv": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}
    note("argv.json", json.dumps(facts) + "\n")
    print("the stub starts", flush=True)
    if "STUB_SAY" in os.environ:
        print(os.environ["STUB_SAY"], file=sys.stderr, flush=True)
    if os.environ.get("STUB_TERM") == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for kind in os.environ.get("STUB_CHILDREN", "").split():
        child(kind)
    if "STUB_CRASH" in os.environ:
        sys.exit(int(os.environ["STUB_CRASH"]))
    while "STUB_GATE" in os.environ and not os.path.exists(os.path.join(FOLDER, "open")):
        time.sleep(0.01)
    if "STUB_PORT" in os.environ:
        port = int(os.environ["STUB_PORT"])
    else:
        port = int(sys.argv[sys.argv.index("--port") + 1])
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(16)
    answer(listener, os.environ["STUB_READY"], int(os.environ.get("STUB_BUSY", "0")))


main()
