#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run_manual_reader.py PAGE STEP ROLE: runs the Python reader that the man page shows on a step; prints a line a tensor, name and bytes.
import json
import re
import sys

page, step, role = sys.argv[1:]
with open(page) as f:
    section = f.read().split(".Ss Reading with Python")[1]
code = re.search(r"\.Bd -literal[^\n]*\n(.*?)\n\.Ed", section, re.S).group(1).replace("\\e", "\\")
scope = {}
exec(code, scope)
for name, value in scope["read"](step, role).items():
    print(json.dumps([name if isinstance(name, str) else name.decode(), value.tobytes().hex()]))
