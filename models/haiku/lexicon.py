"""The tables behind the haiku generator, loaded from the text files beside this one.

Owns: syllables.txt (the syllable table), words.txt (words one can ask for, by part
of speech), topics-*.txt (phrase tables) and frames.txt (line frames), the counting
of syllables, and the checks that keep the tables honest: a phrase with an unknown
word or a wrong count stops the program.  Nothing here is random.
"""

import glob
import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))
WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?|[0-9]+")
SLOTS = ('w', 'pl', 'sg', 'v', 'v3', 'adj', 'at')
FIVE, SEVEN = 5, 7
TARGETS = (FIVE, SEVEN, FIVE)


def _lines(name):
    with open(os.path.join(HERE, name), encoding='utf-8') as f:
        for line in f:
            line = line.rstrip('\n')
            if line and not line.startswith('#'):
                yield line


def _syllable_table():
    table = {}
    for line in _lines('syllables.txt'):
        n, *words = line.split()
        for w in words:
            table[w] = int(n)
    return table


SYLLABLES = _syllable_table()

ONES = (
    'zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen '
    'fifteen sixteen seventeen eighteen nineteen'
).split()
TENS = '_ _ twenty thirty forty fifty sixty seventy eighty ninety'.split()


def spell(n):
    """0..99 in words: 42 -> "forty-two"."""
    if n < 20:
        return ONES[n]
    return TENS[n // 10] + ('-' + ONES[n % 10] if n % 10 else '')


def estimate(word):
    """Syllables of a word that is not in the table, by its vowel groups."""
    w = word.lower()
    n = len(re.findall('[aeiouy]+', w))
    if n > 1 and re.search('[^aeiouyl]e$', w):
        n -= 1
    return max(n, 1)


def syllables(text, strict=False):
    """Syllables of a line.  strict: None when a word is not in the table."""
    total = 0
    for w in WORD.findall(text):
        if w.isdigit():
            if len(w) > 2:
                return None if strict else total + 3 * len(w)
            total += syllables(spell(int(w)))
            continue
        n = SYLLABLES.get(w.lower())
        if n is None:
            if strict:
                return None
            n = estimate(w)
        total += n
    return total


def third_person(verb):
    """wait -> waits, rush -> rushes, carry -> carries."""
    if re.search('(s|x|z|ch|sh|o)$', verb):
        return verb + 'es'
    if re.search('[^aeiou]y$', verb):
        return verb[:-1] + 'ies'
    return verb + 's'


PLURALS = {
    'child': 'children',
    'mouse': 'mice',
    'wolf': 'wolves',
    'leaf': 'leaves',
    'piano': 'pianos',
    'kangaroo': 'kangaroos',
    'avocado': 'avocados',
    'taco': 'tacos',
    'gecko': 'geckos',
    'matrix': 'matrices',
    'half': 'halves',
}


def plural(noun):
    """lamp -> lamps, fox -> foxes, lily -> lilies."""
    return PLURALS.get(noun) or third_person(noun)


class Topic:
    """One topic: its names and its phrase tables, every entry with its syllables."""

    def __init__(self, name):
        self.name = name
        self.names = [name]
        self.lines = {'a': [], 'b': [], 'c': []}
        self.slots = {}

    def add(self, key, rest):
        if key == 'also':
            self.names += [s.strip() for s in rest.split('|')]
        elif key in ('pl', 'sg', 'v', 'adj'):
            self.slots[key] = [(w, syllables(w, True)) for w in rest.split()]
            if key == 'v':
                self.slots['v3'] = [(third_person(w), syllables(third_person(w), True)) for w in rest.split()]
        elif key == 'at':
            self.slots['at'] = [(p.strip(), syllables(p, True)) for p in rest.split('|')]
        elif key in self.lines:
            self.lines[key] += [p.strip() for p in rest.split('|')]
        else:
            raise ValueError('unknown key %r in topic %s' % (key, self.name))

    def check(self):
        for key, want in zip('abc', TARGETS):
            for line in self.lines[key]:
                if syllables(line, True) != want:
                    raise ValueError(
                        'topic %s: %r has %s syllables, not %d' % (self.name, line, syllables(line, True), want)
                    )
        for slot, entries in self.slots.items():
            for text, n in entries:
                if n is None:
                    raise ValueError('topic %s: %s %r is not in the syllable table' % (self.name, slot, text))


def _topics():
    topics = []
    for path in sorted(glob.glob(os.path.join(HERE, 'topics-*.txt'))):
        for line in _lines(os.path.basename(path)):
            key, _, rest = line.partition(' ')
            if key == 'topic':
                topics.append(Topic(rest.strip()))
            else:
                topics[-1].add(key, rest)
    for t in topics:
        t.check()
    return {t.name: t for t in topics}


_ALL = _topics()
ANYTHING = _ALL.pop('*')  # lines that go with any subject
TOPICS = _ALL  # name -> Topic
GPU = TOPICS['GPU computing']


class Word:
    """A word to include: its text, the frame class that fits it, its syllables."""

    __slots__ = ('text', 'cls', 'syl')

    def __init__(self, text, cls, syl=None):
        self.text, self.cls = text, cls
        self.syl = syllables(text) if syl is None else syl


def _words():
    words = {}
    for line in _lines('words.txt'):
        cls, *rest = line.split()
        for w in rest:
            if syllables(w, True) is None:
                raise ValueError('word %r is not in the syllable table' % w)
            words.setdefault(w, [])
            if cls not in words[w]:
                words[w].append(cls)
    for w in [w for w, c in words.items() if c[0] == 'n']:
        p = plural(w)
        if syllables(p, True) is None:
            raise ValueError('the plural %r is not in the syllable table' % p)
        words.setdefault(p, ['p'])
    return words


MINUTES = [spell(n) for n in range(60)]
WORDS = _words()  # word -> list of classes
for _m in MINUTES:
    WORDS[_m] = ['one' if _m == 'one' else 'num']
ORDINARY = [w for w in WORDS if w not in set(MINUTES)]


class Frame:
    """A line frame: text with slots, and the syllables of its fixed words."""

    __slots__ = ('text', 'slots', 'fixed', 'first')

    def __init__(self, text):
        self.first = not text.startswith('>')
        self.text = text.lstrip('> ')
        self.slots = re.findall(r'\{(\w+)\}', self.text)
        rest = re.sub(r'\{\w+\}', ' ', self.text)
        self.fixed = syllables(rest, True)
        if self.fixed is None or any(s not in SLOTS for s in self.slots):
            raise ValueError('bad frame %r' % text)


def _frames():
    frames, cls = {}, None
    for line in _lines('frames.txt'):
        if line.startswith('class '):
            cls = line.split()[1]
            frames[cls] = []
        else:
            frames[cls] += [Frame(p.strip()) for p in line.split(' | ')]
    return frames


FRAMES = _frames()

_AN = re.compile(r"\b([Aa]) (?=([A-Za-z'-]+))")
_SAYS_Y = re.compile(r'(one|once|uni[a-z]|use|usu|eu)', re.I)
_MUTE_H = re.compile(r'(honest|hour|heir)', re.I)


def articles(line):
    """a -> an before a vowel sound."""

    def fix(m):
        w = m.group(2)
        vowel = (w[0] in 'aeiouAEIOU' and not _SAYS_Y.match(w)) or _MUTE_H.match(w)
        return m.group(1) + ('n ' if vowel else ' ')

    return _AN.sub(fix, line)
