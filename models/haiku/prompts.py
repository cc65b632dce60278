"""The ways to ask for a haiku.

Owns the phrasings: a request is built from an opening, a form, a topic part and a
word part in any order, with or without quotes, capitals, politeness and a full
stop.  EXACT is the phrasing the program's own examples use.
"""

EXACT = 'Write a haiku about %s that includes the word "%s"'
EXACT_TOPIC = 'Write a haiku about %s'

ASK = (
    'Write',
    'Write',
    'Write',
    'Write me',
    'Compose',
    'Give me',
    'Make',
    'Make me',
    'Create',
    'I want',
    "I'd like",
    'I would like',
    'I need',
    'Please write',
    'Please compose',
    'Can you write',
    'Could you write',
    'Could you write me',
    'Would you write',
    'Show me',
    'Tell me',
    'Let me see',
    'Let me have',
    'Produce',
    'Generate',
    'Craft',
    'Try',
    'Please give me',
    'Can I have',
    'How about',
    'Now write',
    'Please make',
    'Will you write',
)
FORM = (
    'a haiku',
    'a haiku',
    'a haiku',
    'a haiku',
    'a haiku',
    'a short haiku',
    'one haiku',
    'a small haiku',
    'a nice haiku',
    'haiku',
    'a haiku poem',
    'a poem',
    'a short poem',
    'a poem of three lines',
    'a 5-7-5 poem',
    'a three-line poem',
    'three lines',
    'a new haiku',
    'a little poem',
    'a beautiful haiku',
    'some haiku',
    'a funny haiku',
    'a verse',
)
TOPIC = (
    'about {t}',
    'about {t}',
    'about {t}',
    'about {t}',
    'about {t}',
    'on {t}',
    'on the topic of {t}',
    'on the subject of {t}',
    'whose topic is {t}',
    'with {t} as its theme',
    'on the theme of {t}',
    'dedicated to {t}',
    'that is about {t}',
    'which talks about {t}',
    'concerning {t}',
    'for {t}',
    'describing {t}',
    'inspired by {t}',
)
WORD = (
    'that includes the word {w}',
    'that includes the word {w}',
    'that contains the word {w}',
    'including the word {w}',
    'containing the word {w}',
    'containing {w}',
    'with the word {w}',
    'with the word {w} in it',
    'using the word {w}',
    'that uses the word {w}',
    'which uses {w}',
    'which includes {w}',
    'that has the word {w} in it',
    'featuring the word {w}',
    'that mentions {w}',
    'and use the word {w}',
    'and include the word {w}',
    'and mention {w}',
    'where the word {w} appears',
    'that includes {w}',
    'with {w} in it',
    'that must contain the word {w}',
    'which has to include the word {w}',
    'in which the word {w} occurs',
)
ALSO = (
    'It must contain the word {w}',
    'Include the word {w}',
    'Use the word {w}',
    'It should include the word {w}',
    'The word {w} must appear',
    'Make sure it has the word {w}',
    'Please include {w}',
    'The word is {w}',
    'Word: {w}',
    'Mention {w}',
    'It has to include {w}',
)
LEAD_W = (
    'Using the word {w}, write {f} {t}',
    'With the word {w}, {a} {f} {t}',
    'Use the word {w} in {f} {t}',
    'Use {w} in {f} {t}',
    'Put the word {w} into {f} {t}',
    'The word is {w}. Write {f} {t}',
    'Take the word {w} and write {f} {t}',
    'Include the word {w}: {f} {t}',
)
CARD = (
    'Topic: {T}. Word: {w}. Haiku please',
    'topic {T}, word {w}, haiku',
    'Haiku, topic {T}, word {w}',
    'haiku: {T}, {w}',
    'Haiku about {T} with {w}',
    'haiku {T} {w}',
    'Haiku. Topic: {T}. Must include: {w}',
    '{T}, with the word {w}',
    'topic={T} word={w}',
    'A haiku about {T} and the word {w}',
    'Topic: {T}\nWord: {w}\nHaiku:',
)
CARD_T = (
    'Haiku about {T}',
    'haiku: {T}',
    'Topic: {T}. Haiku please',
    '{T} haiku',
    'Haiku on {T}',
    'haiku {T}',
    'A {T} haiku',
    '{T}, as a haiku',
    'Something about {T}',
    '{T}',
    '{T}',
    'A haiku about {T}',
    'a few lines about {T}',
    'Topic: {T}',
)
CARD_W = (
    'Haiku with {w}',
    'haiku with the word {w}',
    'A haiku that includes {w}',
    'A haiku with the word {w}',
    'haiku, word {w}',
    'The word is {w}',
    'Word: {w}. Haiku please',
    'Say something with {w}',
    'Use {w} in a haiku',
    'Use the word {w}',
    'haiku containing {w}',
)
BARE = (
    'Write a haiku',
    'A haiku, please',
    'haiku',
    'Write me a haiku',
    'Write a poem',
    'One haiku please',
    'Surprise me',
    'Give me a haiku',
    'Write something',
    'Any haiku',
    'Tell me a haiku',
    'Can you write a haiku',
    'Write a haiku about anything',
    'poem',
    'a haiku',
    'Write a haiku for me',
)
MORE = (
    'Another one',
    'Another',
    'One more',
    'Again',
    'another one please',
    'Once more',
    'More',
    'Another haiku',
    'Write another one',
    'Try again',
    'And another',
    'Same again',
    'A different one',
    'another haiku please',
    'One more please',
)
NOW_W = (
    'Now with the word {w}',
    'now with {w}',
    'Another with the word {w}',
    'The same with the word {w}',
    'Now include the word {w}',
    'And with {w}',
    'Use the word {w} this time',
    'One more, with the word {w}',
    'what about the word {w}',
)
NOW_T = (
    'Now about {T}',
    'now about {T}',
    'And one about {T}',
    'Another about {T}',
    'What about {T}',
    'One about {T}',
    'The same about {T}',
    'and {T}',
    'Now {T}',
)
POLITE = ('Hello! ', 'Hi, ', 'Hey, ', 'Hello, ', 'OK, ', 'Now ', 'Please, ', 'Dear model, ', 'So: ')
QUOTES = (('"', '"'),) * 9 + (("'", "'"),) * 3 + (('', ''),) * 4 + (('`', '`'), ('*', '*'), ('\u201c', '\u201d'))


def quoted(rng, word):
    left, right = rng.choice(QUOTES)
    return left + word + right


def _finish(rng, text):
    """Politeness, capitals and punctuation at the end."""
    r = rng.random()
    if r < 0.05:
        text = rng.choice(POLITE) + text[0].lower() + text[1:]
    r = rng.random()
    if r < 0.10:
        text += rng.choice((', please', ' please', ' for me', ' now', ', thanks'))
    r = rng.random()
    if r < 0.30:
        text += '.'
    elif r < 0.34:
        text += '!'
    elif r < 0.38 or text.startswith(('Can', 'Could', 'Would', 'Will', 'How', 'What')) and r < 0.7:
        text += '?'
    return text


def _case(rng, text, keep):
    """Some people write everything small; the asked words keep their letters."""
    if rng.random() < 0.22:
        low = text.lower()
        for k in keep:
            at = low.find(k.lower())
            if at >= 0:
                low = low[:at] + k + low[at + len(k) :]
        return low
    return text


def _topic_name(rng, t):
    r = rng.random()
    if r < 0.15:
        return t.lower()
    if r < 0.20:
        return t[0].upper() + t[1:]
    if r < 0.24:
        return '"%s"' % t
    return t


def ask(rng, topic=None, words=()):
    """A request for a haiku about `topic` (a name or None) with `words` (texts)."""
    t = _topic_name(rng, topic) if topic else None
    if len(words) == 2:
        a, b = quoted(rng, words[0]), quoted(rng, words[1])
        w, plural = '%s and %s' % (a, b), True
    else:
        w, plural = (quoted(rng, words[0]) if words else None), False
    a, f = rng.choice(ASK), rng.choice(FORM)
    r = rng.random()
    if t and w:
        if r < 0.06 and not plural and t == topic:
            text = EXACT % (t, words[0])
            return text + '.' if rng.random() < 0.3 else text
        tp, wp = rng.choice(TOPIC).format(t=t), rng.choice(WORD).format(w=w)
        if r < 0.58:
            text = '%s %s %s %s' % (a, f, tp, wp)
        elif r < 0.66:
            text = '%s %s %s, %s' % (a, f, tp, wp)
        elif r < 0.76 and not wp.startswith('and'):
            text = '%s %s %s %s' % (a, f, wp, tp)
        elif r < 0.84:
            text = '%s %s %s. %s' % (a, f, tp, rng.choice(ALSO).format(w=w))
        elif r < 0.92:
            text = rng.choice(LEAD_W).format(w=w, f=f, t=tp, a=a.lower() if a[0] != 'I' else 'write')
        else:
            text = rng.choice(CARD).format(T=t, w=w)
    elif t:
        text = rng.choice(CARD_T).format(T=t) if r < 0.22 else '%s %s %s' % (a, f, rng.choice(TOPIC).format(t=t))
    elif w:
        if r < 0.25:
            text = rng.choice(CARD_W).format(w=w)
        elif r < 0.4:
            text = '%s %s. %s' % (a, f, rng.choice(ALSO).format(w=w))
        else:
            text = '%s %s %s' % (a, f, rng.choice(WORD).format(w=w))
    else:
        text = rng.choice(BARE)
    if plural:
        text = (
            text.replace('the word "', 'the words "')
            .replace("the word '", "the words '")
            .replace('the word is', 'the words are')
        )
    return _finish(rng, _case(rng, text, words))


def more(rng):
    return _finish(rng, rng.choice(MORE))


def now_word(rng, word):
    return _finish(rng, rng.choice(NOW_W).format(w=quoted(rng, word)))


def now_topic(rng, topic):
    return _finish(rng, rng.choice(NOW_T).format(T=_topic_name(rng, topic)))
