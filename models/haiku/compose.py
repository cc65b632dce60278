"""Composes haiku: three lines of 5, 7 and 5 syllables about a topic, with given words.

Owns the choice of lines and the filling of frames.  A line is either a phrase
from the topic's tables or a frame filled by rejection: slots are drawn at random
until the syllables come out right.  All randomness comes from the caller's rng.
"""

import lexicon as lx

STOP = set(
    'a an the and then of in on at to it is one all no only with some into from for by like its they that still now '
    'under over before after again half our my i'.split()
)


def _content(line):
    return {w.lower() for w in lx.WORD.findall(line)} - STOP


def fill(rng, frame, topic, word, want, tries=14):
    """One frame filled to `want` syllables, or None."""
    need = want - frame.fixed - (frame.slots.count('w') * word.syl if word else 0)
    slots = [s for s in frame.slots if s != 'w']
    if need < len(slots) or (not slots and need):
        return None
    for _ in range(tries if slots else 1):
        picks, left, used = [], need, set()
        for i, s in enumerate(slots):
            entries = topic.slots[s]
            if i == len(slots) - 1:  # the last slot must fit exactly
                entries = [e for e in entries if e[1] == left]
                if not entries:
                    break
            text, n = entries[int(rng.random() * len(entries))]
            stem = text.rstrip('s')
            if text in used or stem in used or (word and text.rstrip('s') == word.text.lower().rstrip('s')):
                break
            used.add(text)
            used.add(stem)
            picks.append(text)
            left -= n
        if len(picks) != len(slots) or left:
            continue
        it = iter(picks)
        line = ''.join(
            part if k % 2 == 0 else (word.text if part == 'w' else next(it))
            for k, part in enumerate(_split(frame.text))
        )
        return lx.articles(line)
    return None


_cache = {}


def _split(text):
    parts = _cache.get(text)
    if parts is None:
        parts = _cache[text] = lx.re.split(r'\{(\w+)\}', text)
    return parts


def word_line(rng, topic, word, index, tries=60):
    """A line of the haiku (index 0..2) that contains the word, or None."""
    frames = lx.FRAMES[word.cls]
    for _ in range(tries):
        f = frames[int(rng.random() * len(frames))]
        if index == 0 and not f.first:
            continue
        line = fill(rng, f, topic, word, lx.TARGETS[index])
        if line:
            return line
    return None


def plain_line(rng, topic, index, free=0.25):
    """A line without a given word: mostly a written phrase, sometimes a filled frame."""
    if rng.random() < free:
        frames = lx.FRAMES['free']
        for _ in range(30):
            f = frames[int(rng.random() * len(frames))]
            if index == 0 and not f.first:
                continue
            line = fill(rng, f, topic, None, lx.TARGETS[index])
            if line:
                return line
    return rng.choice(topic.lines['abc'[index]])


PLACES = {
    1: ([1], [1], [1], [1], [0], [0], [2], [2]),
    2: ([0, 1], [1, 0], [1, 2], [2, 1], [0, 2], [2, 0]),
    3: ([0, 1, 2], [2, 1, 0], [1, 0, 2]),
}


def haiku(rng, topic, words=()):
    """Three lines about a topic that contain each of the (at most three) words.

    LookupError when the words do not fit this topic's tables.
    """
    for _ in range(50):
        lines = [None] * 3
        for word, index in zip(words, rng.choice(PLACES[len(words)]) if words else ()):
            lines[index] = word_line(rng, topic, word, index)
            if lines[index] is None:
                break
        else:
            for i in range(3):
                if lines[i] is None:
                    lines[i] = plain_line(rng, topic, i)
            sets = [_content(x) for x in lines]
            if (sets[0] & sets[1]) or (sets[1] & sets[2]) or (sets[0] & sets[2]):
                continue
            r = rng.random()
            if r < 0.12:
                lines[0] += ' -'
            elif r < 0.18:
                lines[1] += ' -'
            return lines
    raise LookupError('no haiku about %s with %s' % (topic.name, [w.text for w in words]))
