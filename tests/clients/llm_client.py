"""llm: the command line, with a model of an OpenAI-like server."""

import os
import subprocess
import sys
import tempfile

from service import check, done

MODEL = """- model_id: worker
  model_name: haiku
  api_base: "%s/v1"
  api_key_name: none
  supports_tools: true
"""

with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "extra-openai-models.yaml"), "w", encoding="utf-8") as f:
        f.write(MODEL % os.environ["WORKER_URL"])
    environment = dict(os.environ, LLM_USER_PATH=folder)

    def llm(*words):
        command = [sys.executable, "-m", "llm", "-m", "worker", "--key", "none", "-o", "temperature", "0", *words]
        r = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        return r.stdout.strip() or r.stderr

    whole = llm("--no-stream", "Write a haiku about rain")
    check("llm: an answer", len(whole.splitlines()) == 3, whole)
    check("llm: streamed", llm("Write a haiku about rain") == whole)
done()
