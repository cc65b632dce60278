"""GGUF files for the reference: read whole, written in F32, and what each tensor type's blocks mean.

Written a second time, from the formats' descriptions: nothing here is shared with the worker. A new format is one
function and one line in TYPES.
"""

import math
import os
import struct

SCALAR = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def single(x):
    """x rounded to a 32-bit float; a magnitude beyond them is infinite."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def same(x):
    return x


# ---- blocks: (bytes, r) -> values; r rounds every product and difference that an F32 decoder rounds ------------------
def half(raw, at=0):
    return struct.unpack_from("<e", raw, at)[0]


def nibbles(raw):
    """Of 16 bytes: the low halves, then the high ones."""
    return [b & 15 for b in raw] + [b >> 4 for b in raw]


def f32(raw, r):
    return [struct.unpack("<f", raw)[0]]


def f16(raw, r):
    return [half(raw)]


BF16 = struct.Struct("<f").unpack


def bf16(raw, r):
    return [BF16(b"\0\0" + raw)[0]]


def q4_0(raw, r):
    d = half(raw)
    return [r(d * (q - 8)) for q in nibbles(raw[2:])]


def q4_1(raw, r):
    d, m = half(raw), half(raw, 2)
    return [r(r(d * q) + m) for q in nibbles(raw[4:])]


def fifth(raw, at):
    """The 32 values of five bits whose highest stand in the 32 bits at `at`, the others behind them."""
    high = struct.unpack_from("<I", raw, at)[0]
    return [q | (high >> i & 1) << 4 for i, q in enumerate(nibbles(raw[at + 4 :]))]


def q5_0(raw, r):
    d = half(raw)
    return [r(d * (q - 16)) for q in fifth(raw, 2)]


def q5_1(raw, r):
    d, m = half(raw), half(raw, 2)
    return [r(r(d * q) + m) for q in fifth(raw, 4)]


def q8_0(raw, r):
    d = half(raw)
    return [r(d * q) for q in struct.unpack_from("<32b", raw, 2)]


def crumbs(raw):
    """256 values of two bits in 64 bytes: of each 32 bytes the lowest two bits, then the next two, ..."""
    return [b >> shift & 3 for n in (0, 32) for shift in (0, 2, 4, 6) for b in raw[n : n + 32]]


def q2_k(raw, r):
    d, least = half(raw, 80), half(raw, 82)
    step = [(r(d * (s & 15)), r(least * (s >> 4))) for s in raw[:16]]
    return [r(r(step[i // 16][0] * q) - step[i // 16][1]) for i, q in enumerate(crumbs(raw[16:80]))]


def q3_k(raw, r):
    d, low, high = half(raw, 108), raw[96:104], raw[104:108]
    scale = [(low[i % 8] >> 4 * (i // 8) & 15) | (high[i % 4] >> 2 * (i // 4) & 3) << 4 for i in range(16)]
    step = [r(d * (s - 32)) for s in scale]
    return [r(step[i // 16] * (q - (0 if raw[i % 32] >> i // 32 & 1 else 4))) for i, q in enumerate(crumbs(raw[32:96]))]


def steps_of_six_bits(raw, r):
    """Q4_K's and Q5_K's eight (step, least) of d, dmin and 12 bytes of six bits each."""
    d, least, s = half(raw), half(raw, 2), raw[4:16]
    pairs = [(s[i] & 63, s[i + 4] & 63) for i in range(4)]
    pairs += [(s[i + 8] & 15 | s[i] >> 6 << 4, s[i + 8] >> 4 | s[i + 4] >> 6 << 4) for i in range(4)]
    return [(r(d * scale), r(least * m)) for scale, m in pairs]


def q4_k(raw, r):
    out = []
    for i, (step, least) in enumerate(steps_of_six_bits(raw, r)):
        part = raw[16 + i // 2 * 32 : 48 + i // 2 * 32]
        out += [r(r(step * (b >> i % 2 * 4 & 15)) - least) for b in part]
    return out


def q5_k(raw, r):
    out, high = [], raw[16:48]
    for i, (step, least) in enumerate(steps_of_six_bits(raw, r)):
        part = raw[48 + i // 2 * 32 : 80 + i // 2 * 32]
        out += [
            r(r(step * ((b >> i % 2 * 4 & 15) | (h >> i & 1) << 4)) - least) for b, h in zip(part, high, strict=True)
        ]
    return out


def q6_k(raw, r):
    d, scale, out = half(raw, 208), struct.unpack_from("<16b", raw, 192), []
    for i in range(256):
        n, j = i // 128, i % 128
        low = raw[n * 64 + j % 64] >> j // 64 * 4 & 15
        high = raw[128 + n * 32 + j % 32] >> j // 32 * 2 & 3
        out.append(r(r(d * scale[i // 16]) * ((low | high << 4) - 32)))
    return out


LEVELS_MXFP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


def mxfp4(raw, r):
    d = math.ldexp(1.0, raw[0] - 127)
    return [r(d * LEVELS_MXFP4[q]) for q in nibbles(raw[1:])]


LEVELS_IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def iq4_nl(raw, r):
    d = half(raw)
    return [r(d * LEVELS_IQ4[q]) for q in nibbles(raw[2:])]


def iq4_xs(raw, r):
    d, high, low, out = half(raw), struct.unpack_from("<H", raw, 2)[0], raw[4:8], []
    for i in range(8):
        step = r(d * ((low[i // 2] >> i % 2 * 4 & 15 | (high >> 2 * i & 3) << 4) - 32))
        out += [r(step * LEVELS_IQ4[q]) for q in nibbles(raw[8 + 16 * i : 24 + 16 * i])]
    return out


# name: number in the file, values a block, bytes a block, decoder
TYPES = {
    "f32": (0, 1, 4, f32),
    "f16": (1, 1, 2, f16),
    "q4_0": (2, 32, 18, q4_0),
    "q4_1": (3, 32, 20, q4_1),
    "q5_0": (6, 32, 22, q5_0),
    "q5_1": (7, 32, 24, q5_1),
    "q8_0": (8, 32, 34, q8_0),
    "q2_K": (10, 256, 84, q2_k),
    "q3_K": (11, 256, 110, q3_k),
    "q4_K": (12, 256, 144, q4_k),
    "q5_K": (13, 256, 176, q5_k),
    "q6_K": (14, 256, 210, q6_k),
    "iq4_nl": (20, 32, 18, iq4_nl),
    "iq4_xs": (23, 256, 136, iq4_xs),
    "bf16": (30, 1, 2, bf16),
    "mxfp4": (39, 32, 17, mxfp4),
}
BY_NUMBER = {number: (block, size, decode) for number, block, size, decode in TYPES.values()}


def decode_all(raw, kind, n):
    """The n values of a tensor of type number `kind`, as doubles."""
    if kind == 0:
        return list(struct.unpack_from("<%df" % n, raw))
    if kind == 1:
        return list(struct.unpack_from("<%de" % n, raw))
    block, size, decode = BY_NUMBER[kind]
    return [v for at in range(0, n // block * size, size) for v in decode(raw[at : at + size], same)]


# ---- files -----------------------------------------------------------------------------------------------------------
class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, fmt):
        value = struct.unpack_from("<" + fmt, self.data, self.at)[0]
        self.at += struct.calcsize("<" + fmt)
        return value

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n : self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, n = self.take("I"), self.take("Q")
            return [self.value(kind) for _ in range(n)]
        return self.take(SCALAR[kind])


def read(path, values=True):
    """-> (metadata, {name: (ne, [values])}); values False: the metadata alone."""
    with open(path, "rb") as f:
        c = Cursor(f.read())
    c.at = 8
    n_tensors, n_keys = c.take("Q"), c.take("Q")
    meta = {}
    for _ in range(n_keys):
        key = c.text()
        meta[key] = c.value(c.take("I"))
    if not values:
        return meta, {}
    heads = []
    for _ in range(n_tensors):
        name = c.text()
        ne = [c.take("Q") for _ in range(c.take("I"))]
        heads.append((name, ne, c.take("I"), c.take("Q")))
    align = meta.get("general.alignment", 32)
    start = (c.at + align - 1) // align * align
    tensors = {}
    for name, ne, kind, offset in heads:
        if kind not in BY_NUMBER:
            raise ValueError("%s: type %d is not among the reference's TYPES" % (name, kind))
        block, size, _ = BY_NUMBER[kind]
        n = math.prod(ne)
        raw = c.data[start + offset : start + offset + n // block * size]
        tensors[name] = (ne, decode_all(raw, kind, n))
    return meta, tensors


def put_text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def put_value(v):
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + put_text(v)
    if isinstance(v, bytes):
        return struct.pack("<IIQ", 9, 0, len(v)) + v
    if not v or isinstance(v[0], str):
        return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(put_text, v))
    if isinstance(v[0], float):
        return struct.pack("<IIQ%df" % len(v), 9, 6, len(v), *v)
    return struct.pack("<IIQ%di" % len(v), 9, 5, len(v), *v)


def write(path, meta, tensors, kind="f32"):
    """tensors: {name: (ne, [values])}; kind: f32 or f16, of all of them."""
    number, code = TYPES[kind][0], {"f32": "f", "f16": "e"}[kind]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta))
    head += b"".join(put_text(k) + put_value(v) for k, v in meta.items())
    body, offset = [], 0
    for name, (ne, values) in tensors.items():
        head += put_text(name) + struct.pack("<I%dQIQ" % len(ne), len(ne), *ne, number, offset)
        raw = struct.pack("<%d%s" % (len(values), code), *values)
        raw += b"\0" * (-len(raw) % 32)
        body.append(raw)
        offset += len(raw)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + b"".join(body))
