#!/usr/bin/env python3
"""Write a tiny llama model with random weights as a GGUF file, with the standard library only.

A test needs a real server, not a clever model: two layers of 64 channels answer in well under a
millisecond a token on one CPU thread, and the file (about 300 kB) is made on the spot from a seed,
so that no weights are downloaded or kept in the repository. The same seed gives the same bytes.

What the model may say is steered by one constant channel, which acts as an output bias:

* every token's embedding carries the same large value in channel 0, so channel 0 stays large and
  positive through the residual stream whatever the prompt was;
* each row of the output matrix holds, in channel 0, the bias of its token: 0 for an ordinary token,
  strongly negative for one that must never be sampled, moderately positive for the end token when
  replies are to end by themselves.

Modes:
  ascii  only whole ASCII pieces are sampled and the end token never is: one token for each stream
         event, and a reply always has as many tokens as were asked for
  eos    as ascii, but the end token is as likely as the best pieces: replies have varied lengths
         and often end before max_tokens
  utf8   single-byte tokens are sampled too: the server holds bytes back until a character is
         complete, so tokens and stream events differ in number
"""

import argparse
import array
import os
import random
import struct
import sys
from typing import NamedTuple

MODES = ("ascii", "eos", "utf8")

# The model's shape. The context is per sequence; the server divides its own budget over slots.
LAYERS = 2
WIDTH = 64
HEADS = 4
KV_HEADS = 2
FEED_FORWARD = 128
CONTEXT = 4096
HEAD_WIDTH = WIDTH // HEADS

# The constant channel and the biases it carries into the logits.
BIAS_CHANNEL = 0
BIAS_INPUT = 6.0
BIAS_NEVER = -4.0
BIAS_END = 1.0

# Token types of the GGUF vocabulary.
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
UNKNOWN_ID, BEGIN_ID, END_ID = 0, 1, 2

# Value types of GGUF metadata.
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9

# Tensor types.
TENSOR_F32, TENSOR_F16 = 0, 1

ALIGNMENT = 32
SPACE = "\u2581"  # how a sentencepiece vocabulary writes a space

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Tensor(NamedTuple):
    """A named tensor: dimensions with the fastest first, as GGUF wants them, and its bytes."""

    name: str
    dims: tuple
    kind: int
    data: bytes


def vocabulary():
    """The tokens in id order, as (text, type): special tokens, the 256 bytes, ASCII pieces."""
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    tokens += [("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL)]
    tokens += [("<0x%02X>" % byte, BYTE) for byte in range(256)]
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in "aeiou"]
    pieces = [SPACE] + [chr(code) for code in range(33, 127)]
    pieces += syllables + [SPACE + syllable for syllable in syllables]
    tokens += [(piece, NORMAL) for piece in pieces]
    while len(tokens) % 32:
        tokens.append((SPACE + "x%d" % len(tokens), NORMAL))
    return tokens


def string(text):
    """A GGUF string: its length in bytes, then UTF-8."""
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def entry(key, kind, value):
    """One metadata entry whose value is already encoded."""
    return string(key) + struct.pack("<I", kind) + value


def array_entry(key, kind, items):
    """One metadata entry that holds an array of already encoded items."""
    head = struct.pack("<IQ", kind, len(items))
    return entry(key, ARRAY, head + b"".join(items))


def metadata(tokens):
    """The metadata entries: the architecture, then the tokenizer."""

    def text(key, value):
        return entry(key, STRING, string(value))

    def number(key, value):
        return entry(key, U32, struct.pack("<I", value))

    def flag(key, value):
        return entry(key, BOOL, struct.pack("<?", value))

    # Earlier pieces have better scores; only pieces compete for a place in a merge.
    scores = [-1.0 - i if kind == NORMAL else 0.0 for i, (_, kind) in enumerate(tokens)]
    return [
        text("general.architecture", "llama"),
        text("general.name", "tiny-random"),
        number("general.alignment", ALIGNMENT),
        number("general.file_type", 1),
        number("llama.context_length", CONTEXT),
        number("llama.embedding_length", WIDTH),
        number("llama.block_count", LAYERS),
        number("llama.feed_forward_length", FEED_FORWARD),
        number("llama.attention.head_count", HEADS),
        number("llama.attention.head_count_kv", KV_HEADS),
        number("llama.rope.dimension_count", HEAD_WIDTH),
        entry("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
        number("llama.vocab_size", len(tokens)),
        text("tokenizer.ggml.model", "llama"),
        text("tokenizer.ggml.pre", "default"),
        array_entry("tokenizer.ggml.tokens", STRING, [string(t) for t, _ in tokens]),
        array_entry("tokenizer.ggml.scores", F32, [struct.pack("<f", s) for s in scores]),
        array_entry("tokenizer.ggml.token_type", I32, [struct.pack("<i", k) for _, k in tokens]),
        number("tokenizer.ggml.bos_token_id", BEGIN_ID),
        number("tokenizer.ggml.eos_token_id", END_ID),
        number("tokenizer.ggml.unknown_token_id", UNKNOWN_ID),
        flag("tokenizer.ggml.add_bos_token", True),
        flag("tokenizer.ggml.add_eos_token", False),
        text("tokenizer.chat_template", CHAT_TEMPLATE),
    ]


def matrix(rng, rows, columns, deviation):
    """Rows of independent normal numbers."""
    return [[rng.gauss(0.0, deviation) for _ in range(columns)] for _ in range(rows)]


def half_precision(name, rows):
    """A matrix as a tensor of 16-bit floats."""
    width = len(rows[0])
    data = b"".join(struct.pack("<%de" % width, *row) for row in rows)
    return Tensor(name, (width, len(rows)), TENSOR_F16, data)


def ones(name, width):
    """A vector of ones as a tensor of 32-bit floats: the weight of a norm that does nothing."""
    values = array.array("f", [1.0] * width)
    if sys.byteorder == "big":
        values.byteswap()
    return Tensor(name, (width,), TENSOR_F32, values.tobytes())


def output_row(token_id, kind, mode, row):
    """A row of the output matrix, with the bias that the mode gives its token."""
    only_bias = [0.0] * WIDTH
    if token_id == END_ID and mode == "eos":
        only_bias[BIAS_CHANNEL] = BIAS_END
        return only_bias
    if kind in (UNKNOWN, CONTROL) or (kind == BYTE and mode != "utf8"):
        only_bias[BIAS_CHANNEL] = BIAS_NEVER
        return only_bias
    unbiased = list(row)
    unbiased[BIAS_CHANNEL] = 0.0
    return unbiased


def tensors(rng, tokens, mode):
    """Every tensor of the model, in a fixed order: the order of the draws is part of the seed."""
    embedding = matrix(rng, len(tokens), WIDTH, 1.0)
    for row in embedding:
        row[BIAS_CHANNEL] = BIAS_INPUT
    free_output = matrix(rng, len(tokens), WIDTH, 0.35)
    output = [output_row(i, tokens[i][1], mode, row) for i, row in enumerate(free_output)]
    result = [
        half_precision("token_embd.weight", embedding),
        half_precision("output.weight", output),
        ones("output_norm.weight", WIDTH),
    ]
    shapes = (  # name, outputs, inputs
        ("attn_q", WIDTH, WIDTH),
        ("attn_k", KV_HEADS * HEAD_WIDTH, WIDTH),
        ("attn_v", KV_HEADS * HEAD_WIDTH, WIDTH),
        ("attn_output", WIDTH, WIDTH),
        ("ffn_gate", FEED_FORWARD, WIDTH),
        ("ffn_up", FEED_FORWARD, WIDTH),
        ("ffn_down", WIDTH, FEED_FORWARD),
    )
    for layer in range(LAYERS):
        prefix = "blk.%d." % layer
        result += [ones(prefix + "attn_norm.weight", WIDTH), ones(prefix + "ffn_norm.weight", WIDTH)]
        for name, outputs, inputs in shapes:
            weights = matrix(rng, outputs, inputs, 0.5 * inputs**-0.5)
            result.append(half_precision(prefix + name + ".weight", weights))
    return result


def padded(data):
    """The data, filled up with zeros to the alignment."""
    return data + bytes(-len(data) % ALIGNMENT)


def model(mode, seed):
    """The bytes of the whole GGUF file."""
    tokens = vocabulary()
    entries = metadata(tokens)
    parts = tensors(random.Random(seed), tokens, mode)
    infos, data = [], bytearray()
    for part in parts:
        dims = b"".join(struct.pack("<Q", d) for d in part.dims)
        infos.append(
            string(part.name)
            + struct.pack("<I", len(part.dims))
            + dims
            + struct.pack("<IQ", part.kind, len(data))
        )
        data += padded(part.data)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(parts), len(entries))
    return padded(head + b"".join(entries) + b"".join(infos)) + bytes(data)


def write_whole(path, data):
    """Write the file under another name first: a half-written model never has the final name."""
    partial = "%s.partial-%d" % (path, os.getpid())
    try:
        with open(partial, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


def main():
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", help="the file to write")
    parser.add_argument("--mode", choices=MODES, default="ascii", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=7, help="default: %(default)s")
    options = parser.parse_args()
    data = model(options.mode, options.seed)
    write_whole(options.out, data)
    print("%s: mode %s, seed %d, %d bytes" % (options.out, options.mode, options.seed, len(data)))


if __name__ == "__main__":
    main()
