"""Vocabularies made for the tests, and tokenizers written a second time, slow and plain, that say what texts encode to.

WordPiece (Devlin et al. 2019), byte-level BPE (Radford et al. 2019) with the pre-tokenizer patterns that the models
publish, and SentencePiece's BPE (Kudo and Richardson 2018) and unigram model (Kudo 2018). Python's re has no \\p{...}:
the classes are spelt out from unicodedata.
"""

import json
import math
import random
import re
import unicodedata

import gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


# ---- pre-tokenizers --------------------------------------------------------------------------------------------------
def category_classes():
    """Of every general category the ranges of a character class."""
    ranges, last = {}, None
    for c in range(0x110000):
        kind = unicodedata.category(chr(c))
        if kind != last:
            ranges.setdefault(kind, []).append([c, c])
        ranges[kind][-1][1] = c
        last = kind
    return {k: "".join("\\U%08x-\\U%08x" % (a, b) for a, b in r) for k, r in ranges.items()}


WHITE_SPACE = "\\x09-\\x0d\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTION + "?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTION + "?"
)
PATTERNS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama-bpe": CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + END,
    "qwen2": CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + END,
    "gpt-4o": CASED + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + END,
}
IGNORE_MERGES = {"llama-bpe"}  # a word that is a token is that token


def compiled(patterns):
    classes = category_classes()

    def spell(m):
        return "".join(v for k, v in classes.items() if k.startswith(m.group(1)))

    out = {}
    for name, p in patterns.items():
        p = re.sub(r"(?<!\[)(?<!\w\})\\p\{(\w+)\}(?=[+{|]|$)", r"[\\p{\1}]", p)  # a class of its own
        inside = re.sub(r"\\p\{(\w+)\}", spell, p).replace("[^\\s", "[^" + WHITE_SPACE)
        inside = inside.replace("\\S", "[^%s]" % WHITE_SPACE)
        out[name] = re.compile(inside.replace("\\s", "[%s]" % WHITE_SPACE))
    return out


# ---- byte-level BPE --------------------------------------------------------------------------------------------------
def byte_alphabet():
    """GPT-2's: printable Latin-1 stands for itself, the other bytes for characters from U+0100 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


ALPHABET = byte_alphabet()


def symbols_of(text):
    return [ALPHABET[b] for b in text.encode()]


def merge_once(word, pair):
    out, i = [], 0
    while i < len(word):
        if tuple(word[i : i + 2]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def split_specials(text, specials):
    """[(text, id or None)]: the longest special token first, wherever it stands."""
    parts = [(text, None)]
    for special in sorted(specials, key=len, reverse=True):
        cut = []
        for piece, token in parts:
            if token is not None:
                cut.append((piece, token))
                continue
            for i, rest in enumerate(piece.split(special)):
                if i:
                    cut.append((special, specials[special]))
                if rest:
                    cut.append((rest, None))
        parts = cut
    return parts


class Bpe:
    def __init__(self, meta, patterns):
        self.tokens = meta["tokenizer.ggml.tokens"]
        self.ids = {t: i for i, t in reversed(list(enumerate(self.tokens)))}
        self.ranks = {}
        for i, merge in enumerate(meta["tokenizer.ggml.merges"]):
            self.ranks.setdefault(tuple(merge.split(" ")), i)
        self.types = meta["tokenizer.ggml.token_type"]
        self.pattern = patterns[meta["tokenizer.ggml.pre"]]
        self.whole = meta["tokenizer.ggml.pre"] in IGNORE_MERGES

    def specials(self, control):
        kinds = (USER_DEFINED, CONTROL, UNKNOWN) if control else (USER_DEFINED,)
        return {t: i for i, t in enumerate(self.tokens) if self.types[i] in kinds}

    def word(self, text):
        word = symbols_of(text)
        if self.whole and "".join(word) in self.ids:
            return [self.ids["".join(word)]]
        while True:
            pairs = [(self.ranks[p], p) for p in zip(word, word[1:], strict=False) if p in self.ranks]
            if not pairs:
                return [self.ids[s] for s in word]
            word = merge_once(word, min(pairs)[1])

    def plain(self, text):
        out, at = [], 0
        for m in self.pattern.finditer(text):
            if m.start() > at:  # what no alternative matches is a word of its own
                out += self.word(text[at : m.start()])
            out += self.word(m.group())
            at = m.end()
        return out + (self.word(text[at:]) if at < len(text) else [])

    def encode(self, text, control):
        out = []
        for piece, token in split_specials(text, self.specials(control)):
            out += self.plain(piece) if token is None else [token]
        return out


def train(words, n_merges, forbidden=()):
    """The merges of the commonest neighbours, the first in the alphabet where two are as common."""
    counted, merges = {}, []
    for w in words:
        key = tuple(symbols_of(w))
        counted[key] = counted.get(key, 0) + 1
    while len(merges) < n_merges:
        pairs = {}
        for word, n in counted.items():
            for p in zip(word, word[1:], strict=False):
                pairs[p] = pairs.get(p, 0) + n
        best = min(((-n, p) for p, n in pairs.items() if "".join(p) not in forbidden), default=None)
        if not best:
            break
        merges.append(best[1])
        joined = {}
        for word, n in counted.items():
            key = tuple(merge_once(list(word), best[1]))
            joined[key] = joined.get(key, 0) + n
        counted = joined
    return merges


def bpe_metadata(pre, merges, specials, extra=()):
    """specials: {text: type}; extra: tokens that no merges build."""
    learned = [a + b for a, b in merges]
    tokens = [ALPHABET[b] for b in range(256)] + learned + [t for t in extra if t not in learned] + list(specials)
    types = [NORMAL] * (len(tokens) - len(specials)) + list(specials.values())
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [a + " " + b for a, b in merges],
        "tokenizer.ggml.add_bos_token": False,
    }


HARMONY = ["<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>"]


def harmony_metadata():
    """gpt-oss's control tokens behind so few merges that what a test counts is spelt byte by byte."""
    pairs = (
        "t h,th e,Ġ the,i n,Ġ in,a n,Ġ a,r e,o r,Ġ w,s t,e r,Ġ th,an d,Ġ s,Ġ o,t o,Ġ to,o n,a t,e n,i s,i t,o u,a r,a s"
    )
    merges = [tuple(p.split(" ")) for p in pairs.split(",")]
    meta = bpe_metadata("gpt-2", merges, dict.fromkeys(["<|endoftext|>", *HARMONY], CONTROL))
    ids = {t: i for i, t in enumerate(meta["tokenizer.ggml.tokens"])}
    meta["tokenizer.ggml.bos_token_id"] = ids["<|endoftext|>"]
    meta["tokenizer.ggml.eos_token_id"] = ids["<|return|>"]
    return meta


def tokenizer_json(meta, pattern):
    """The same vocabulary as a tokenizer.json."""
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    added = [i for i, kind in enumerate(types) if kind != NORMAL]
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": tokens[i], **special, "special": types[i] == CONTROL} for i in added],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "ignore_merges": meta["tokenizer.ggml.pre"] in IGNORE_MERGES,
            "vocab": {t: i for i, t in enumerate(tokens) if i not in added},
            "merges": meta["tokenizer.ggml.merges"],
        },
    }


# ---- SentencePiece ---------------------------------------------------------------------------------------------------
SPACE = "\u2581"


class Spm:
    def __init__(self, meta):
        self.tokens, self.types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
        self.scores = meta["tokenizer.ggml.scores"]
        self.ids = {t: i for i, t in enumerate(self.tokens) if self.types[i] in (NORMAL, USER_DEFINED)}
        self.bytes = [self.tokens.index("<0x%02X>" % b) for b in range(256)]

    def plain(self, text):
        parts = list(SPACE + text.replace(" ", SPACE)) if text else []
        while True:
            joined = [(i, self.ids.get(a + b)) for i, (a, b) in enumerate(zip(parts, parts[1:], strict=False))]
            able = [(-self.scores[token], i) for i, token in joined if token is not None]
            if not able:
                break
            at = min(able)[1]  # the highest score, the leftmost of equal ones
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        out = []
        for p in parts:
            out += [self.ids[p]] if p in self.ids else [self.bytes[b] for b in p.encode()]
        return out

    def encode(self, text, control):
        specials = {t: i for i, t in enumerate(self.tokens) if self.types[i] in (CONTROL, UNKNOWN)} if control else {}
        out = []
        for piece, token in split_specials(text, specials):
            out += self.plain(piece) if token is None else [token]
        return out


def spm_metadata(text, n_pieces=240):
    words = [SPACE + w for w in text.split()]
    letters = sorted(set("".join(words)) | {"é", "ß", "я"})
    counted, pieces = {}, []
    for w in words:
        counted[tuple(w)] = counted.get(tuple(w), 0) + 1
    while len(pieces) < n_pieces:
        pairs = {}
        for word, n in counted.items():
            for p in zip(word, word[1:], strict=False):
                pairs[p] = pairs.get(p, 0) + n
        best = min((-n, p) for p, n in pairs.items())[1]
        if "".join(best) not in pieces:
            pieces.append("".join(best))
        joined = {}
        for word, n in counted.items():
            key = tuple(merge_once(list(word), best))
            joined[key] = joined.get(key, 0) + n
        counted = joined
    tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)] + pieces + letters
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(pieces) + len(letters))
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(len(tokens) - 259)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
    }


# ---- unigram ---------------------------------------------------------------------------------------------------------
REPLACED = {
    "ﬁ": "fi", "ﬂ": "fl", "½": "1/2", "\t": " ", "\n": " ", "\u00a0": " ", "\u3000": " ", "é": "e", "e\u0301": "e",
    "\ufeff": "", "²": "2", "a\u0000b": "ab",
}  # fmt: skip


def charsmap(replaced):
    """The map as SentencePiece stores it: a double array of byte strings to places in the texts behind it."""
    tree, texts, units = {}, b"", {0: 0}
    for key, to in replaced.items():
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = len(texts)
        texts += to.encode() + b"\0"
    waiting, taken, bases = [(0, tree)], {0}, set()  # two nodes of one base would have each other's children
    while waiting:
        at, node = waiting.pop(0)
        labels = [b or 0 for b in node]  # None: a text ends here; no text of the map begins with a zero byte
        free = (b for b in range(1, 1 << 16) if b not in bases and not any(b ^ label in taken for label in labels))
        base = next(free)
        bases.add(base)
        units[at] |= (at ^ base) << 10 | (None in node) << 8
        for byte, below in node.items():
            child = base ^ (byte or 0)
            taken.add(child)
            units[child] = (1 << 31) | below if byte is None else byte
            if byte is not None:
                waiting.append((child, below))
    n = (max(units) | 0xFF) + 1
    trie = b"".join(units.get(i, 1 << 31).to_bytes(4, "little") for i in range(n))
    return len(trie).to_bytes(4, "little") + trie + texts


class Unigram:
    def __init__(self, meta):
        self.tokens, self.types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
        self.scores = meta["tokenizer.ggml.scores"]
        self.ids = {t: i for i, t in enumerate(self.tokens) if self.types[i] == NORMAL}
        self.bytes = {self.tokens[i]: i for i, kind in enumerate(self.types) if kind == BYTE}
        self.trims = meta["tokenizer.ggml.remove_extra_whitespaces"]
        self.unknown = min(self.scores[i] for i in self.ids.values()) - 10

    def normal(self, text, begins):
        out = ""
        while text:
            key = next((text[:n] for n in range(min(len(text), 3), 0, -1) if text[:n] in REPLACED), text[0])
            out += REPLACED.get(key, key)
            text = text[len(key) :]
        if self.trims:
            out = re.sub(" +", " ", out).lstrip(" ")
        out = (SPACE if begins and out else "") + out.replace(" ", SPACE)
        return out.rstrip(SPACE) if self.trims else out

    def plain(self, text, begins):
        text = self.normal(text, begins)
        best = [(0.0, [])] + [None] * len(text)
        for at in range(len(text)):
            spelt = text[at] in self.ids
            ends = [(e, self.ids[text[at:e]]) for e in range(at + 1, len(text) + 1) if text[at:e] in self.ids]
            for end, token in ends + ([] if spelt else [(at + 1, None)]):
                score = best[at][0] + (self.unknown if token is None else self.scores[token])
                if best[end] is None or score > best[end][0]:
                    best[end] = (score, best[at][1] + [(text[at:end], token)])
        out = []
        for piece, token in best[-1][1]:
            spelt = [self.bytes.get("<0x%02X>" % b) for b in piece.encode()]
            if token is not None:
                out.append(token)
            elif None not in spelt:
                out += spelt
            elif not out or out[-1] != self.tokens.index("<unk>"):
                out.append(self.tokens.index("<unk>"))
        return out

    def encode(self, text, control):
        specials = {t: i for i, t in enumerate(self.tokens) if self.types[i] in (CONTROL, UNKNOWN)} if control else {}
        out, begins = [], True
        for piece, token in split_specials(text, specials):
            out += self.plain(piece, begins) if token is None else [token]
            begins = token is not None
        return out


def unigram_metadata(text, with_bytes, trims):
    """Pieces of words; scores are such that no two ways to spell a text are equally good but by themselves."""
    words, r = [SPACE + w for w in text.split()], random.Random(3)
    counted = {}
    for w in words:
        for a in range(len(w)):
            for b in range(a + 1, min(a + 6, len(w)) + 1):
                counted[w[a:b]] = counted.get(w[a:b], 0) + 1
    pieces = [p for _, p in sorted((-n * len(p), p) for p, n in counted.items() if len(p) > 1)[:400]]
    letters = sorted(set("".join(words)) | set("ßя"))
    hexes = ["<0x%02X>" % b for b in range(256)] if with_bytes else []
    tokens = ["<unk>", "<s>", "</s>", *hexes, *pieces, *letters]
    scores = [-(r.random() + 2 + math.log(1 + len(p))) for p in pieces] + [-(r.random() + 6) for _ in letters]
    return {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL] + [BYTE] * len(hexes) + [NORMAL] * len(scores),
        "tokenizer.ggml.scores": [0.0] * (3 + len(hexes)) + scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.remove_extra_whitespaces": trims,
        "tokenizer.ggml.precompiled_charsmap": charsmap(REPLACED),
    }


# ---- WordPiece -------------------------------------------------------------------------------------------------------
ASCII_MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
IDEOGRAPHS = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


class WordPiece:
    def __init__(self, meta):
        self.tokens, self.types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
        self.ids = {t: i for i, t in enumerate(self.tokens) if self.types[i] == NORMAL}
        self.lower = meta["tokenizer.ggml.normalizer.lowercase"]

    def words(self, text):
        out = ""
        for c in text:
            if c in "\t\n\r" or unicodedata.category(c) in ("Zs", "Zl", "Zp"):
                out += " "
            elif unicodedata.category(c) not in ("Cc", "Cf", "Co") and c != "\ufffd":
                out += " %s " % c if any(a <= ord(c) <= b for a, b in IDEOGRAPHS) else c
        if self.lower:
            out = "".join(c for c in unicodedata.normalize("NFD", out) if unicodedata.category(c) != "Mn")
            out = "".join(c.lower() for c in out)
        apart = (" %s " % c if c in ASCII_MARKS or unicodedata.category(c)[0] == "P" else c for c in out)
        return "".join(apart).split()

    def word(self, word):
        out, at, begin = [], 0, SPACE
        while at < len(word):
            end = next((e for e in range(len(word), at, -1) if begin + word[at:e] in self.ids), None)
            if end is None or len(word) > 100:
                return [self.tokens.index("[UNK]")]
            out.append(self.ids[begin + word[at:end]])
            at, begin = end, ""
        return out

    def plain(self, text):
        return [i for w in self.words(text) for i in self.word(w)]

    def encode(self, text, control):
        specials = {t: i for i, t in enumerate(self.tokens) if self.types[i] == CONTROL} if control else {}
        out = []
        for piece, token in split_specials(text, specials):
            out += self.plain(piece) if token is None else [token]
        return out


def wordpiece_metadata(text, lower):
    """The commonest words, the beginnings and the ends of others, and letters."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    meta = {"tokenizer.ggml.normalizer.lowercase": lower, "tokenizer.ggml.tokens": specials}
    meta["tokenizer.ggml.token_type"] = [CONTROL] * len(specials)
    words = WordPiece(meta).words(text)
    counted = sorted(set(words), key=lambda w: (-words.count(w), w))
    letters = sorted(set("".join(words)) | set("éßя你好가0123456789.,!"))
    begins = counted[:150] + [w[:3] for w in counted[150:300]] + letters
    goes_on = [w[3:] for w in counted[150:300] if len(w) > 3] + letters[:-20]
    tokens = list(dict.fromkeys([SPACE + w for w in begins] + goes_on))
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": specials + tokens,
        "tokenizer.ggml.token_type": [CONTROL] * len(specials) + [NORMAL] * len(tokens),
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.normalizer.lowercase": lower,
    }


# ---- texts -----------------------------------------------------------------------------------------------------------
TEXTS = [
    "", " ", "  ", "   a", "a ", "a  b", "\n", "\n\n", " \n ", "\t\t x", "\r\n",
    "a\r\n\r\nb", "\u00a0", "x\u3000y", "\u2028",
    "Hello", "Hello world", " Hello  World! ", "the worker's queue isn't empty, it's full", "I'LL GO, WE'VE DONE",
    "don't can't 'tis 'S", "''s", "1", "12", "123", "1234567890", "3.14159", "1,000,000", "٣٤٥", "½ Ⅻ ²",
    "naïve café Straße ÉCOLE", "Привет, мир", "γειά σου",
    "שלום", "العربية", "हिन्दी", "ไทย", "한국어", "你好世界",
    "Hello 👋 World 🌍", "Mixed: 日本語 English العربية", "👩‍👩‍👧‍👦 🇩🇪", "e\u0301 vs é", "ﬁ ﬂ", "a\u0000b", "\ufeffBOM",
    "CamelCaseAndHTTPServer", "snake_case_name", "a/b/c//d\n/e", "!!!???...", "(a[b]{c})", "<s>the</s>", "<unk>",
    "<|endoftext|>", "a<|endoftext|>b", "<|start|>user<|message|>Hi<|end|>", "<|marked|> text <|marked|>", "<0x41>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "worker workers\tworker workers",
    SPACE + "a" + SPACE + SPACE + "b", "\U0001f600" * 9,
    "if (x <= 10) {\n    return x * 2;  // twice\n}\n", "word " * 40,
]  # fmt: skip
ALPHABETS = [
    "abcdefgh ", "thewornk ", "ABCabc'sdtm", "0123456789.,", " \t\n\r", "éßяñ çü", "你好世界日本語",
    "👋🌍😀", ".,;:!?()/\\-_", "العربية ",
]  # fmt: skip


def texts(n_random=60):
    r = random.Random(11)
    made = []
    for _ in range(n_random):
        parts = [r.choice(ALPHABETS) for _ in range(r.randrange(1, 6))]
        made.append("".join("".join(r.choice(p) for _ in range(r.randrange(1, 9))) for p in parts))
    return TEXTS + made


def vectors(file, encoder, json_file=None):
    """Of one vocabulary; texts in hexadecimal, since some hold a zero byte."""
    cases = [
        {"hex": t.encode().hex(), "special": control, "ids": encoder.encode(t, control)}
        for t in texts()
        for control in (False, True)
    ]
    return {"file": file, "json": json_file, "cases": cases}


def make(at, sample, embedded):
    """Writes the vocabularies and vectors.json. at: path of a name; sample: text to learn from; embedded: paths."""
    patterns, all_vectors = compiled(PATTERNS), []
    learned = train(patterns["gpt-2"].findall(sample), 160)
    marks = {"<|endoftext|>": CONTROL, "<|marked|>": USER_DEFINED}
    for pre in PATTERNS:
        meta = bpe_metadata(pre, learned, marks, extra=["Ġworkers"])
        meta["tokenizer.ggml.eos_token_id"] = len(meta["tokenizer.ggml.tokens"]) - 2
        name = "vocab-" + pre
        gguf.write(at(name + ".gguf"), {"general.architecture": "llama", **meta}, {})
        with open(at(name + ".json"), "w", encoding="utf-8") as f:
            json.dump(tokenizer_json(meta, PATTERNS[pre]), f, ensure_ascii=False)
        all_vectors.append(vectors(name + ".gguf", Bpe(meta, patterns), name + ".json"))
    meta = spm_metadata(sample)
    gguf.write(at("vocab-spm.gguf"), {"general.architecture": "llama", **meta}, {})
    all_vectors.append(vectors("vocab-spm.gguf", Spm(meta)))
    for name, lower in (("vocab-wordpiece.gguf", True), ("vocab-wordpiece-cased.gguf", False)):
        meta = wordpiece_metadata(sample, lower)
        gguf.write(at(name), {"general.architecture": "bert", **meta}, {})
        all_vectors.append(vectors(name, WordPiece(meta)))
    for name, with_bytes, trims in (("vocab-unigram.gguf", False, True), ("vocab-unigram-bytes.gguf", True, False)):
        meta = unigram_metadata(sample, with_bytes, trims)
        gguf.write(at(name), {"general.architecture": "bert", **meta}, {})
        all_vectors.append(vectors(name, Unigram(meta)))
    for path in embedded:
        all_vectors.append(vectors(path, Bpe(gguf.read(path, values=False)[0], patterns)))
    with open(at("vectors.json"), "w", encoding="utf-8") as f:
        json.dump(all_vectors, f)
    return sum(len(v["cases"]) for v in all_vectors)
