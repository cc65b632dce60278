#!/usr/bin/env python3
"""Checks the worker's JSON with the jsonschema module, where it is installed, for models of every architecture:
check_schemas.py WORKER CONTRACTS MODEL..."""

import json
import os
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("the Python module jsonschema is not installed")
    sys.exit(77)

worker, contracts, *models = sys.argv[1:]


def run(*args):
    return json.loads(subprocess.run([worker, *args], check=True, capture_output=True).stdout)


def check(name, value):
    with open(os.path.join(contracts, name), encoding="utf-8") as f:
        schema = json.load(f)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(value)


profile = run("capabilities", "--json")
check("ecp-schema.json", profile)
seen = set()
for model in ["embedded:haiku", "embedded:haiku-moe", *(m for m in models if os.path.exists(m))]:
    found = run("inspect", "--json", model)
    check("mcd-schema.json", found["mcd"])
    assert not found["missing"], (model, found["missing"])
    assert set(found["mcd"]["attention"].split()) <= set(profile["supports_attention"]), found["mcd"]
    assert set(found["mcd"]["quant"]) <= set(profile["supports_quant"]), found["mcd"]
    seen.add(found["mcd"]["architecture"])
print("architectures:", *sorted(seen))
