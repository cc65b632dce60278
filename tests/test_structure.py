#!/usr/bin/env python3
"""test_structure.py SOURCE: cmake/check_structure.py finds what it is there to find, in small trees made for it, and
its lists of exceptions can only shrink."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(sys.argv.pop(1), "cmake"))
import check_structure as cs  # noqa: E402


def tree(**files):
    """A tree of these files; in a name __ is /, and the last _ the dot."""
    made = object.__new__(cs.Tree)
    made.text = {".".join(name.replace("__", "/").rsplit("_", 1)): text for name, text in files.items()}
    made.includes = {path: made.included(path) for path in made.text}
    return made


def function(name, lines):
    return "static int %s(void)\n{\n%s}\n" % (name, "    f();\n" * (lines - 3))


def statements(first, n):
    return "".join("    f(%d);\n" % (first + i) for i in range(n))


class Structure(unittest.TestCase):
    def says(self, check, of, *words):
        found = list(check(of))
        self.assertEqual(len(found), len(words), found)
        for text, word in zip(found, words, strict=True):
            self.assertIn(word, text)

    def test_includes_go_down(self):
        log, base = '#include "log/log.h"\n', '#include "base/utf8.h"\n'
        self.says(cs.check_includes, tree(core__log__log_h=base, core__base__utf8_h=""))
        self.says(cs.check_includes, tree(core__log__log_h="", core__base__utf8_c=log), "is not below it")
        self.says(cs.check_includes, tree(core__base__test_utf8_c=log, core__log__log_h=""))
        self.says(cs.check_includes, tree(core__new__new_c=""), "not in LEVELS")

    def test_no_circles(self):
        of = tree(core__base__a_h='#include "base/b.h"\n', core__base__b_h='#include "base/a.h"\n')
        self.says(cs.check_includes, of, "in a circle")

    def test_products_include_no_tests(self):
        self.says(cs.check_includes, tree(core__base__a_c='#include "test_a.h"\n', core__base__test_a_h=""), "of tests")

    def test_plugins_know_the_sdk_alone(self):
        sdk = {"sdk__include__worker__abi_h": "", "core__base__utf8_h": ""}
        self.says(cs.check_includes, tree(plugins__gpt__gpt_c="#include <worker/abi.h>\n", **sdk))
        self.says(cs.check_includes, tree(plugins__gpt__gpt_c='#include "base/utf8.h"\n', **sdk), "a plugin includes")

    def test_calls_go_one_way(self):
        low = "int f(void)\n{\n    return %s;\n}\n"
        high = "int g(int x,\n      int y)\n{\n    return f();\n}\n"
        of = {
            "core__device__cuda__b_c": high,
            "core__device__cuda__test_c_c": "int h(void)\n{\n    return g(1, 2);\n}\n",
        }
        self.says(cs.check_calls, tree(core__device__cuda__a_c=low % '"g(1, 2)" /* g(1, 2) */', **of))
        self.says(cs.check_calls, tree(core__device__cuda__a_c="static " + low % "h()", **of))
        self.says(cs.check_calls, tree(core__device__cuda__a_c=low % "g(1, 2)", **of), "call each other in a circle")

    def test_headers_with_a_level_of_their_own(self):
        image, ring = "sdk__include__worker__cuda__image_cuh", "sdk__include__worker__cuda__part__ring_cuh"
        self.says(cs.check_includes, tree(**{image: "", ring: "#include <worker/cuda/image.cuh>\n"}))
        self.says(cs.check_includes, tree(**{image: "#include <worker/cuda/part/ring.cuh>\n", ring: ""}), "not below")

    def test_long_functions(self):
        self.says(cs.check_functions, tree(core__a_c=function("f", 80)))
        self.says(cs.check_functions, tree(core__a_c=function("f", 81)), "f has 81 lines")

    def test_equal_blocks(self):
        self.assertEqual(len(list(cs.blocks(tree(core__a_c=statements(0, 8), core__b_c=statements(0, 8))))), 1)
        self.assertEqual(list(cs.blocks(tree(core__a_c=statements(0, 5), core__b_c=statements(0, 5)))), [])
        commented = statements(0, 6).replace("\n", " /* why */\n\n")
        self.assertEqual(len(list(cs.blocks(tree(core__a_c=statements(0, 6), core__b_c=commented)))), 1)
        self.assertEqual(list(cs.blocks(tree(core__a_c=statements(0, 8), core__test_b_c=statements(0, 8)))), [])
        many = "".join(statements(10 * i, 6) + "    g(%d);\n" % i for i in range(20))
        other = "".join(statements(10 * i, 6) + "    h(%d);\n" % i for i in range(20))
        self.says(cs.check_blocks, tree(core__a_c=many, core__b_c=other), "20 equal blocks")

    def test_kernels(self):
        gemv, int8 = "sdk__include__worker__cuda__kernel__gemv_cuh", "sdk__include__worker__cuda__kernel__int8_cuh"
        of = tree(**{gemv: "", int8: "#include <worker/cuda/kernel/gemv.cuh>\n"})
        self.says(cs.check_kernels, of, "another kernel")
        self.says(cs.check_kernels, tree(**{gemv: "", int8: ""}))


if __name__ == "__main__":
    unittest.main()
