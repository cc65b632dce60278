"""GGUF files for the reference: read whole, written in F32, and what each tensor type's blocks mean.

Written a second time, from the formats' descriptions: nothing here is shared with the worker, but for the points of the
grids of IQ1, IQ2 and IQ3, which are read from the plugin's tables (against_gguf_py.py compares these). A new format is
one function and one line in TYPES.
"""

import math
import os
import re
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


def nvfp4(raw, r):
    out = []
    for i in range(4):
        exponent, mantissa = raw[i] >> 3 & 15, raw[i] & 7
        scale = math.ldexp(mantissa + 8 if exponent else mantissa, max(exponent, 1) - 10) if raw[i] != 127 else 0.0
        out += [r(scale * LEVELS_MXFP4[q]) for q in nibbles(raw[4 + 8 * i : 12 + 8 * i])]
    return out


def tq1_0(raw, r):
    d, digits = half(raw, 52), []
    for first, size, n in ((0, 32, 5), (32, 16, 5), (48, 4, 4)):
        digits += [(b * 3**i % 256) * 3 // 256 for i in range(n) for b in raw[first : first + size]]
    return [r(d * (q - 1)) for q in digits]


def tq2_0(raw, r):
    d = half(raw, 64)
    return [r(d * (q - 1)) for q in crumbs(raw[:64])]


def grid(file, name):
    """The points of a grid as lists of levels: of four nibbles, or of eight pairs of bits, the lower of all first."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(here, "plugins", "quant-iq", file), encoding="utf-8") as f:
        body = re.search(r"#define %s\(P\)(.*?)IQ_GRID" % name, f.read(), re.S).group(1)
    entries = [int(e, 16) for e in re.findall("0x[0-9a-f]+", body)]
    if name.startswith("IQ3"):
        return [[e >> 4 * i & 15 for i in range(4)] for e in entries]
    return [[e >> 4 * i + j & 3 for j in (0, 2) for i in range(4)] for e in entries]


GRIDS = {
    "iq1": grid("grid_iq1.h", "IQ1_POINTS"),
    "iq2_xxs": grid("grid_iq2.h", "IQ2_XXS_POINTS"),
    "iq2_xs": grid("grid_iq2.h", "IQ2_XS_POINTS"),
    "iq2_s": grid("grid_iq2.h", "IQ2_S_POINTS"),
    "iq3_xxs": grid("grid_iq3.h", "IQ3_XXS_POINTS"),
    "iq3_s": grid("grid_iq3.h", "IQ3_S_POINTS"),
}
LEVELS_IQ2 = [8, 25, 43]
LEVELS_IQ3 = [4, 12, 20, 28, 36, 44, 52, 62]


def signs_of_bits(bits, n):
    return [-1 if bits >> i & 1 else 1 for i in range(n)]


def even_signs(seven):
    return signs_of_bits(seven | (bin(seven).count("1") & 1) << 7, 8)


def nibble_at(raw, i):
    return raw[i // 2] >> i % 2 * 4 & 15


def iq2_xxs(raw, r):
    d, out = half(raw), []
    for i in range(8):
        last = struct.unpack_from("<I", raw, 6 + 8 * i)[0]
        step = r(d * ((last >> 28) + 0.5)) / 4
        for j, index in enumerate(raw[2 + 8 * i : 6 + 8 * i]):
            signs = even_signs(last >> 7 * j & 127)
            out += [r(step * LEVELS_IQ2[q] * s) for q, s in zip(GRIDS["iq2_xxs"][index], signs, strict=True)]
    return out


def iq2_xs(raw, r):
    d, out = half(raw), []
    for i, q in enumerate(struct.unpack_from("<32H", raw, 2)):
        step, signs = r(d * (nibble_at(raw[66:], i // 2) + 0.5)) / 4, even_signs(q >> 9)
        out += [r(step * LEVELS_IQ2[p] * s) for p, s in zip(GRIDS["iq2_xs"][q & 511], signs, strict=True)]
    return out


def iq2_s(raw, r):
    d, out = half(raw), []
    for i in range(32):
        step, signs = r(d * (nibble_at(raw[74:], i // 2) + 0.5)) / 4, signs_of_bits(raw[34 + i], 8)
        point = GRIDS["iq2_s"][raw[2 + i] | (raw[66 + i // 4] >> 2 * (i % 4) & 3) << 8]
        out += [r(step * LEVELS_IQ2[q] * s) for q, s in zip(point, signs, strict=True)]
    return out


def iq3_xxs(raw, r):
    d, out = half(raw), []
    for i, last in enumerate(struct.unpack_from("<8I", raw, 66)):
        step = r(d * ((last >> 28) + 0.5)) / 2
        for j in range(4):
            signs = even_signs(last >> 7 * j & 127)
            at = 2 + 8 * i + 2 * j
            point = GRIDS["iq3_xxs"][raw[at]] + GRIDS["iq3_xxs"][raw[at + 1]]
            out += [r(step * LEVELS_IQ3[q] * s) for q, s in zip(point, signs, strict=True)]
    return out


def iq3_s(raw, r):
    d, out = half(raw), []
    for i in range(64):
        step, signs = r(d * (2 * nibble_at(raw[106:], i // 8) + 1)), signs_of_bits(nibble_at(raw[74:], i), 4)
        point = GRIDS["iq3_s"][raw[2 + i] | (raw[66 + i // 8] >> i % 8 & 1) << 8]
        out += [r(step * (2 * q + 1) * s) for q, s in zip(point, signs, strict=True)]
    return out


def shifted(step, point, minus, r):
    return [r(step * (q - 1 + (-0.125 if minus else 0.125))) for q in point]


def iq1_s(raw, r):
    d, out = half(raw), []
    for i in range(32):
        h = struct.unpack_from("<H", raw, 34 + 2 * (i // 4))[0]
        point = GRIDS["iq1"][raw[2 + i] | (h >> 3 * (i % 4) & 7) << 8]
        out += shifted(r(d * (2 * (h >> 12 & 7) + 1)), point, h >> 15, r)
    return out


def iq1_m(raw, r):
    s, out = struct.unpack_from("<4H", raw, 48), []
    d = half(struct.pack("<H", sum((v >> 12) << 4 * i for i, v in enumerate(s))))
    for i in range(32):
        h = nibble_at(raw[32:48], i)
        point = GRIDS["iq1"][raw[i] | (h & 7) << 8]
        out += shifted(r(d * (2 * (s[i // 8] >> 3 * (i // 2 % 4) & 7) + 1)), point, h & 8, r)
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
    "iq2_xxs": (16, 256, 66, iq2_xxs),
    "iq2_xs": (17, 256, 74, iq2_xs),
    "iq3_xxs": (18, 256, 98, iq3_xxs),
    "iq1_s": (19, 256, 50, iq1_s),
    "iq4_nl": (20, 32, 18, iq4_nl),
    "iq3_s": (21, 256, 110, iq3_s),
    "iq2_s": (22, 256, 82, iq2_s),
    "iq4_xs": (23, 256, 136, iq4_xs),
    "bf16": (30, 1, 2, bf16),
    "mxfp4": (39, 32, 17, mxfp4),
    "iq1_m": (29, 256, 56, iq1_m),
    "tq1_0": (34, 256, 54, tq1_0),
    "tq2_0": (35, 256, 66, tq2_0),
    "nvfp4": (40, 64, 36, nvfp4),
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
