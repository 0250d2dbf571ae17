#!/usr/bin/env python3
"""Serve a GGUF model with the real llama.cpp server, in this process, on the loopback.

Needs the `xllamacpp` wheel, which carries llama.cpp and its HTTP server (setup.sh installs it).
When the server answers, one line of its own goes to standard output:

    LISTEN http://127.0.0.1:PORT

Everything that llama.cpp logs goes to standard error. SIGTERM or SIGINT stops it, with exit code 0.
With --until-parent-exits it also stops when the process that started it is gone, so that a test that
was killed leaves no server behind.
"""

import argparse
import os
import signal
import sys
import threading

HOST = "127.0.0.1"


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def arguments():
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="the GGUF file")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--slots", type=positive, default=4, help="requests decoded at once (default: %(default)s)")
    parser.add_argument("--ctx-per-slot", type=positive, default=1024, help="tokens of context (default: %(default)s)")
    parser.add_argument("--alias", default="tiny", help="the model's name in the API (default: %(default)s)")
    parser.add_argument("--threads", type=positive, default=1, help="threads that compute (default: %(default)s)")
    parser.add_argument(
        "--http-threads",
        type=positive,
        default=64,
        help="connections served at once; a waiting request holds one, so more than the slots (default: %(default)s)",
    )
    parser.add_argument("--until-parent-exits", action="store_true", help="stop when the starting process is gone")
    return parser.parse_args()


def parameters(xllamacpp, options):
    """The server's settings: everything that a test counts on is set here, not left to a default."""
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {options.alias}
    params.hostnames = [HOST]
    params.port = options.port
    params.n_parallel = options.slots
    params.n_ctx = options.ctx_per_slot * options.slots
    params.kv_unified = False
    params.cache_ram_mib = 0  # no prompt cache in host memory: a repeated prompt costs the same again
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.n_threads_http = options.http_threads
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.endpoint_props = True
    params.warmup = True
    return params


def main():
    options = arguments()
    parent = os.getppid()
    # Standard output belongs to the one LISTEN line: llama.cpp's own prints go to standard error.
    ready_line = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    if not os.path.isfile(options.model):
        sys.exit("serve.py: no such model: %s" % options.model)
    try:
        import xllamacpp
    except ImportError as error:
        sys.exit("serve.py: cannot import xllamacpp (%s): run tests/real_engine/setup.sh and use its python" % error)

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    try:
        server = xllamacpp.Server(parameters(xllamacpp, options))
    except RuntimeError as error:
        # llama.cpp has logged the cause above: a broken model, or a port that is taken.
        sys.exit("serve.py: llama.cpp did not start: %s" % error)
    print("LISTEN", server.listening_address, file=ready_line, flush=True)
    while not stop.wait(0.25):
        if options.until_parent_exits and os.getppid() != parent:
            break
    # The server's own threads may still stream: an orderly end of the interpreter would wait for them.
    os._exit(0)


if __name__ == "__main__":
    main()
