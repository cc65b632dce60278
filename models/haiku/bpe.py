"""Byte-level byte-pair encoding, trained on the corpus and applied to it.

Owns the vocabulary: 256 byte tokens, then one token per merge, then the control
tokens.  The pre-tokenizer is GPT-2's regex and the encoder merges by rank, so any
reader of `tokenizer.ggml.model = gpt2`, `pre = gpt-2` gives the same ids.
"""

import re
from collections import Counter, defaultdict

# GPT-2's pattern; [^\W\d_] stands for \p{L} and \d for \p{N}, which agree on the text of this corpus.
PRETOKEN = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def byte_alphabet():
    """GPT-2's printable character for each byte."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {}, 0
    for b in range(256):
        if b in keep:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + extra)
            extra += 1
    return table


BYTE = byte_alphabet()
CHAR = {c: b for b, c in BYTE.items()}


def to_chars(text):
    return ''.join(BYTE[b] for b in text.encode('utf-8'))


def train(texts, merges):
    """The first `merges` merges over the texts, most frequent pair first, ties by text."""
    words = Counter()
    for t in texts:
        words.update(PRETOKEN.findall(t))
    pieces = [[list(to_chars(w)), n] for w, n in words.items()]
    counts, where = Counter(), defaultdict(set)
    for i, (p, n) in enumerate(pieces):
        for pair in zip(p, p[1:]):
            counts[pair] += n
            where[pair].add(i)
    out = []
    while len(out) < merges and counts:
        best = max(counts.items(), key=lambda kv: (kv[1], kv[0]))
        if best[1] < 2:
            break
        a, b = best[0]
        out.append((a, b))
        for i in list(where[a, b]):
            p, n = pieces[i]
            for pair in zip(p, p[1:]):
                counts[pair] -= n
                where[pair].discard(i)
            q, k = [], 0
            while k < len(p):
                if k + 1 < len(p) and p[k] == a and p[k + 1] == b:
                    q.append(a + b)
                    k += 2
                else:
                    q.append(p[k])
                    k += 1
            pieces[i][0] = q
            for pair in zip(q, q[1:]):
                counts[pair] += n
                where[pair].add(i)
        counts = +counts
    return out


class Tokenizer:
    """tokens: every token's text in GPT-2's alphabet; merges in rank order."""

    def __init__(self, merges, specials):
        self.merges = merges
        self.tokens = [BYTE[b] for b in range(256)] + [a + b for a, b in merges] + list(specials)
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self.rank = {m: i for i, m in enumerate(merges)}
        self.special = {s: self.ids[s] for s in specials}
        self.cache = {}

    def _word(self, word):
        ids = self.cache.get(word)
        if ids is None:
            p = list(to_chars(word))
            while len(p) > 1:
                r, k = min((self.rank.get(pair, 1 << 30), k) for k, pair in enumerate(zip(p, p[1:])))
                if r == 1 << 30:
                    break
                p[k : k + 2] = [p[k] + p[k + 1]]
            ids = [self.ids[t] for t in p]
            if len(self.cache) < 200000:
                self.cache[word] = ids
        return ids

    def encode(self, text):
        """Ordinary text to ids; control tokens are not recognised here."""
        out = []
        for w in PRETOKEN.findall(text):
            out += self._word(w)
        return out

    def encode_pieces(self, pieces):
        """[(text or control token, weight)] to ids and weights.

        Neighbouring pieces of ordinary text are encoded apart only at a control
        token, as a reader of the whole text would do.
        """
        ids, weights, run, spans = [], [], '', []

        def flush():
            at, k = 0, 0
            for w in PRETOKEN.findall(run):
                while k < len(spans) - 1 and at >= spans[k][0]:
                    k += 1
                t = self._word(w)
                ids.extend(t)
                weights.extend([spans[k][1]] * len(t))
                at += len(w)

        for text, weight in pieces:
            if text in self.special:
                flush()
                run, spans = '', []
                ids.append(self.special[text])
                weights.append(weight)
            elif text:
                run += text
                spans.append((len(run), weight))
        flush()
        return ids, weights

    def decode(self, ids):
        n = len(self.tokens) - len(self.special)
        raw = b''.join(bytes(CHAR[c] for c in self.tokens[i]) for i in ids if i < n)
        return raw.decode('utf-8', 'replace')
