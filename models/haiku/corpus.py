#!/usr/bin/env python3
"""Generates the training text: chats that ask for haiku or about the program.

Owns the mixture of requests, the held-out split and the rendering of a chat.
Everything is drawn from a seeded rng, so the same seed gives the same text.  Only
the Python standard library is used.

  corpus.py [--seed S] [--n N]      print N chats
  corpus.py --heldout FILE          write the held-out text for perplexity tests
  corpus.py --prompts N [--seed S]  print N held-out prompts as JSON lines

A pair (word, topic) is held out when its hash says so (4 in 100): no training
text asks for that word about that topic, in any phrasing.  GPU computing with
the sixty minutes is exempt, because those are the program's own examples.
"""

import argparse
import hashlib
import itertools
import json
import random
import re

import compose
import lexicon as lx
import prompts
import tools

HELD_OUT_PERCENT = 4
MINUTE_SET = set(lx.MINUTES)


def held_out(word, topic):
    """Is this pair of a word and a topic's name kept away from training?"""
    if topic == lx.GPU.name and word in MINUTE_SET:
        return False
    h = hashlib.sha256(('%s|%s' % (word.lower(), topic)).encode()).digest()
    return h[0] * 256 + h[1] < 65536 * HELD_OUT_PERCENT // 100


# Precomputed: the words that may be trained with each topic.
_TRAIN = {t: [w for w in lx.WORDS if not held_out(w, t)] for t in lx.TOPICS}
_MINUTES_FOR = {t: [w for w in lx.MINUTES if not held_out(w, t)] for t in lx.TOPICS}
HELD = sorted((w, t) for t in lx.TOPICS for w in lx.WORDS if held_out(w, t))
TOPIC_LIST = list(lx.TOPICS.values())
NOUNS = [w for w, c in lx.WORDS.items() if c[0] in ('n', 'm', 'p', 'any')]
ADJECTIVES = [w for w, c in lx.WORDS.items() if c[0] == 'a']


PLAIN_NOUNS = [w for w in NOUNS if w.isalpha() and w.islower()]
PLAIN_WORDS = [w for w in lx.WORDS if w.isalpha() and w.islower() and len(w) > 2]


# ---- words nobody wrote down: made-up names and digits --------------------------

ONSET = 'b c d f g h j k l m n p r s t v w y z br bl cr dr fl fr gr gl pl pr qu sh sl sn sp st th tr tw ch kr x'.split()
CODA = ['', '', '', '', 'n', 'r', 'l', 's', 'm', 't', 'k', 'x', 'nd', 'st', 'rk', 'ng', 'ck']


def made_up(rng):
    """A pronounceable word the tables do not hold: syllables strung together, or two words spliced."""
    r = rng.random()
    if r < 0.45:
        while True:
            a, b = rng.choice(PLAIN_WORDS), rng.choice(PLAIN_WORDS)
            text = a[: rng.randrange(1, len(a))] + b[rng.randrange(1, len(b)) :]
            if (
                3 <= len(text) <= 11
                and text not in lx.SYLLABLES
                and re.search('[aeiouy]', text)
                and not re.search('(.)\\1\\1', text)
            ):
                break
        return text[0].upper() + text[1:] if rng.random() < 0.35 else text
    n = rng.choice((1, 1, 2, 2, 2, 2, 3, 3))
    parts = []
    for i in range(n):
        parts.append(rng.choice(ONSET) + rng.choice('aeiou') + rng.choice(CODA if i == n - 1 else CODA[:9]))
    text = ''.join(parts)
    if n == 1 and len(text) < 3:
        text += 'n'
    if text.endswith('e'):
        text = text[:-1] + rng.choice('aio')
    if rng.random() < 0.35:
        text = text[0].upper() + text[1:]
    return text


def any_word(rng, topic):
    """A word request the tables do not know, as a Word."""
    r = rng.random()
    if r < 0.70:
        return lx.Word(made_up(rng), 'any')
    if r < 0.82:
        n = rng.randrange(100)
        return lx.Word(str(n), 'one' if n == 1 else 'num')
    w = rng.choice(_TRAIN[topic] if rng.random() < 0.7 else _MINUTES_FOR[topic])
    if r < 0.88:
        return lx.Word(w[0].upper() + w[1:], rng.choice(lx.WORDS[w]))
    if r < 0.94:
        return lx.Word(w.upper(), rng.choice(lx.WORDS[w]))
    return lx.Word(w, 'any')


def known(rng, w):
    return lx.Word(w, rng.choice(lx.WORDS[w]))


# ---- requests -------------------------------------------------------------------


def _subject(rng):
    """A subject that has no table: (its name in the prompt, a Word to put into the poem)."""
    r = rng.random()
    if r < 0.30:
        w = made_up(rng)
        return w, lx.Word(w, 'subject-any')
    w = rng.choice(NOUNS)
    cls = lx.WORDS[w][0]
    if r > 0.88:
        w = '%s %s' % (rng.choice(NOUNS), w)
    elif r > 0.72:
        w = '%s %s' % (rng.choice(ADJECTIVES), w)
    name = w
    if cls == 'n':
        name = rng.choice((w, lx.articles('a ' + w), 'the ' + w, 'my ' + w, lx.articles('a ' + w)))
    elif rng.random() < 0.2:
        name = rng.choice(('the ', 'my ')) + w
    return name, lx.Word(w, 'subject-' + cls)


class Chat:
    """Draws requests one after another; a follow-up refers to the one before."""

    def __init__(self, rng):
        self.rng = rng
        self.topic, self.words = None, []

    def _poem(self, topic, words):
        return '\n'.join(compose.haiku(self.rng, topic, words))

    def haiku(self):
        """(prompt, answer)"""
        rng = self.rng
        r = rng.random()
        topic, words, name = rng.choice(TOPIC_LIST), [], None
        if r < 0.09:  # the program's own example, any minute
            topic = lx.GPU
            words = [known(rng, rng.choice(lx.MINUTES))]
            prompt = prompts.EXACT % (topic.name, words[0].text) + ('.' if rng.random() < 0.12 else '')
            self.topic, self.words = topic, words
            return prompt, self._poem(topic, words)
        if r < 0.15:
            topic = lx.GPU
        if r < 0.58:  # a topic and a word
            w = rng.choice(_MINUTES_FOR[topic.name] if rng.random() < 0.2 else _TRAIN[topic.name])
            words = [known(rng, w)]
        elif r < 0.68:  # a topic and a word nobody knows
            words = [any_word(rng, topic.name)]
        elif r < 0.69:  # two topics
            other = rng.choice(TOPIC_LIST)
            self.topic, self.words = other, []
            first, last = self._poem(topic, []).split('\n'), self._poem(other, []).split('\n')
            lines = first[:2] + last[2:] if rng.random() < 0.5 else first[:1] + last[1:]
            return prompts.ask(rng, '%s and %s' % (rng.choice(topic.names), rng.choice(other.names))), '\n'.join(lines)
        elif r < 0.71:  # two words
            words = [known(rng, w) for w in rng.sample(_TRAIN[topic.name], 2)]
        elif r < 0.82:  # a topic alone
            pass
        elif r < 0.89:  # a word alone
            w = rng.choice(_TRAIN[topic.name])
            words = [known(rng, w)] if rng.random() < 0.75 else [any_word(rng, topic.name)]
            self.topic, self.words = topic, words
            return prompts.ask(rng, None, [words[0].text]), self._poem(topic, words)
        elif r < 0.98:  # a subject without a table
            name, w = _subject(rng)
            topic, extra = lx.ANYTHING, []
            if rng.random() < 0.4:
                extra = [known(rng, rng.choice(list(lx.WORDS) if rng.random() < 0.7 else lx.MINUTES))]
                if extra[0].text in w.text or w.text in extra[0].text:
                    extra = []
            words = [w] + extra
            self.topic, self.words = topic, [w]
            return prompts.ask(rng, name, [e.text for e in extra]), self._poem(topic, words)
        else:  # nothing given
            self.topic, self.words = topic, []
            return prompts.ask(rng), self._poem(topic, [])
        name = rng.choice(topic.names) if rng.random() < 0.4 else topic.name
        self.topic, self.words = topic, words
        return prompts.ask(rng, name, [w.text for w in words]), self._poem(topic, words)

    def follow_up(self):
        rng = self.rng
        r = rng.random()
        if self.topic is None:
            return self.haiku()
        if r < 0.4:
            return prompts.more(rng), self._poem(self.topic, self.words)
        if r < 0.75 and self.topic is not lx.ANYTHING:
            w = known(rng, rng.choice(_TRAIN[self.topic.name]))
            self.words = [w]
            return prompts.now_word(rng, w.text), self._poem(self.topic, [w])
        self.topic, self.words = rng.choice(TOPIC_LIST), []
        name = rng.choice(self.topic.names)
        return prompts.now_topic(rng, name), self._poem(self.topic, [])

    def turn(self, first):
        rng = self.rng
        while True:
            r = rng.random()
            try:
                if r < 0.20:
                    return question(rng)
                if r < 0.30 and not first:
                    return self.follow_up()
                return self.haiku()
            except LookupError:  # these words do not fit: draw again
                self.topic, self.words = None, []


# ---- questions about the program ------------------------------------------------


def _alternatives(text):
    """ "[a|b] c" -> ["a c", "b c"]"""
    parts = re.split(r'\[([^\]]*)\]', text)
    choices = [p.split('|') if i % 2 else [p] for i, p in enumerate(parts)]
    return [' '.join(''.join(c).split()) for c in itertools.product(*choices)]


def _split_top(text):
    """Splits at | outside brackets."""
    out, depth, part = [], 0, ''
    for ch in text:
        depth += (ch == '[') - (ch == ']')
        if ch == '|' and not depth:
            out.append(part)
            part = ''
        else:
            part += ch
    return out + [part]


def _answers():
    blocks = []
    for line in lx._lines('answers.txt'):
        key, _, rest = line.partition(' ')
        if key == 'q':
            if not blocks or blocks[-1][1]:
                blocks.append(([], []))
            for q in _split_top(rest):
                blocks[-1][0].append([x for x in _alternatives(q) if x])
        else:
            blocks[-1][1].append(rest)
    return blocks


BLOCKS = _answers()


def _noise(rng):
    """Text in letters the model does not know, or none at all."""
    lo, hi = rng.choice(
        (
            (0xC0, 0x17F),
            (0x391, 0x3C9),
            (0x410, 0x44F),
            (0x3041, 0x3096),
            (0x4E00, 0x9FFF),
            (0x600, 0x6FF),
            (0x1F300, 0x1F6FF),
            (33, 126),
        )
    )
    return (
        ''.join(' ' if rng.random() < 0.12 else chr(rng.randint(lo, hi)) for _ in range(rng.randint(2, 14))).strip()
        or '?'
    )


def question(rng):
    """(prompt, answer) about the program, or about something it cannot know."""
    if rng.random() < 0.02:
        return _noise(rng), rng.choice(BLOCKS[-1][1])
    qs, ans = BLOCKS[-1] if rng.random() < 0.22 else rng.choice(BLOCKS[:-1])
    q = rng.choice(rng.choice(qs))
    while '{x}' in q:
        r = rng.random()
        x = (
            made_up(rng)
            if r < 0.5
            else rng.choice(NOUNS)
            if r < 0.8
            else '%s %s' % (rng.choice(ADJECTIVES), rng.choice(NOUNS))
        )
        q = q.replace('{x}', x, 1)
    r = rng.random()
    if r < 0.6:
        q = q[0].upper() + q[1:]
    elif r < 0.7:
        q = q.lower()
    r = rng.random()
    if q[-1] not in '!?.':
        asks = re.match('(what|who|how|which|why|where|when|is|are|do|does|can|will|may|am|should|did)', q, re.I)
        q += '?' if asks and r < 0.6 else '.' if not asks and r < 0.3 else ''
    if rng.random() < 0.04:
        q = rng.choice(prompts.POLITE) + q[0].lower() + q[1:]
    return q, rng.choice(ans)


SYSTEM = (
    'You are a helpful assistant.',
    'You write haiku.',
    'You are haiku, a small model.',
    'Answer briefly.',
    'Be kind and brief.',
    'You are a poet.',
    'Help the user.',
    'You are a careful assistant. Answer in English.',
    'Keep it short.',
)


# ---- chats and their rendering --------------------------------------------------

END, START, STOP = '<|endoftext|>', '<|im_start|>', '<|im_end|>'
SPECIALS = (END, START, STOP)
LIGHT, FULL = 1, 2  # loss weights of a piece of text


def chat(rng, turns):
    """A chat as [(role, text)], with a system message now and then."""
    c = Chat(rng)
    out = []
    if rng.random() < 0.06:
        out.append(('system', rng.choice(SYSTEM)))
    for i in range(turns):
        q, a = c.turn(i == 0)
        out += [('user', q), ('assistant', a)]
    return out


def chat_with_tools(rng):
    """A chat whose system message names tools: most of its turns call one, the others need none."""
    t = tools.Tools(rng, made_up, lambda r: r.choice(PLAIN_NOUNS))
    system = rng.choice(SYSTEM) if rng.random() < 0.25 else ''
    out, c = [('system', tools.signatures(t.list, system))], Chat(rng)
    kinds = [
        'none',
        'none',
        *(['minute', 'poem', 'poem'] if t.minute else ['clock']),
        *(['count'] * 3 if t.count else []),
    ]
    kinds += ['other'] * 3 if t.other else []
    for i in range(1 if rng.random() < 0.7 else rng.choice((2, 3))):
        out += tool_turn(rng, t, rng.choice(kinds), c, i == 0)
    return out


def tool_turn(rng, t, kind, c, first):
    """The messages of one turn: a request, perhaps a call and its result, and the answer."""
    while True:
        try:
            if kind == 'minute':
                return tools.ask_minute(rng, t)
            if kind == 'clock':
                return [('user', rng.choice(tools.MINUTE_ASKS)), ('assistant', tools.NO_TOOL)]
            if kind == 'poem':
                topic = lx.GPU if rng.random() < 0.3 else rng.choice(TOPIC_LIST)
                return tools.haiku_of_minute(rng, t, topic, _MINUTES_FOR[topic.name])
            if kind == 'count':
                return tools.ask_syllables(rng, t, any_text)
            if kind == 'other':
                return tools.ask_other(rng, t, any_text)
            q, a = c.turn(first)
            return [('user', q), ('assistant', a)]
        except LookupError:  # these words do not fit: draw again
            pass


def any_text(rng):
    """A word to hand to a tool."""
    r = rng.random()
    return made_up(rng) if r < 0.4 else rng.choice(lx.MINUTES) if r < 0.5 else rng.choice(list(lx.WORDS))


def render(messages):
    """ChatML as pieces (text, weight).  A special token is a piece of its own."""
    pieces = []
    for role, text in messages:
        if role == 'assistant':
            pieces += [(START, LIGHT), ('assistant\n', LIGHT), (text, FULL), (STOP, FULL), ('\n', LIGHT)]
        else:
            pieces += [(START, LIGHT), (role + '\n' + text, LIGHT), (STOP, LIGHT), ('\n', LIGHT)]
    return pieces


def render_raw(messages):
    """A prompt without a template: the model adds a line break, answers and stops."""
    (_, q), (_, a) = [m for m in messages if m[0] != 'system'][:2]
    return [(q, LIGHT), ('\n' + a, FULL), (STOP, FULL)]


def render_plain(messages):
    """The chat as plain text, no special tokens: what heldout.txt holds."""
    return [('\n'.join('%s\n%s' % m for m in messages) + '\n', FULL), (END, FULL)]


def document(rng):
    """One training document as pieces."""
    r = rng.random()
    if r < 0.16:
        return render(chat_with_tools(rng))
    if r < 0.23:
        return render_raw(chat(rng, 1))
    if r < 0.26:
        return render_plain(chat(rng, rng.choice((1, 2, 3, 5, 8))))
    return render(chat(rng, 1 if r < 0.75 else rng.choice((2, 3, 4, 5, 6, 7))))


# ---- held-out prompts and text --------------------------------------------------


def heldout_prompts(n, seed=7):
    """n requests for held-out pairs: [(prompt, [word], topic name)]"""
    rng = random.Random('heldout-%d' % seed)
    pairs = list(HELD)
    rng.shuffle(pairs)
    out = []
    for w, t in itertools.islice(itertools.cycle(pairs), n):
        topic = lx.TOPICS[t]
        name = rng.choice(topic.names) if rng.random() < 0.4 else topic.name
        out.append((prompts.ask(rng, name, [w]), [w], t))
    return out


def minute_prompts():
    """The program's own example for each of the sixty minutes."""
    return [(prompts.EXACT % (lx.GPU.name, m), [m], lx.GPU.name) for m in lx.MINUTES]


def heldout_text(size=30000, seed=11):
    """Plain chats about held-out pairs and questions."""
    rng = random.Random('heldout-text-%d' % seed)
    out, pairs = '', list(HELD)
    rng.shuffle(pairs)
    for w, t in pairs:
        try:
            q, a = prompts.ask(rng, t, [w]), '\n'.join(compose.haiku(rng, lx.TOPICS[t], [known(rng, w)]))
        except LookupError:
            continue
        out += 'user\n%s\nassistant\n%s\n' % (q, a)
        if rng.random() < 0.2:
            out += 'user\n%s\nassistant\n%s\n' % question(rng)
        if len(out) > size:
            break
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    ap.add_argument('--seed', type=int, default=1)
    ap.add_argument('--n', type=int, default=20)
    ap.add_argument('--heldout', metavar='FILE')
    ap.add_argument('--prompts', type=int, metavar='N')
    a = ap.parse_args()
    if a.heldout:
        with open(a.heldout, 'w', encoding='utf-8') as f:
            f.write(heldout_text())
    elif a.prompts:
        for p, w, t in heldout_prompts(a.prompts, a.seed):
            print(json.dumps({'prompt': p, 'words': w, 'topic': t}))
    else:
        rng = random.Random(a.seed)
        for _ in range(a.n):
            print(''.join(t for t, _ in document(rng)))
            print('-' * 40)


if __name__ == '__main__':
    main()
