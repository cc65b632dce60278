"""Chats in which the model has tools: when to call one, how, and what to say of its result.

Owns the tools that the model knows, their ways to be described and asked for, and the text of tools and calls as
template.jinja renders them. The model knows two: one that tells the minute of the clock, and one that counts
syllables; of any other it copies name and parameter when it is told to call it. Asked for what no tool is needed for,
it calls none.
"""

import json

import compose
import lexicon as lx
import prompts

MINUTE_NAMES = (
    'current_minute',
    'current_minute',
    'get_current_minute',
    'get_minute',
    'minute',
    'minute_now',
    'clock_minute',
    'get_time',
    'current_time',
)
MINUTE_SAYS = (
    'The current minute of the clock.',
    'The current minute, in words.',
    'Returns the current minute.',
    'Get the current minute',
    'Tells the minute of the clock',
    'The minute now, from zero to fifty-nine.',
    '',
)
COUNT_NAMES = ('count_syllables', 'count_syllables', 'get_syllables', 'syllables', 'syllable_count', 'CountSyllables')
COUNT_SAYS = (
    'The number of syllables of a word.',
    'Counts the syllables of a word.',
    'Count syllables',
    'Returns how many syllables a word has.',
    '',
)
COUNT_PARAMETERS = ('word', 'word', 'word', 'text')

MINUTE_ASKS = (
    'What minute is it?',
    'What minute is it now?',
    'Which minute is it?',
    'What is the current minute?',
    'what minute is it',
    'Tell me the current minute.',
    'Tell me the minute.',
    'What time is it?',
    'what is the time',
    'Look at the clock.',
    'What does the clock say?',
    'Can you tell me the minute?',
)
MINUTE_TELLS = ('It is minute {m}.', 'The clock says {m}.', 'The minute is {m}.')
MINUTE_WORDS = (
    'that includes the current minute',
    'that includes the current minute',
    'with the current minute in it',
    'that contains the current minute',
    'containing the minute of the clock',
    'using the current minute',
    'that mentions the current minute',
    'and use the current minute',
    'including the minute that it is now',
)
COUNT_ASKS = (
    'How many syllables are in {w}?',
    'How many syllables are in the word {w}?',
    'How many syllables does {w} have?',
    'How many syllables has {w}?',
    'how many syllables in {w}',
    'Count the syllables of {w}.',
    'Count the syllables in {w}',
    'What is the number of syllables of {w}?',
    'syllables of {w}',
)
COUNT_PAIRS = (
    'How many syllables do {v} and {w} have?',
    'How many syllables are in {v} and in {w}?',
    'Count the syllables of {v} and {w}.',
    'syllables of {v} and of {w}',
)
CALLS = (
    'Call {n} with {p} {v}',
    'Call {n} with {v}',
    'Use {n} with {p} {v}',
    'Use the tool {n} with {v}',
    'Please call {n} with {p} {v}.',
    'Run {n} on {v}',
    'Use {n} on {v}.',
)
CALLS_PLAIN = ('Call {n}', 'Use {n}', 'Please call {n}.', 'Run {n}', 'Use the tool {n}.')
TELLS = ('It says {r}.', '{n} says {r}.', 'The answer is {r}.')
NO_TOOL = 'I have no clock here. Give me a tool that tells the minute, or ask for a haiku.'


# ---- text, as template.jinja renders it -----------------------------------------------


def function(name, says, parameters=None):
    """A tool in the form of requests. parameters: {name: type}"""
    properties = {k: {'type': v} for k, v in (parameters or {}).items()}
    f = {'name': name, 'parameters': {'type': 'object', 'properties': properties, 'required': list(properties)}}
    return {'type': 'function', 'function': {**f, 'description': says} if says else f}


def signatures(tools, system=''):
    """The text of the system message."""
    lines = []
    for tool in tools:
        f = tool['function']
        inside = ', '.join('%s: %s' % (k, p['type']) for k, p in f['parameters']['properties'].items())
        lines.append('%s(%s)%s' % (f['name'], inside, ' ' + f['description'] if f.get('description') else ''))
    return (system + '\n' if system else '') + 'Tools:\n' + '\n'.join(lines)


def call(name, arguments):
    """One call's text."""
    return '<tool_call>\n%s\n</tool_call>' % json.dumps({'name': name, 'arguments': arguments})


def result(*texts):
    """The user's message that holds what the tools returned."""
    return 'user', ''.join('\n<tool_response>\n%s\n</tool_response>' % t for t in texts)[1:]


# ---- chats ----------------------------------------------------------------------------


class Tools:
    """The tools of one chat, drawn at random: some of minute, count and others that nobody knows."""

    def __init__(self, rng, made_up, noun, want=None):
        self.rng, self.noun, self.made_up = rng, noun, made_up
        has = {'minute': rng.random() < 0.6, 'count': rng.random() < 0.6, 'other': rng.random() < 0.4}
        has[want or rng.choice(('minute', 'count'))] = True
        self.minute = rng.choice(MINUTE_NAMES) if has['minute'] else None
        self.count = rng.choice(COUNT_NAMES) if has['count'] else None
        self.parameter = rng.choice(COUNT_PARAMETERS)
        self.other = self._name() if has['other'] else None
        self.other_parameter = noun(rng) if rng.random() < 0.8 else None
        self.list = []
        if self.minute:
            self.list.append(function(self.minute, rng.choice(MINUTE_SAYS)))
        if self.count:
            self.list.append(function(self.count, rng.choice(COUNT_SAYS), {self.parameter: 'string'}))
        if self.other:
            says = rng.choice(('', '', 'Returns a %s.' % noun(rng), 'About a %s' % noun(rng)))
            takes = {self.other_parameter: 'string'} if self.other_parameter else None
            self.list.append(function(self.other, says, takes))
        rng.shuffle(self.list)

    def _name(self):
        rng = self.rng
        a, b = (self.noun(rng) if rng.random() < 0.6 else self.made_up(rng).lower() for _ in range(2))
        return rng.choice((a, '%s_%s' % (a, b), 'get_' + a, 'find_' + a, a + b.capitalize()))


def ask_minute(rng, tools):
    m = rng.choice(lx.MINUTES)
    said = m if rng.random() < 0.6 else json.dumps({'minute': m if rng.random() < 0.5 else lx.MINUTES.index(m)})
    out = [('user', rng.choice(MINUTE_ASKS)), ('assistant', call(tools.minute, {})), result(said)]
    return [*out, ('assistant', rng.choice(MINUTE_TELLS).format(m=m))]


def haiku_of_minute(rng, tools, topic, minutes):
    """A haiku about a topic with the minute that a tool tells. minutes: those that may go with the topic."""
    m = rng.choice(minutes)
    said = m if rng.random() < 0.6 else json.dumps({'minute': m if rng.random() < 0.5 else lx.MINUTES.index(m)})
    name = topic.name if rng.random() < 0.6 else rng.choice(topic.names)
    asked = 'Write a haiku' if rng.random() < 0.4 else '%s %s' % (rng.choice(prompts.ASK), rng.choice(prompts.FORM))
    about = 'about ' + name if rng.random() < 0.6 else rng.choice(prompts.TOPIC).format(t=name)
    prompt = '%s %s %s' % (asked, about, rng.choice(MINUTE_WORDS)) + ('.' if rng.random() < 0.3 else '')
    poem = '\n'.join(compose.haiku(rng, topic, [lx.Word(m, rng.choice(lx.WORDS[m]))]))
    return [('user', prompt), ('assistant', call(tools.minute, {})), result(said), ('assistant', poem)]


def ask_syllables(rng, tools, word):
    """word(rng): a word to count."""
    w = word(rng)
    n = lx.syllables(w)
    if rng.random() < 0.2:
        v = word(rng)
        k = lx.syllables(v)
        prompt = rng.choice(COUNT_PAIRS).format(v=prompts.quoted(rng, v), w=prompts.quoted(rng, w))
        calls = '\n'.join(call(tools.count, {tools.parameter: x}) for x in (v, w))
        tell = '"%s" has %s and "%s" has %s.' % (v, plural(k), w, plural(n))
        return [('user', prompt), ('assistant', calls), result(str(k), str(n)), ('assistant', tell)]
    prompt = rng.choice(COUNT_ASKS).format(w=prompts.quoted(rng, w))
    said = str(n) if rng.random() < 0.6 else json.dumps({'syllables': n})
    out = [('user', prompt), ('assistant', call(tools.count, {tools.parameter: w})), result(said)]
    return [*out, ('assistant', 'The word "%s" has %s.' % (w, plural(n)))]


def plural(n):
    return '%s syllable%s' % (lx.spell(n), '' if n == 1 else 's')


def ask_other(rng, tools, word):
    """To call a tool by its name."""
    returned = word(rng)
    if tools.other_parameter:
        v = word(rng)
        text = rng.choice(CALLS).format(n=tools.other, p=tools.other_parameter, v='"%s"' % v)
        out = [('user', text), ('assistant', call(tools.other, {tools.other_parameter: v}))]
    else:
        out = [('user', rng.choice(CALLS_PLAIN).format(n=tools.other)), ('assistant', call(tools.other, {}))]
    return [*out, result(returned), ('assistant', rng.choice(TELLS).format(n=tools.other, r=returned))]
