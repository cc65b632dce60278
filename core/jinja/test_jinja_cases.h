/* test_jinja_cases.h: templates of our own and what Python's jinja2 3.1.6 makes of them, in the set-up of jinja.h. A
 * case without `out` and `raised` fails. */
#ifndef CORE_JINJA_TEST_JINJA_CASES_H
#define CORE_JINJA_TEST_JINJA_CASES_H

static const char case_context[] = "{\"l\": [3, 1, 2], \"s\": \"Straße – élan\", \"e\": \"\""
                                   ", \"n\": null, \"t\": true, \"i\": 7, \"f\": 2.5, \"big\": 9"
                                   "8765432109876543210, \"d\": {\"b\": 1, \"a\": \"x\", \"C\": "
                                   "[1, 2]}, \"u\": \"ǆ ŉ ΟΔΟΣ İi\", \"w\": \" \\t a  b\\"
                                   "n c \", \"h\": \"<b class=\\\"x\\\">A &amp; B</b>\", \"peopl"
                                   "e\": [{\"name\": \"Ann\", \"age\": 31, \"tags\": [\"x\"]}, {"
                                   "\"name\": \"bob\", \"age\": 25}, {\"name\": \"Cem\", \"age\""
                                   ": 31}]}";

static const struct {
    const char *source, *out, *raised;
} own_cases[] = {
    { "{{ 1 }} {{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 123456789.123 }} "
      "{{ 2**63 }} {{ -2**64 }} {{ 10**30 // 7 }} {{ 10**30 % 7 }} "
      "{{ -10**30 // 7 }}",
      "1 1.0 1e+16 1e-05 123456789.123 9223372036854775808 18446744"
      "073709551616 142857142857142857142857142857 1 14285714285714"
      "2857142857142857",
      NULL },
    { "{{ 7 // -2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7"
      ".5 % 2 }} {{ 1 / 3 }} {{ 2 ** -2 }} {{ 2 ** 0.5 }} {{ big * "
      "big }} {{ big / 3 }}",
      "-4 2 -2 3.0 0.5 0.3333333333333333 0.25 1.4142135623730951 9"
      "754610579850632525677488187778997104100 3.2921810703292183e+"
      "19",
      NULL },
    { "{{ (2**64)|string }} {{ 2**64 == 18446744073709551616.0 }} {"
      "{ big > 1e19 }} {{ 9007199254740993 == 9007199254740992.0 }}"
      " {{ true + 1 }}",
      "18446744073709551616 True True False 2", NULL },
    { "{{ 0.1 + 0.2 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{"
      " 2**-44 }} {{ 1e23 }} {{ 100.0 }} {{ 1e400 }} {{ -1e400 }}",
      "0.30000000000000004 5e-324 1.7976931348623157e+308 5.6843418"
      "86080802e-14 1e+23 100.0 inf -inf",
      NULL },
    { "{{ s[2:5] }}|{{ s[::-1] }}|{{ s[-1:-5:-2] }}|{{ s[10:2:-3] }"
      "}|{{ s[:100] }}|{{ l[5:0:-1] }}|{{ l[-100:2] }}|{{ range(10)"
      "[2:8:3]|list }}",
      "raß|nalé – eßartS|nl|l–ß|Straße – élan|[2, 1]|[3"
      ", 1]|[2, 5]",
      NULL },
    { "{{ u.upper() }}|{{ u.lower() }}|{{ u.title() }}|{{ u.capital"
      "ize() }}|{{ u.swapcase() }}|{{ u.casefold() }}|{{ u|title }}",
      "Ǆ ʼN ΟΔΟΣ İI|ǆ ŉ οδος i̇i|ǅ ʼN Οδος İi|"
      "ǅ ŉ οδος i̇i|Ǆ ʼN οδος i̇I|ǆ ʼn οδοσ i̇"
      "i|Ǆ ʼN Οδος İi",
      NULL },
    { "{{ w.split() }} {{ w.split(' ') }} {{ w.split(None, 1) }} {{"
      " w.rsplit(None, 1) }} {{ w.strip()|length }} {{ w.splitlines"
      "() }}",
      "['a', 'b', 'c'] ['', '\\t', 'a', '', 'b\\n', 'c', ''] ['a', "
      "'b\\n c '] [' \\t a  b', 'c'] 7 [' \\t a  b', ' c ']",
      NULL },
    { "{{ people|map(attribute='name')|sort }} {{ people|sort(attri"
      "bute='age,name')|map(attribute='name')|list }} {{ people|gro"
      "upby('age')|length }}",
      "['Ann', 'bob', 'Cem'] ['bob', 'Ann', 'Cem'] 2", NULL },
    { "{% for age, list in people|groupby('age') %}{{ age }}:{{ lis"
      "t|map(attribute='name')|join(',') }};{% endfor %}",
      "25:bob;31:Ann,Cem;", NULL },
    { "{{ d|dictsort }} {{ d|dictsort(true) }} {{ d|dictsort(by='va"
      "lue') }}",
      NULL, NULL },
    { "{{ d|dictsort(false, 'key', true) }} {{ d|items|list }} {{ d"
      ".items() }} {{ d.keys() }} {{ d.values()|list }}",
      "[('C', [1, 2]), ('b', 1), ('a', 'x')] [('b', 1), ('a', 'x'),"
      " ('C', [1, 2])] dict_items([('b', 1), ('a', 'x'), ('C', [1, "
      "2])]) dict_keys(['b', 'a', 'C']) [1, 'x', [1, 2]]",
      NULL },
    { "{% for x in l %}{{ loop.index }}{{ loop.revindex }}{{ loop.f"
      "irst }}{{ loop.last }}{{ loop.cycle('a', 'b') }}{{ loop.chan"
      "ged(x > 1) }};{% endfor %}",
      "13TrueFalseaTrue;22FalseFalsebTrue;31FalseTrueaTrue;", NULL },
    { "{% for x in l recursive %}{{ x }}{% if loop.depth < 3 %}({{ "
      "loop([x + 1]) }}){% endif %}{% endfor %}",
      "3(4(5))1(2(3))2(3(4))", NULL },
    { "{% set ns = namespace(n=0) %}{% for x in l if x != 1 %}{% se"
      "t ns.n = ns.n + x %}{{ loop.length }}{% else %}none{% endfor"
      " %}{{ ns.n }}",
      "225", NULL },
    { "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }}"
      "{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{"
      " x }}",
      "13111219", NULL },
    { "{% for i in [1, 2, 3] %}{% continue %}{% else %}else{% endfo"
      "r %}{% for i in [1, 2] %}{% break %}{% else %}else{% endfor "
      "%}",
      "elseelse", NULL },
    { "{% macro f(a, b='B') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs "
      "}}{% endmacro %}{{ f(1) }}{{ f(1, 2, 3, z=4) }}{{ f(b=1) }}",
      "1B(){}12(3,){'z': 4}1(){}", NULL },
    { "{% macro wrap(t) %}<{{ t }}>{{ caller(1) }}</{{ t }}>{% endm"
      "acro %}{% call(v) wrap('p') %}{{ v }}{{ s }}{% endcall %}",
      "<p>1Straße – élan</p>", NULL },
    { "{% macro outer() %}{% macro inner() %}in{{ x }}{% endmacro %"
      "}{% set x = 5 %}{{ inner() }}{% endmacro %}{{ outer() }}",
      "in5", NULL },
    { "{{ \"%05d|%-5s|%+.2f|%x|%#o|%e|%%|%c|%r\"|format(42, 'a', 3."
      "14159, 255, 8, 12345.678, 'z', \"q'\") }}",
      "00042|a    |+3.14|ff|0o10|1.234568e+04|%|z|\"q'\"", NULL },
    { "{{ \"{0}{1}{0} {a:>5}|{b:05.1f}|{c!r}|{d[k]}|{:,}\".format(1"
      ", 2, a='x') }}",
      NULL, NULL },
    { "{{ \"{:>5}|{:<5}|{:^5}|{:05d}|{:+}|{:,}|{:x}|{:#b}|{:.3e}|{:"
      "%}\".format('a', 'b', 'c', 42, 5, 1234567, 255, 5, 1234.5, 0"
      ".25) }}",
      "    a|b    |  c  |00042|+5|1,234,567|ff|0b101|1.234e+03|25.0"
      "00000%",
      NULL },
    { "{{ \"a b c d e f g h i j\"|truncate(9, false, '...', 0) }}|{"
      "{ \"abc def ghi\"|wordwrap(5) }}|{{ \"a-b c\"|wordcount }}",
      "a b c...|abc\ndef\nghi|3", NULL },
    { "{{ h|striptags }}|{{ h|e }}|{{ h|safe|e }}|{{ (h|safe) ~ '<'"
      " }}|{{ (h|safe) + '<' }}|{{ h|urlencode }}",
      "A & B|&lt;b class=&#34;x&#34;&gt;A &amp;amp; B&lt;/b&gt;|<b "
      "class=\"x\">A &amp; B</b>|<b class=\"x\">A &amp; B</b><|<b c"
      "lass=\"x\">A &amp; B</b>&lt;|%3Cb%20class%3D%22x%22%3EA%20%2"
      "6amp%3B%20B%3C/b%3E",
      NULL },
    { "{{ [1, [2, {'a': none}]]|tojson }} {{ d|tojson(indent=1) }} "
      "{{ s|tojson(ensure_ascii=true) }} {{ [1e400, -0.0, 1.5]|tojs"
      "on }}",
      "[1, [2, {\"a\": null}]] {\n \"b\": 1,\n \"a\": \"x\",\n \"C\""
      ": [\n  1,\n  2\n ]\n} \"Stra\\u00dfe \\u2013 \\u00e9lan\" [I"
      "nfinity, -0.0, 1.5]",
      NULL },
    { "{{ [3, 1, 2]|batch(2, 'x')|list }} {{ [1, 2, 3, 4]|slice(3, "
      "'y')|list }} {{ l|sum }} {{ l|max }} {{ people|sum('age') }}"
      " {{ []|min }}|",
      "[[3, 1], [2, 'x']] [[1, 2], [3, 'y'], [4, 'y']] 6 3 87 |", NULL },
    { "{{ nope }}|{{ nope.x }}", NULL, NULL },
    { "{{ nope|default('d') }} {{ n|default('d') }} {{ e|default('d"
      "', true) }} {{ nope is defined }} {{ (nope or 'x') }} {{ nop"
      "e == nope2 }}",
      "d None d False x True", NULL },
    { "{{ raise_exception('stop ' ~ i) }}", NULL, "stop 7" },
    { "{{ [].append(1) }}", NULL, NULL },
    { "{{ d.pop('a') }}", NULL, NULL },
    { "{{ ''.__class__.__mro__ }}", NULL, NULL },
    { "a  {%- if t %}  b  {% endif -%}  c\n   {% if t %}\n   d\n   "
      "{% endif %}\ne {%+ if t +%}\n f{% endif %}",
      "a  b  c\n   d\ne \n f", NULL },
    { "{% raw -%}  {{ x }} {%- endraw %} {# c -#}  y", "{{ x }} y", NULL },
    { "{{ 'a' 'b' }}{{ \"\\x41\\u00e9\\n\\q\" }}{{ 'it''s' }}{{ '\\"
      "101' }}",
      "abAé\n\\qitsA", NULL },
    { "{{ 1 < 2 < 3 != 4 }} {{ 1 in l }} {{ 'x' not in s }} {{ not "
      "t }} {{ 1 if t else 2 }} {{ 'y' if e }}|{{ t and 'a' or 'b' "
      "}} {{ 3 is odd }}",
      "True True True False 1 |a True", NULL },
    { "{{ i is number and i is not string }} {{ f is float }} {{ d "
      "is mapping }} {{ 4 is divisibleby 2 }} {{ 'a' is in 'abc' }}"
      " {{ s is lower }}",
      "True True True True True False", NULL },
    { "{{ l|map('string')|map('upper')|join('-') }} {{ l|select('gt"
      "', 1)|list }} {{ l|reject('odd')|list }} {{ people|selectatt"
      "r('age', 'eq', 31)|map(attribute='name')|list }}",
      "3-1-2 [3, 2] [2] ['Ann', 'Cem']", NULL },
    { "{{ dict(a=1, **{'b': 2}) }} {{ dict([('x', 1)]) }} {{ [1, 2]"
      " + [3] }} {{ (1,) * 2 }} {{ {1: 'a', 1.0: 'b', true: 'c'} }}",
      "{'a': 1, 'b': 2} {'x': 1} [1, 2, 3] (1, 1) {1: 'c'}", NULL },
    { "{% set a, b = 'x', 'y' %}{{ a ~ b }}{% set c %}[{{ a }}]{% e"
      "ndset %}{{ c }}{% set q | upper | replace('A', 'b') %}aa{% e"
      "ndset %}{{ q }}",
      "xy[x]bb", NULL },
    { "{% filter upper %}abc{{ s }}{% endfilter %}{% with x = 1, y "
      "= x %}{{ x }}{{ y }}{% endwith %}{% generation %}g{% set z ="
      " 1 %}{% endgeneration %}{{ z }}",
      "ABCSTRASSE – ÉLAN1g", NULL },
    { "{{ strftime_now('%Y-%m-%d %H:%M:%S %A %a %B %b %d %e %j %y %"
      "p %I %U %W %V %G %u %w %-d %-m %% %z|%Z|%f') }}",
      "2026-07-04 09:05:03 Saturday Sat July Jul 04  4 185 26 AM 09"
      " 26 26 27 2026 6 6 4 7 % ||000000",
      NULL },
    { "{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent('>', true) }}|"
      "{{ 'a\\n\\nb'|indent(1, blank=true) }}|{{ 'x'|center(5) }}|{"
      "{ 'x'.ljust(3, '.') }}|{{ '-5'.zfill(4) }}",
      "a\n    b\n\n    c|>a\n>b|a\n \n b|  x  |x..|-005", NULL },
    { "{{ '12'|int + 1 }} {{ '0x1f'|int(0, 16) }} {{ 'zz'|int(-1) }"
      "} {{ '1_000'|int }} {{ ' 1.5 '|float }} {{ 'inf'|float }} {{"
      " 3.99|int }} {{ 2.675|round(2) }} {{ 1250|round(-2) }} {{ 2."
      "5|round }} {{ 3.2|round(0, 'ceil') }}",
      "13 31 -1 1000 1.5 inf 3 2.67 1200 2.0 4.0", NULL },
    { "{{ l.index(1) }} {{ l.count(3) }} {{ (1, 2).index(2) }} {{ s"
      ".find('a') }} {{ s.rfind('z') }} {{ s.partition(' ') }} {{ '"
      "a.b.c'.rpartition('.') }} {{ 'aaa'.replace('a', 'b', 2) }} {"
      "{ 'ab'.replace('', '-') }}",
      "1 1 1 3 -1 ('Straße', ' ', '– élan') ('a.b', '.', 'c') b"
      "ba -a-b-",
      NULL },
    { "{{ cycler('a', 'b').next() }}{% set c = cycler(1, 2) %}{{ c."
      "next() }}{{ c.next() }}{{ c.current }}{% set j = joiner('|')"
      " %}{{ j() }}x{{ j() }}y",
      "a121x|y", NULL },
    { "{% block b %}[{{ i }}]{% endblock %}{{ self.b() }}", "[7][7]", NULL },
    { "{% print i, 'x' %}", "7x", NULL },
    { "{{ \"'\" }} {{ [\"'\", '\"', '\\'\"', '\\\\', '\\n\\t\\x00é"
      "\\u200b'] }} {{ ('a'|safe)|list }}",
      "' [\"'\", '\"', '\\'\"', '\\\\', '\\n\\t\\x00é\\u200b'] ['a"
      "']",
      NULL },
    { "{{ '}' > '{' }} {{ ['{', '}']|max }} {{ 'a' < 'c' }} {{ ['c'"
      ", 'a', 'e']|sort }} {{ 'b' >= 'd' }}",
      "True } True ['a', 'c', 'e'] False", NULL },
    { "{{ '%#.3g|%#g|%#.0e' % (999.566, 1.0, 2.0) }} {{ '{:.1}|{:.2"
      "}|{:.3}|{:#.3g}'.format(3.71, 0.95, 0.0, 1e10) }}",
      "1.00e+03|1.00000|2.e+00 4e+00|0.95|0.0|1.00e+10", NULL },
    { "{{ '{0[0]}{}{1[k]}{}'.format('ab', {'k': 'v'}) }}", "aabv{'k': 'v'}", NULL },
    { "{{ '{0}{}'.format(1, 2) }}", NULL, NULL },
    { "{{ '{}{0}'.format(1, 2) }}", NULL, NULL },
    { "{% filter length %}abc{% endfilter %}", NULL, NULL },
    { "{{ 'a b-c'.splitlines(none) }}", NULL, NULL },
    { "{{ [1, 2]|sort(reverse='a') }}", NULL, NULL },
    { "{{ 'abc'|batch(1, 2, 3) }}", NULL, NULL },
    { "{{ '{}'|truncate(5.5) }} {{ 'abcdefghijkl'|truncate(8.5, lee"
      "way=0.25) }}",
      NULL, NULL },
    { "{{ 'the well-known e-mail--here a-b 3-4 a_b-c_d'|wordwrap(6)"
      " }}",
      "the\nwell-\nknown\ne-mail\n--here\na-b\n3-4\na_b-\nc_d", NULL },
    { "{{ '<b class=\"x\">A long'|wordwrap(3) }}|{{ '\\tdddd!'|word"
      "wrap(1) }}|{{ '  '|wordwrap(1) }}|{{ 'aaa bbbb'|wordwrap(3, "
      "false) }}",
      "<b \ncla\nss=\n\"x\"\n>A \nlon\ng|\t\nd\nd\nd\nd\n!||aaa\nbb"
      "bb",
      NULL },
    { "{{ {}.items() in {1: 2} }}", NULL, NULL },
    { "{{ 'x'|tojson(indent=1.5) }}{{ dict.anything(a=1) }}{{ dict["
      "'x']([('k', 1)]) }}{{ dict.fromkeys('ab', 0) }}",
      "\"x\"{'a': 1}{'k': 1}{'a': 0, 'b': 0}", NULL },
    { "{{ [1, 'a', none, 1.5, true, 'A', 1]|unique|list }} {{ ['a',"
      " 'B', 'A']|unique(true)|list }} {{ people|unique(attribute='"
      "age')|map(attribute='name')|join }}",
      "[1, 'a', None, 1.5] ['a', 'B', 'A'] Annbob", NULL },
    { "{% for k, v in {'a': 1, 'b': 2}.items() if v > 1 %}{{ loop.i"
      "ndex }}{{ k }}{% endfor %}{% for a in [[1, 2, 3]] %}{% set x"
      ", y = a %}{% endfor %}",
      NULL, NULL },
    { "{{ 1 if false }}{{ (1 if false) is undefined }}{{ [1 if fals"
      "e] }}",
      "True[Undefined]", NULL },
    { "{% set t = namespace(a=1) %}{% set t.b = 2 %}{{ t.a }}{{ t.b"
      " }}{{ t.c is defined }}{{ t['a'] }}{{ t }}",
      "12False1<Namespace {'a': 1, 'b': 2}>", NULL },
    { "{% macro f() %}{{ x }}{% endmacro %}{% for x in [1] %}{{ f()"
      " }}{% endfor %}{% set x = 2 %}{{ f() }}{% with x = 3 %}{{ f("
      ") }}{% endwith %}",
      "22", NULL },
    { "{% if false %}{% set q = 1 %}{% endif %}{{ q is defined }}{%"
      " for i in l %}{% if loop.first %}{% set q = i %}{% endif %}{"
      "{ q is defined }}{% endfor %}",
      "FalseTrueFalseFalse", NULL },
    { "{{ range(3)[-100::5] }} {{ range(10)[::-2] }} {{ range(0)[1:"
      "] }} {{ range(5)[10:] }} {{ '1.5'|int(base=37) }} {{ 'inf'|i"
      "nt }} {{ true|round(99999999999999999999) }}",
      "range(0, 3, 5) range(9, -1, -2) range(0, 0) range(5, 5) 1 0 "
      "1",
      NULL },
    { "{{ 1e400|int }}", NULL, NULL },
    { "{{ 2|round(none, 'floor') }}", NULL, NULL },
    { "{{ 'a%s' % nope }} {{ 'b' % nope }} {{ 'c' % [1] }} {{ 'd' %"
      " {'k': 1} }}",
      "a b c d", NULL },
    { "{{ 'd' % 1 }}", NULL, NULL },
    { "{% macro f() %}{% endmacro %}{{ f }} {{ [f] }} {{ f.name }} "
      "{{ cycler(1, 2).items }}",
      "<Macro 'f'> [<Macro 'f'>] f (1, 2)", NULL },
    { "{{ '{:,n}'.format(1) }}\n", NULL, NULL },
    { "{{ 'b'|int('q', 'x') }} {{ '7'|int(base='x') }} {{ '12'|int("
      "1, 2**70) }} {{ 7.9|int(0, none) }} {{ (-0.0)|filesizeformat"
      " }} {{ (-0.5)|filesizeformat }}",
      "q 7 12 7 0 Bytes 0 Bytes", NULL },
    { "{{ dict(nope) }}", NULL, NULL },
    { "{{ namespace(d.zz) }}", NULL, NULL },
    { "{% macro f(a, b=1) %}{{ caller() }}{{ kwargs }}{% endmacro %"
      "}{% macro g() %}{{ varargs }}{% endmacro %}{{ f.arguments }}"
      " {{ f.caller }} {{ f.catch_kwargs }} {{ f.catch_varargs }} {"
      "{ g.arguments }} {{ g.caller }} {{ g.catch_varargs }} {{ g.n"
      "ope is defined }}",
      "('a', 'b') True True False () False True False", NULL },
    { "{{ d|pprint }} {{ 'x'|pprint }} {{ [1, (2,), none]|pprint }}"
      " {{ nope|pprint }} {{ h|safe|pprint }}",
      "{'C': [1, 2], 'a': 'x', 'b': 1} 'x' [1, (2,), None] Undefine"
      "d Markup('<b class=\"x\">A &amp; B</b>')",
      NULL },
    { "{{ {'long': 'The quick brown fox jumps over the lazy dog, an"
      "d then it does so again.\\nTwice\\n', 2: [1] * 30, none: {'z"
      "': (h * 3,), 'a': {}}}|pprint }}",
      "{None: {'a': {},\n        'z': ('<b class=\"x\">A &amp; B</b"
      "><b class=\"x\">A &amp; B</b><b '\n              'class=\"x"
      "\">A &amp; B</b>',)},\n 2: [1,\n     1,\n     1,\n     1,\n "
      "    1,\n     1,\n     1,\n     1,\n     1,\n     1,\n     1,"
      "\n     1,\n     1,\n     1,\n     1,\n     1,\n     1,\n    "
      " 1,\n     1,\n     1,\n     1,\n     1,\n     1,\n     1,\n "
      "    1,\n     1,\n     1,\n     1,\n     1,\n     1],\n 'long"
      "': 'The quick brown fox jumps over the lazy dog, and then it"
      " does so '\n         'again.\\n'\n         'Twice\\n'}",
      NULL },
    { "{{ 'The quick brown fox jumps over the lazy dog, and then it"
      " does so again: over the lazy dog.'|pprint }}",
      "('The quick brown fox jumps over the lazy dog, and then it d"
      "oes so again: over '\n 'the lazy dog.')",
      NULL },
    { "{{ (('a' * 90, 'b'), ('c' * 90,), [h * 4])|pprint }}",
      "(('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',\n  'b'),\n ('ccccccccccc"
      "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
      "ccccccccccccccccccc',),\n ['<b class=\"x\">A &amp; B</b><b c"
      "lass=\"x\">A &amp; B</b><b class=\"x\">A &amp; '\n  'B</b><b"
      " class=\"x\">A &amp; B</b>'])",
      NULL },
    { "{% if false %}{{ l|random }}{% endif %}ok", "ok", NULL },
    { "{{ l|random|length + nope.x }}", NULL, NULL },
    { "{% for c in 'aab' %}{{ c is sameas c }}{{ c }}{% endfor %}{{"
      " 'ab'[0] ~ 'ab'[1] + s[0] }}",
      "TrueaTrueaTruebabS", NULL },
    { "{{ 'See http://ex.com/a?b=1, (www.foo.org). mail me@x.org or"
      " mailto:a.b@c.de; not 3.4.com or a.b'|urlize }}",
      "See <a href=\"http://ex.com/a?b=1\" rel=\"noopener\">http://"
      "ex.com/a?b=1</a>, (<a href=\"https://www.foo.org\" rel=\"noo"
      "pener\">www.foo.org</a>). mail <a href=\"mailto:me@x.org\">m"
      "e@x.org</a> or mailto:a.b@c.de; not 3.4.com or a.b",
      NULL },
    { "{{ 'https://example.com/' ~ 'x' * 20 ~ ' http://127.0.0.1:80"
      " http://[::1]/'|urlize(10, true, target='_blank', rel='me') "
      "}}",
      "https://example.com/xxxxxxxxxxxxxxxxxxxx <a href=\"http://12"
      "7.0.0.1:80\" rel=\"me nofollow noopener\" target=\"_blank\">"
      "http://127...</a> <a href=\"http://[::1]/\" rel=\"me nofollo"
      "w noopener\" target=\"_blank\">http://[::...</a>",
      NULL },
    { "{{ '(http://x.com/a_(b)) <tel:12> &lt; WWW.A.info'|urlize(ex"
      "tra_schemes=['tel:']) }}{{ ''|urlize }}{{ 7|urlize }}",
      "(<a href=\"http://x.com/a_(b)\" rel=\"noopener\">http://x.co"
      "m/a_(b)</a>) &lt;<a href=\"tel:12\" rel=\"noopener\">tel:12<"
      "/a>&gt; &amp;lt; <a href=\"https://WWW.A.info\" rel=\"noopen"
      "er\">WWW.A.info</a>7",
      NULL },
    { "{{ 'x'|urlize(extra_schemes=['?']) }}", NULL, NULL },
};

#endif
