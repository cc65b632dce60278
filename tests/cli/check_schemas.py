#!/usr/bin/env python3
"""Checks the worker's JSON with the jsonschema module, where it is installed: check_schemas.py WORKER CONTRACTS
MODEL"""

import json, os, subprocess, sys

try:
    import jsonschema
except ImportError:
    print('the Python module jsonschema is not installed')
    sys.exit(77)

worker, contracts, model = sys.argv[1:]


def run(*args):
    return json.loads(subprocess.run([worker, *args], check=True, capture_output=True).stdout)


def check(name, value):
    schema = json.load(open(os.path.join(contracts, name)))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(value)


check('ecp-schema.json', run('capabilities', '--json'))
check('mcd-schema.json', run('inspect', '--json', model)['mcd'])
